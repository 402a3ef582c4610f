"""Serving HTTP: request bodies, the thread of a request, static files, start and stop. Knows no page."""
