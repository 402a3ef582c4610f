"""The plans application."""

from django.apps import AppConfig

from catalog.facts import fact


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Let every fact become an event of its plan."""
        from plans import consequences  # noqa: F401, PLC0415 (models are loaded only now; importing it connects)
        from plans.events import on_fact  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="plans.events")
