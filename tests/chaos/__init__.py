"""Serving processes that are killed in the middle of what they do."""
