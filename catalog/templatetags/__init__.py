"""Template tags and filters of the catalog's pages."""
