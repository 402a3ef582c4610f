"""Pages that create or change plans: from a request in words, as text, or by editing."""
