"""Several processes that work together: web and workers on PostgreSQL and Redis."""
