"""Stops: while one stands, nothing in its scope starts."""
