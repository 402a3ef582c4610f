"""The PostgreSQL backend: Django's, with statements that are sent together with the next one."""
