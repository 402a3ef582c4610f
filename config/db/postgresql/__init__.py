"""Django's PostgreSQL backend with fewer round trips; see `base`."""
