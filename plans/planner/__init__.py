"""From a request in words to a plan: what a language model is asked, and what its answers become."""
