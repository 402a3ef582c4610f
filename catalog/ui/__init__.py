"""Shared ground of all pages: sign-in guard, htmx, labels, forms made from a JSON Schema. Knows no page."""
