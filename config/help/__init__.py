"""Help: the guides for users in `docs/` as pages."""
