"""The catalog application."""

import logging

from django.apps import AppConfig
from django.conf import settings

from catalog import signals
from catalog.core import tracing


class CatalogConfig(AppConfig):
    """What a tool is and how one call of it is run."""

    name = "catalog"

    def ready(self) -> None:
        """Let secrets end with their calls, and make spans, where someone collects them."""
        from catalog.calls.vault import delete_secrets_of_ended_call  # noqa: PLC0415 (models are loaded only now)

        signals.fact.connect(delete_secrets_of_ended_call, dispatch_uid="catalog.calls.vault")
        if missing := tracing.start_tracing():
            logging.getLogger("toolgate.tracing").warning(missing)
        for name in settings.UNKNOWN_NAMES:
            logging.getLogger("toolgate.settings").warning("There is no setting %s; it is ignored.", name)
