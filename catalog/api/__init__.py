"""REST endpoints of tools and tokens."""
