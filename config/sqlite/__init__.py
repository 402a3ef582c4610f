"""Django's SQLite backend, which here remembers statements once it has put them into SQLite's own form."""
