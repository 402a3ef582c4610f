"""The plans application."""

from django.apps import AppConfig

from catalog.facts import fact


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Let every fact become an event of its plan."""
        from plans.events import on_fact  # noqa: PLC0415 (models are loaded only now)

        fact.connect(on_fact, dispatch_uid="plans.events")
