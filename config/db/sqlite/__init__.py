"""Django's SQLite backend with a fair lock of writers; see `base`."""
