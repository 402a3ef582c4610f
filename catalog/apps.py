"""The catalog application."""

import logging

from django.apps import AppConfig

from catalog import tracing


class CatalogConfig(AppConfig):
    """What a tool is and how one call of it is run."""

    name = "catalog"

    def ready(self) -> None:
        """Make spans, where someone collects them."""
        if missing := tracing.start():
            logging.getLogger("toolgate.tracing").warning(missing)
