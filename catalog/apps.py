"""Django application config of the catalog."""

import logging

from django.apps import AppConfig
from django.conf import settings
from django.urls import register_converter

from catalog import signals
from catalog.core import tracing
from catalog.core.url_converters import NumberConverter


class CatalogConfig(AppConfig):
    name = "catalog"

    def ready(self) -> None:
        from catalog.access import people, second_factors, sessions  # noqa: PLC0415 (models are not loaded before)
        from catalog.calls.vault import delete_secrets_of_ended_call  # noqa: PLC0415 (models are not loaded before)

        register_converter(NumberConverter, "number")
        people.access_ended.connect(sessions.on_access_ended, dispatch_uid="catalog.access.sessions")
        people.access_ended.connect(second_factors.on_access_ended, dispatch_uid="catalog.access.second_factors")
        signals.fact.connect(delete_secrets_of_ended_call, dispatch_uid="catalog.calls.vault")
        if missing := tracing.start_tracing():
            logging.getLogger("toolgate.tracing").warning(missing)
        for name in settings.UNKNOWN_NAMES:
            logging.getLogger("toolgate.settings").warning("Unknown setting %s is ignored.", name)
