"""The plans application."""

from django.apps import AppConfig

from catalog.signals import fact
from catalog.tools import registry

PLANNING_TOOLS = "plans.planning_tools.tools"
"""The module whose tools keep the list of a session."""
PLANNER_TOOLS = ("plans.planner.draft_plan", "plans.planner.plan_on", "plans.planner.compose_reply")
"""The modules whose tools are there where a model is configured."""
AGENT_TURN_TOOL = "plans.agents.turn"
"""The module whose tool asks agents' models: an agent may name its own."""
QUESTION_TOOL = "plans.planner.ask_user"
"""The module whose tool asks people: it needs no model."""


class PlansConfig(AppConfig):
    """What runs in which order."""

    name = "plans"

    def ready(self) -> None:
        """Fill every extension point: of this layer's transactions and engine, and of the layers below."""
        _register_with_transactions()
        _register_with_engine()
        _register_with_lower_layers()


# Models are loaded only when the application is ready, so what imports them is imported here.
# ruff: noqa: PLC0415


def _register_with_transactions() -> None:
    """Turn facts into events with their consequences, and wake whoever waits for news."""
    from plans.agents.loop import wake_agents
    from plans.engine.decisions import HANDLERS
    from plans.engine.reports import count_review as report_fact
    from plans.live.feed import notify_feeds
    from plans.live.long_polling import wake_waiters
    from plans.store import transactions

    fact.connect(transactions.record_fact_event, dispatch_uid="plans.store.transactions")
    fact.connect(report_fact, dispatch_uid="plans.engine.reports")
    for kind, handler in HANDLERS.items():
        transactions.register_fact_handler(kind, handler)
    transactions.register_step_end_handler(wake_agents)
    transactions.register_listener(wake_waiters)
    transactions.register_listener(notify_feeds)


def _register_with_engine() -> None:
    """Let agents and the planner act on the results of their steps."""
    from plans.agents import loop
    from plans.engine import extensions
    from plans.planner import outcomes
    from plans.planner.steps import COMPOSE_REPLY, PLAN_ON

    extensions.register_agent_loop(loop)
    extensions.register_result_handler(PLAN_ON, outcomes.add_planned_steps)
    extensions.register_result_handler(COMPOSE_REPLY, outcomes.store_reply)


def _register_with_lower_layers() -> None:
    """Answer what the layers below ask about plans, and register the tools of this layer."""
    from approvals.grants.proposals import register_direct_plan_lookup
    from approvals.reviews.edits import register_previewer
    from catalog.calls.privacy import register_privacy_judge
    from plans.engine.grants import is_direct_plan
    from plans.engine.previews import preview_again
    from plans.llm.provider import is_configured
    from plans.store.privacy import hidden_by_call

    register_privacy_judge(hidden_by_call)
    register_direct_plan_lookup(is_direct_plan)
    register_previewer(preview_again)
    for module in (PLANNING_TOOLS, QUESTION_TOOL, AGENT_TURN_TOOL):
        registry.register_module(module, lambda: True)
    for module in PLANNER_TOOLS:
        registry.register_module(module, is_configured)
