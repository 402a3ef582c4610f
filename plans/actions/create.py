"""Create and start plans. Each action is one transaction with its events."""

import json
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from catalog.calls import vault
from catalog.calls.vault import SecretScope
from catalog.core import clock, tracing
from catalog.core.canonical_json import Json
from catalog.core.database import new_row
from catalog.core.transactions import move, retry_on_deadlock
from catalog.errors import ToolError
from catalog.inventory import snapshot
from catalog.secrets.placeholders import redact_text
from catalog.sources.loading import runs_in_client
from plans.agents.definitions import named_agents
from plans.documents.checking import check_plan
from plans.documents.reading import Problem
from plans.engine import finishing, hints
from plans.engine.refusals import require_plan_within_limits, tools_outside_limits
from plans.models import MemoryItem, Plan, Step, StepDependency
from plans.spec import PlanDocument
from plans.states import PlanStatus, StepStatus
from plans.store.plan_documents import step_columns, store_initial_memory, store_step_secrets
from plans.store.requesters import Requester
from plans.store.transactions import PlanTransaction, new_plan_transaction, plan_transaction


class PlanOrigin(Protocol):
    """Origin of a plan that was drafted from a request in words."""

    @property
    def request(self) -> str:
        """The request in words."""

    def become(self, plan: Plan) -> None:
        """Link the origin to a plan in the transaction that stores it. Raises Conflict if the origin has a plan."""


class PlanProblems(ToolError):
    """The plan cannot be stored; `problems` lists every reason."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("The plan has problems.")
        self.problems = problems


def check_document(
    document: Json | PlanDocument, *, by: Requester | None = None, changing_requester: Requester | None = None
) -> list[Problem]:
    """Check a document of any shape against the tools that can be called now; return its problems.

    The plan may name agents that `by` may use, or any agent if `by` is None. The limits of the token of `by` hold, and
    those of `changing_requester`, who changes a plan of `by`.
    """
    current = snapshot.callable_tools()
    disabled = {name for name, target in current.items() if not target.enabled}
    tools = {name: target.tool for name, target in current.items()}
    refused = {
        name: runs_in_client(name, target.source).message
        for name, target in current.items()
        if target.tool.runs_in_client
    }
    refused |= {
        name: why for each in (by, changing_requester) if each for name, why in tools_outside_limits(each.ids).items()
    }
    agents = partial(named_agents, by.user if by else None)
    return check_plan(document, tools, disabled=disabled, refused=refused, agents=agents)


@retry_on_deadlock
def create_plan(
    document: PlanDocument, *, by: Requester, original_plan: Plan | None = None, origin: PlanOrigin | None = None
) -> Plan:
    """Store a plan with its steps and memory, and start it unless its document says otherwise.

    Raises PlanProblems, and the errors of `origin.become`. The origin's request is stored with the plan.
    """
    problems = [problem for problem in check_document(document, by=by) if problem.severity == "error"]
    if problems:
        raise PlanProblems(problems)
    plan = new_plan(redact_text(document.goal), by)
    plan.owner, plan.can_modify = document.owner or "agent", document.can_modify
    plan.cloned_from, plan.request = original_plan, origin.request if origin else ""
    if document.deadline_seconds:
        plan.deadline_seconds = document.deadline_seconds
        plan.deadline_at = plan.created_at + timedelta(seconds=document.deadline_seconds)
    if document.budget:
        plan.budget_calls, plan.budget_seconds = document.budget.calls, document.budget.seconds
    with new_plan_transaction(plan) as tx:
        rows = Step.objects.bulk_create(
            Step(plan=plan, step_id=step.step_id, dependencies_left=len(step.dependencies), **step_columns(step))
            for step in document.steps
        )
        by_id = {row.step_id: row for row in rows}
        StepDependency.objects.bulk_create(
            StepDependency(step=by_id[step.step_id], needs=by_id[needed])
            for step in document.steps
            for needed in step.dependencies
        )
        store_step_secrets(plan.public_id, document.steps)
        memory = vault.redact_arguments(None, document.memory or {})
        vault.store_secrets(SecretScope(plan.public_id), memory.secrets)
        MemoryItem.objects.bulk_create(
            MemoryItem(plan=plan, key=key, value=json.dumps(value, ensure_ascii=False), at=tx.now)
            for key, value in json.loads(memory.text).items()
        )
        if document.memory:
            store_initial_memory(plan, document.steps)
        if origin:
            origin.become(plan)
        details: dict[str, Any] = {"cloned_from": original_plan.public_id} if original_plan else {}
        tx.record("plan.created", **details)
        if document.start:
            start_in_transaction(plan, tx)
    return plan


def new_plan(
    goal: str, by: Requester, kind: Plan.Kind = Plan.Kind.PLAN, *, status: PlanStatus = PlanStatus.PENDING
) -> Plan:
    values = {"goal": goal, "kind": kind, "status": status, "via": by.via, "session": by.session}
    plan = new_row(Plan, values | {"traceparent": tracing.current_traceparent(), "created_at": clock.now()})
    plan.author, plan.token = by.user, by.token
    return plan


@retry_on_deadlock
def start_plan(plan: Plan, *, by: Requester) -> None:
    """Start a plan. Raises Conflict if it has already started, and OutsideLimits if `by` may not use all its tools."""
    require_plan_within_limits(plan, by.ids)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        start_in_transaction(plan, tx)


def start_in_transaction(plan: Plan, tx: PlanTransaction) -> None:
    """Start a plan inside its transaction; a plan with nothing left to do ends at once."""
    new = Plan.objects.filter(pk=plan.pk, status=PlanStatus.PENDING)
    span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
    begun = {"started_at": tx.now} | ({"deadline_at": tx.now + span} if span else {})
    move(new, to=PlanStatus.IN_PROGRESS, otherwise="The plan has already started or has ended.", **begun)
    first = Step.objects.filter(plan=plan, status=StepStatus.PENDING, dependencies_left=0)
    ready = first.update(ready_at=tx.now)
    tx.record("plan.started")
    hints.hint(plan.pk, ready)
    if not ready:  # all steps were skipped, so nothing else would end the plan
        finishing.settle_plan(tx)
