"""Composition of the three layers: settings, URLs and the ASGI application."""
