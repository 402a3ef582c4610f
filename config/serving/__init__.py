"""HTTP serving: request bodies, threads, static files, start and stop. Knows no page."""
