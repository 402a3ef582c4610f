"""The plans application."""

from importlib import import_module

from django.apps import AppConfig

from catalog.signals import fact
from catalog.tools import registry

PLANNING_TOOLS = "plans.planning_tools.tools"
"""The module whose tools keep the list of a session."""
PLANNER_TOOLS = ("plans.planner.draft_plan", "plans.planner.plan_on", "plans.planner.compose_reply")
"""The modules whose tools are there where a model is configured."""
TURNS = "plans.agents.turn"
"""The module whose tool asks agents' models: an agent may name its own."""
QUESTIONS = "plans.planner.ask_user"
"""The module whose tool asks people: it needs no model."""
CONNECTED = (
    "plans.engine.decisions",
    "plans.agents.loop",
    "plans.planner.outcomes",
    "plans.engine.previews",
    "plans.store.privacy",
)
"""The modules that connect themselves to lower ones when they are imported."""


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Let every fact become an event of its plan, and lower layers ask what is private and what is a plan."""
        for module in CONNECTED:
            import_module(module)
        from approvals.policies.lint import register_plan_lookup  # noqa: PLC0415 (models are loaded only now)
        from plans.agents import loop  # noqa: PLC0415 (as above)
        from plans.engine.extensions import register_agent_loop  # noqa: PLC0415 (as above)
        from plans.engine.reports import on_fact as report_fact  # noqa: PLC0415 (as above)
        from plans.llm.provider import is_configured  # noqa: PLC0415 (as above)
        from plans.store.selectors import is_plan  # noqa: PLC0415 (as above)
        from plans.store.transactions import on_fact  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="plans.store.transactions")
        fact.connect(report_fact, dispatch_uid="plans.engine.reports")
        register_agent_loop(loop)
        register_plan_lookup(is_plan)
        registry.register_module(PLANNING_TOOLS, lambda: True)
        registry.register_module(QUESTIONS, lambda: True)
        registry.register_module(TURNS, lambda: True)
        for module in PLANNER_TOOLS:
            registry.register_module(module, is_configured)
