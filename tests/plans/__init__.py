"""Plan documents, references, checks, layout: what needs no database; and what does."""
