"""Stops where calls start: the checks of a claimed step and of a call, the wait, and its end once a stop is lifted.

Until the time of a lifted stop is counted for all that it held up, a ticker counts it again.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from approvals.models import Stop
from approvals.requests.deadlines import count_stops_of_open_requests
from approvals.stops.standing import StandingStop, StopFacts, find_covering, standing_stops
from approvals.stops.stopped_time import StoppableDeadline
from catalog.core import clock
from catalog.core.transactions import retry_on_deadlock, run_each
from catalog.errors import Stopped
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.signals import Fact
from plans.engine import hints
from plans.engine.hints import LocalExecutor
from plans.engine.work import PlanSnapshot, PreparedCall, snapshot_of
from plans.live.feed import notify_feeds
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.requesters import RequesterIds
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction, plan_transaction

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


def require_requester_not_stopped(tool: str, requester_ids: RequesterIds) -> None:
    """Raise Stopped if a stop covers at this moment what the requester does with the tool outside of a plan."""
    stops = standing_stops()
    if stops:
        _require_uncovered(stops, _facts(tool, [requester_ids]))


def tools_not_stopped(
    tools: Collection[str], requester_ids: RequesterIds, tx: PlanTransaction | None = None
) -> set[str]:
    """Return those of the tools whose calls for the requester no stop covers, at this moment or in a transaction."""
    stops = standing_stops() if tx is None else tx.stops()
    return {tool for tool in tools if not stops or find_covering(stops, _facts(tool, [requester_ids])) is None}


def facts_of_call(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> StopFacts:
    return _facts_of_step(plan, step_id, prepared.target.tool.name, prepared.asker)


def _facts_of_step(plan: PlanSnapshot, step_id: int, tool: str, requester_ids: RequesterIds | None) -> StopFacts:
    """Return the facts about a plan's step: those of its tool, and all for whom it is done."""
    askers = [
        plan.asker,
        replace(plan.asker, user_id=plan.author_id),
        *([requester_ids] if requester_ids is not None else []),
    ]
    return _facts(tool, askers, lambda: _agent_of(plan.pk, step_id, tool))


def _facts(tool: str, requester_ids: Collection[RequesterIds], find_agent: Callable[[], str] = str) -> StopFacts:
    target = snapshot.callable_tool(tool) if tool else None
    return StopFacts(
        people={each.user_id for each in requester_ids},
        tokens={each.token_id for each in requester_ids if each.token_id is not None},
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
    """Let a claimed step wait until the stop is lifted; make it ready at once if that has just happened."""
    stands = any(each.public_id == stopped.stop for each in tx.stops())
    wait = StepWait(WaitingFor.STOP, step.call_pk, tx.now, None if stands else tx.now)
    if statements.release_step(tx.cursor, step, wait):
        tx.record("step.waiting", step.step_id, waiting_for="stop", stop=stopped.stop)
        hints.hint(tx.plan_pk, int(not stands))


def cancel_stopped_calls(executor: LocalExecutor) -> None:
    """Ask the handlers to stop that run in the scope of a stop which says so."""
    running_calls = executor.calls_at_work()
    stops = [stop for stop in standing_stops() if stop.cancel_running] if running_calls else []
    if stops:
        executor.stop_calls(
            [
                each
                for each in running_calls
                if find_covering(stops, facts_of_call(each.plan, each.step.step_id, each.prepared)) is not None
            ]
        )


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """After a stop was set, ask what this process runs under it to stop, and show it to all who watch a page."""
    if fact.kind.startswith("stop."):
        transaction.on_commit(_tell, robust=True)


def _tell() -> None:
    notify_feeds("", 0)
    for executor in hints.local_executors():
        cancel_stopped_calls(executor)


def facts_of_stored_step(step: Step) -> StopFacts:
    """Return the facts about a step with its plan, the plan's token and its call loaded."""
    return _facts_of_step(snapshot_of(step.plan), step.step_id, step.tool, _asker_of(step.call))


def _asker_of(call: Call | None) -> RequesterIds | None:
    if call is None or call.requested_by_id is None:
        return None
    return RequesterIds(call.requested_by_id, call.token_id, "", "")


def facts_of_stored_call(call: Call) -> StopFacts:
    """Return the facts about a stored call of a plan."""
    step = Step.objects.select_related("plan__token", "call").filter(call=call.pk).first()
    if step is not None:
        return facts_of_stored_step(step)
    plan = Plan.objects.select_related("token").get(public_id=call.plan_ref)
    return _facts_of_step(snapshot_of(plan), int(call.step_ref), call.tool_name, _asker_of(call))


def count_deadline(plan: Plan, now: datetime) -> bool:
    """Move the deadline of a locked plan by the time that stops stood; return whether it was moved.

    A stop covers a plan that has a step in its scope which has not ended.
    """
    if plan.deadline_at is None:
        return False
    span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
    given = plan.deadline_at - timedelta(seconds=plan.stopped_seconds)
    began = given - span if span is not None else plan.started_at or plan.created_at
    before = StoppableDeadline(plan.deadline_at, began, plan.stopped_seconds)
    after = before.counted(lambda: _facts_of_plan(plan), now)
    if after == before:
        return False
    same = Plan.objects.filter(pk=plan.pk, deadline_at=plan.deadline_at, status=PlanStatus.IN_PROGRESS)
    if not same.update(deadline_at=after.at, stopped_seconds=after.moved_seconds):
        return False
    plan.deadline_at, plan.stopped_seconds = after.at, after.moved_seconds
    return True


def _facts_of_plan(plan: Plan) -> list[StopFacts]:
    steps = Step.objects.filter(plan=plan.pk, status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS))
    return [facts_of_stored_step(step) for step in steps.select_related("plan__token", "call")]


def with_counted_deadline(tx: PlanTransaction, plan: PlanSnapshot) -> PlanSnapshot:
    """Return the plan with its deadline moved by the time of stops, as of a step that is about to start."""
    if plan.deadline_at is None or not Stop.objects.filter(counted_at=None).exists():
        return plan
    row = Plan.objects.get(pk=plan.pk)
    count_deadline(row, tx.now)
    return replace(plan, deadline_at=row.deadline_at)


def resume_after_stops(now: datetime) -> int:
    """Count the time of lifted stops for all that they held up, and make its steps ready; return their number."""
    lifted = list(Stop.objects.filter(lifted_at__lte=now, counted_at=None))
    if not lifted:
        return 0
    counted = count_stops_of_open_requests(max(stop.lifted_at for stop in lifted if stop.lifted_at), now)
    plans = list(Plan.objects.filter(status=PlanStatus.IN_PROGRESS, deadline_at__isnull=False))
    counted = run_each(lambda plan: _count_plan(plan, now), plans) == len(plans) and counted
    woken = _wake_stopped_steps()
    if counted:
        Stop.objects.filter(pk__in=[stop.pk for stop in lifted]).update(counted_at=now)
    return woken


@retry_on_deadlock
def _count_plan(plan: Plan, now: datetime) -> bool:
    with plan_transaction(plan.pk, plan.public_id):
        count_deadline(Plan.objects.get(pk=plan.pk), now)
    return True


def _wake_stopped_steps() -> int:
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
