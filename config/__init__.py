"""Composition: settings, URLs and the ASGI application that mounts the three layers."""
