"""Django's PostgreSQL backend with fewer ways to the server and back; see `base`."""
