"""The plans application."""

from django.apps import AppConfig

from catalog.facts import fact


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Let every fact become an event of its plan, and lower layers ask what is private."""
        from plans import consequences, private  # noqa: F401, PLC0415 (models are loaded only now; importing connects)
        from plans.events import on_fact  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="plans.events")
