"""Django configuration of the plans application; connects its hooks at start-up."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models.signals import post_migrate

from catalog.signals import fact
from catalog.tools import registry

PLANNING_TOOLS = "plans.planning_tools.tools"
"""The module of the tools that keep a session's to-do list."""
PLANNER_TOOLS = ("plans.planner.draft_plan", "plans.planner.plan_on", "plans.planner.compose_reply")
"""The modules of the tools that need a configured model."""
AGENT_TURN_TOOL = "plans.agents.turn"
"""The module of the tool that runs an agent's turn. Always registered: an agent may name its own model."""
QUESTION_TOOL = "plans.planner.ask_user"
"""The module of the tool that asks people; it needs no model."""


class PlansConfig(AppConfig):
    name = "plans"

    def ready(self) -> None:
        _register_with_transactions()
        _register_with_engine()
        _register_with_lower_layers()
        post_migrate.connect(_record_rights, self, dispatch_uid="plans.apps")


# Models cannot be imported before the applications are ready, so these functions import locally.
# ruff: noqa: PLC0415


def _register_with_transactions() -> None:
    from plans.agents.loop import wake_agents
    from plans.engine import stops
    from plans.engine.approval_effects import HANDLERS
    from plans.engine.reports import count_review, trace_wait
    from plans.live.feed import notify_feeds
    from plans.live.waits import wake_waiters
    from plans.store import transactions

    fact.connect(transactions.record_fact_event, dispatch_uid="plans.store.transactions")
    fact.connect(stops.on_fact, dispatch_uid="plans.engine.stops")
    fact.connect(count_review, dispatch_uid="plans.engine.reports")
    fact.connect(trace_wait, dispatch_uid="plans.engine.reports.wait")
    for kind, handler in HANDLERS.items():
        transactions.register_fact_handler(kind, handler)
    transactions.register_step_end_handler(wake_agents)
    transactions.register_listener(wake_waiters)
    transactions.register_listener(notify_feeds)


def _register_with_engine() -> None:
    from plans.agents import loop
    from plans.engine import extensions
    from plans.planner import outcomes
    from plans.planner.steps import COMPOSE_REPLY, PLAN_ON

    extensions.register_agent_loop(loop)
    extensions.register_result_handler(PLAN_ON, outcomes.add_planned_steps)
    extensions.register_result_handler(COMPOSE_REPLY, outcomes.store_reply)


def _record_rights(sender: AppConfig, *, using: str, **kwargs: Any) -> None:
    """Record in the audit log the rows that decide rights, once all migrations are applied."""
    from approvals.audit.log import record_rights

    executor = MigrationExecutor(connections[using])
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        record_rights()


def _register_with_lower_layers() -> None:
    from approvals.audit import rights
    from approvals.envelopes.services import register_envelope_makers, register_plan_owner
    from approvals.grants.proposals import register_direct_plan_lookup
    from approvals.queue.grouping import register_plan_titles
    from approvals.reviews.edits import register_previewer
    from approvals.stops.services import register_agents
    from approvals.stops.stopped_time import register_call_facts
    from catalog.calls.privacy import register_privacy_judge
    from plans.engine.grants import is_direct_plan, plan_owner
    from plans.engine.holding import preview_again
    from plans.engine.stops import facts_of_stored_calls, makers_of_envelope
    from plans.llm.provider import is_configured
    from plans.models import Agent
    from plans.store.privacy import hidden_by_call
    from plans.store.selectors import plan_titles

    rights.register(rights.RightsTable("agent", "plans.Agent", "name", ("agent.",), left_out=frozenset({"updated_at"})))
    register_privacy_judge(hidden_by_call)
    register_direct_plan_lookup(is_direct_plan)
    register_plan_owner(plan_owner)
    register_envelope_makers(makers_of_envelope)
    register_previewer(preview_again)
    register_plan_titles(plan_titles)
    register_call_facts(facts_of_stored_calls)
    register_agents(Agent.objects.all)
    for module in (PLANNING_TOOLS, QUESTION_TOOL, AGENT_TURN_TOOL):
        registry.register_module(module, lambda: True)
    for module in PLANNER_TOOLS:
        registry.register_module(module, is_configured)
