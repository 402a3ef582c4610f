"""What a call's handler and its preview are given: the `ToolContext` of contract B."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from catalog.context import Budget, Deadline, Stop, ToolContext
from catalog.core import clock
from catalog.core.tracing import trace_id_of
from catalog.tools.class_tools import CallerContext
from plans import agent_steps
from plans.sessions.lists import StoredSession
from plans.work import Memory, Order, PlanFacts, Run


def for_handler(run: Run) -> ToolContext:
    """Build what a handler is given; the idempotency key is the same for every attempt of a call."""
    own = {"deadline": _deadline(run.plan, run.seconds, run.stop)}
    budget = replace(run.budget, seconds=run.seconds) if run.budget else Budget(run.seconds)
    return _context(
        run.plan,
        **_surroundings(run.plan, run.step.step_id, run.order, run.sent)
        | {"requested_by": run.call.requested_by_id, "budget": budget, **own, **agent_steps.surroundings(run.step)},
        call_id=run.call.public_id,
        idempotency_key=run.call.public_id,
        attempt=run.call.attempt,
        target_state=run.target_state,
    )


def for_preview(plan: PlanFacts, step_id: int, order: Order) -> ToolContext:
    """Build what a preview is given: there is no call yet."""
    timeout = order.target.tool.timeout
    own: dict[str, Any] = {"deadline": _deadline(plan, timeout), "budget": Budget(timeout)}
    return _context(plan, **_surroundings(plan, step_id, order, []), **own)


def _context(plan: PlanFacts, **fields: Any) -> ToolContext:
    """Make the context, with the ids that the calling program gave where it gave any."""
    if not plan.caller_ids:
        return ToolContext(**fields)
    given = json.loads(plan.caller_ids)
    return CallerContext(**fields | {"trace_id": given.get("trace_id") or fields["trace_id"]}, given=given)


def _surroundings(plan: PlanFacts, step_id: int, order: Order, sent: list[Any]) -> dict[str, Any]:
    memory, asker = Memory(plan.pk), order.asker or plan.asker
    session = StoredSession(asker, sent)
    if order.target.tool.is_async:  # it lives on an event loop, where nothing may be read from the database later
        session.read_ahead()
    return {
        "plan_id": plan.ref,
        "step_id": step_id,
        "requested_by": asker.user_id,
        "session": session,
        "trace_id": trace_id_of(plan.traceparent),
        "memory": dict(memory) if order.target.tool.is_async else memory,
    }


def _deadline(plan: PlanFacts, seconds: float, stop: Stop | None = None) -> Deadline:
    ends = clock.now() + timedelta(seconds=seconds)
    return Deadline(min(ends, plan.deadline_at) if plan.deadline_at else ends, stop)
