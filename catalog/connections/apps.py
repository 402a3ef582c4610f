"""Django application config of the connections."""

from django.apps import AppConfig

from catalog import signals


class ConnectionsConfig(AppConfig):
    name = "catalog.connections"
    label = "connections"

    def ready(self) -> None:
        from catalog.access import people  # noqa: PLC0415 (models are not loaded before)
        from catalog.connections import services, steps  # noqa: PLC0415 (models are not loaded before)

        people.access_ended.connect(services.on_access_ended, dispatch_uid="catalog.connections.services")
        signals.fact.connect(steps.on_fact, dispatch_uid="catalog.connections.steps")
