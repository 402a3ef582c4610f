"""The catalog application."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """What a tool is and how one call of it is run."""

    name = "catalog"
