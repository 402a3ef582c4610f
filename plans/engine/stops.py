"""Stops where calls start: the checks of a claimed step and of a call, the wait, and its end once a stop is lifted."""

from collections.abc import Callable, Collection
from dataclasses import replace

from approvals.stops.standing import StandingStop, StopFacts, find_covering, standing_stops
from catalog.core import clock
from catalog.errors import Stopped
from catalog.inventory import snapshot
from catalog.models import Call
from plans.engine import hints
from plans.engine.work import PlanSnapshot, PreparedCall, snapshot_of
from plans.models import Step
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.requesters import RequesterIds
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

BATCH = 200


def require_step_not_stopped(tx: PlanTransaction, plan: PlanSnapshot, step: ClaimedStep) -> None:
    """Raise Stopped if a stop covers a claimed step, whatever it is about to do."""
    stops = tx.stops()
    if stops:
        call = Call.objects.filter(pk=step.call_pk).first() if step.call_pk is not None else None
        _require_uncovered(stops, _facts_of_step(plan, step.step_id, step.tool, _asker_of(call)))


def require_call_not_stopped(tx: PlanTransaction, plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> None:
    """Raise Stopped if a stop covers a call that is to start in this transaction."""
    stops = tx.stops()
    if stops:
        _require_uncovered(stops, facts_of_call(plan, step_id, prepared))


def require_not_stopped_now(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> None:
    """Raise Stopped if a stop covers a call of which something starts now, without a transaction.

    That is its preview, or the handler of a safe call that is stored when it has ended.
    """
    stops = standing_stops()
    if stops:
        _require_uncovered(stops, facts_of_call(plan, step_id, prepared))


def _require_uncovered(stops: list[StandingStop], facts: StopFacts) -> None:
    stop = find_covering(stops, facts)
    if stop is not None:
        raise Stopped(stop.public_id, stop.reason)


def require_requester_not_stopped(tool: str, asker: RequesterIds) -> None:
    """Raise Stopped if a stop covers at this moment what the requester does with the tool outside of a plan."""
    stops = standing_stops()
    if stops:
        _require_uncovered(stops, _facts(tool, [asker]))


def facts_of_call(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> StopFacts:
    return _facts_of_step(plan, step_id, prepared.target.tool.name, prepared.asker)


def _facts_of_step(plan: PlanSnapshot, step_id: int, tool: str, asker: RequesterIds | None) -> StopFacts:
    """Return the facts about a plan's step: those of its tool, and all for whom it is done."""
    askers = [plan.asker, replace(plan.asker, user_id=plan.author_id), *([asker] if asker is not None else [])]
    return _facts(tool, askers, lambda: _agent_of(plan.pk, step_id, tool))


def _facts(tool: str, askers: Collection[RequesterIds], find_agent: Callable[[], str] = str) -> StopFacts:
    target = snapshot.callable_tool(tool) if tool else None
    return StopFacts(
        people={each.user_id for each in askers},
        tokens={each.token_id for each in askers if each.token_id is not None},
        tool=tool,
        categories=target.tool.categories if target is not None else (),
        source=target.source if target is not None else "",
        find_agent=find_agent,
    )


def _agent_of(plan_pk: int, step_id: int, tool: str) -> str:
    """Return the name of the agent that a step runs or belongs to; empty if there is none, or no such step yet."""
    rows = Step.objects.filter(plan=plan_pk, step_id=step_id, tool=tool).values_list("agent", "parent__agent")
    return next((own or of_parent or "" for own, of_parent in rows), "")


def wait_for_lift(tx: PlanTransaction, step: ClaimedStep, stopped: Stopped) -> None:
    """Let a claimed step wait until the stop is lifted."""
    if statements.release_step(tx.cursor, step, StepWait(WaitingFor.STOP, step.call_pk, tx.now)):
        tx.record("step.waiting", step.step_id, waiting_for="stop", stop=stopped.stop)


def facts_of_stored_step(step: Step) -> StopFacts:
    """Return the facts about a step with its plan, the plan's token and its call loaded."""
    return _facts_of_step(snapshot_of(step.plan), step.step_id, step.tool, _asker_of(step.call))


def _asker_of(call: Call | None) -> RequesterIds | None:
    if call is None or call.requested_by_id is None:
        return None
    return RequesterIds(call.requested_by_id, call.token_id, "", "")


def wake_stopped_steps() -> int:
    """Make the steps ready that wait for a stop, unless one covers them still; return their number."""
    waiting = Step.objects.filter(status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.STOP, ready_at=None)
    woken, after = 0, 0
    while steps := list(waiting.filter(pk__gt=after).select_related("plan__token", "call").order_by("pk")[:BATCH]):
        stops = standing_stops()
        for step in steps:
            if find_covering(stops, facts_of_stored_step(step)) is None:
                woken += waiting.filter(pk=step.pk).update(ready_at=clock.now())
                hints.hint(step.plan_id)
        after = steps[-1].pk
    return woken
