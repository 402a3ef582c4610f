"""Shared parts of all pages: sign-in guard, htmx, labels, forms from JSON Schema. Knows no page."""
