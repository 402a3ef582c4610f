"""The plans application."""

from django.apps import AppConfig

from catalog.signals import fact
from catalog.tools import registry

PLANNING_TOOLS = "plans.planning_tools.tools"
"""The module whose tools keep the list of a session."""
PLANNER_TOOLS = ("plans.planner.drafting", "plans.planner.continuing", "plans.planner.replying")
"""The modules whose tools are there where a model is configured."""
TURNS = "plans.agents.turns"
"""The module whose tool asks agents' models: an agent may name its own."""
QUESTIONS = "plans.planner.ask_user"
"""The module whose tool asks people: it needs no model."""


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Let every fact become an event of its plan, and lower layers ask what is private and what is a plan."""
        from approvals.policies.lint import ask_of_plans  # noqa: PLC0415 (models are loaded only now)
        from plans import (  # noqa: PLC0415 (models are loaded only now)
            agent_steps,
            consequences,  # noqa: F401 (importing connects)
            previews,  # noqa: F401 (as above)
            private,  # noqa: F401 (as above)
            reports,
        )
        from plans.agents import loop, waking  # noqa: F401, PLC0415 (importing connects)
        from plans.events import on_fact  # noqa: PLC0415 (as above)
        from plans.planner import outcomes  # noqa: F401, PLC0415 (importing connects)
        from plans.planner.provider import is_configured  # noqa: PLC0415 (as above)
        from plans.selectors import is_plan  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="plans.events")
        fact.connect(reports.on_fact, dispatch_uid="plans.reports")
        agent_steps.taken_further_by(loop)
        ask_of_plans(is_plan)
        registry.also_ships(PLANNING_TOOLS, lambda: True)
        registry.also_ships(QUESTIONS, lambda: True)
        registry.also_ships(TURNS, lambda: True)
        for module in PLANNER_TOOLS:
            registry.also_ships(module, is_configured)
