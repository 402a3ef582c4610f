"""Stops where calls start: the checks of a claimed step and of a call, the wait, and its end once a stop is lifted.

Until the time of a lifted stop is counted for all that it held up, a ticker counts it again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q

from approvals.envelopes.services import end_stopped
from approvals.models import Envelope, Stop
from approvals.requests.deadlines import count_stops_of_open_requests
from approvals.stops.standing import StandingStop, StopFacts, find_covering, standing_stops
from approvals.stops.stopped_time import StoppableDeadline, StoppableWork, move_deadlines, stops_since
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
COUNTED_PER_TICK = 50
PLANS_COUNTED_AT_ONCE = 20
"""Plans whose steps are compared with stops by the same query; each may have hundreds."""
STEP_RELATED = ("plan__token", "call", "parent")
NOT_ENDED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


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
    """Return the facts about a plan's step: those of its tool, and all for whom it is done.

    Its agent is the one that it runs or belongs to; it has none if it is not stored yet.
    """
    askers = [
        plan.asker,
        replace(plan.asker, user_id=plan.author_id),
        *([requester_ids] if requester_ids is not None else []),
    ]

    def find_agent() -> str:
        rows = Step.objects.filter(plan=plan.pk, step_id=step_id, tool=tool).values_list("agent", "parent__agent")
        return next((own or of_parent or "" for own, of_parent in rows), "")

    return _facts(tool, askers, find_agent)


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
    """After a stop was set, ask what this process runs under it to stop, show it to all, and end its envelopes.

    That is after the commit: nothing that fails there keeps the stop from being set, and a ticker does it again.
    """
    if fact.kind.startswith("stop."):
        transaction.on_commit(_tell, robust=True)


def _tell() -> None:
    notify_feeds("", 0)
    for executor in hints.local_executors():
        cancel_stopped_calls(executor)
    end_stopped()  # last: it waits for locks


def facts_of_stored_step(step: Step) -> StopFacts:
    """Return the facts about a step with its plan, the plan's token, its call and its parent loaded."""
    facts = _facts_of_step(snapshot_of(step.plan), step.step_id, step.tool, _asker_of(step.call))
    return replace(facts, find_agent=lambda: step.agent or (step.parent.agent if step.parent is not None else ""))


def _asker_of(call: Call | None) -> RequesterIds | None:
    if call is None or call.requested_by_id is None:
        return None
    return RequesterIds(call.requested_by_id, call.token_id, "", "")


def facts_of_stored_calls(stored_calls: Collection[Call]) -> dict[int, StopFacts]:
    """Return the facts about stored calls of plans by the keys of the calls."""
    steps = Step.objects.filter(call__in=[call.pk for call in stored_calls]).select_related(*STEP_RELATED)
    found = {step.call.pk: facts_of_stored_step(step) for step in steps if step.call is not None}
    others = [call for call in stored_calls if call.pk not in found]  # a later call took their place in the step
    refs = {call.plan_ref for call in others}
    plans = {plan.public_id: plan for plan in Plan.objects.filter(public_id__in=refs).select_related("token")}
    for call in others:
        plan = snapshot_of(plans[call.plan_ref])
        found[call.pk] = _facts_of_step(plan, int(call.step_ref), call.tool_name, _asker_of(call))
    return found


def makers_of_envelope(envelope: Envelope) -> list[StopFacts]:
    """Return the facts, without a tool, about all for whom and by which calls of an envelope are made.

    Those are the makers of the proposal, and of what is in the envelope's plan or session so far.
    """
    call = envelope.call
    people = {envelope.requester_id, *call.requesters.values_list("user_id", flat=True)}
    tokens = {each for each in (envelope.token_id, call.token_id) if each is not None}
    own = Plan.objects.filter(public_id=call.plan_ref)
    plans = Plan.objects.none()
    if envelope.scope == Envelope.Scope.PLAN:
        plans = Plan.objects.filter(public_id=envelope.scope_ref)
    elif envelope.scope == Envelope.Scope.SESSION:
        mine = Q(token__user=envelope.requester_id) | Q(token=None, author=envelope.requester_id)
        plans = Plan.objects.filter(mine, session=envelope.scope_ref)
    for author, token in (own | plans).values_list("author", "token").distinct():
        people.add(author)
        if token is not None:
            tokens.add(token)
    steps = Step.objects.filter(Q(call=call) | Q(plan__in=plans))
    names = {each for row in steps.values_list("agent", "parent__agent").distinct() for each in row if each}
    return [StopFacts(people, tokens, find_agent=partial(str, name)) for name in names or {""}]


def count_deadline(plan: Plan, now: datetime) -> bool:
    """Move the deadline of a locked plan by the time that stops stood; return whether it was moved.

    A stop holds up a plan as long as a step in its scope has not ended.
    """
    before = _stoppable_deadline(plan)
    if before is None:
        return False
    after = before.counted(lambda since: _work_of_plans([plan], since)[plan.pk], now)
    if after == before:
        return False
    same = Plan.objects.filter(pk=plan.pk, deadline_at=before.at, status=PlanStatus.IN_PROGRESS)
    if not same.update(deadline_at=after.at, stopped_seconds=after.moved_seconds):
        return False
    plan.deadline_at, plan.stopped_seconds = after.at, after.moved_seconds
    return True


def _stoppable_deadline(plan: Plan) -> StoppableDeadline | None:
    if plan.deadline_at is None:
        return None
    span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
    given = plan.deadline_at - timedelta(seconds=plan.stopped_seconds)
    began = given - span if span is not None else plan.started_at or plan.created_at
    return StoppableDeadline(plan.deadline_at, began, plan.stopped_seconds)


def _work_of_plans(plans: Collection[Plan], since: datetime) -> dict[int, list[StoppableWork]]:
    """Return the work of plans by their keys: all steps that had not ended at a moment."""
    work: dict[int, list[StoppableWork]] = {plan.pk: [] for plan in plans}
    steps = Step.objects.filter(Q(status__in=NOT_ENDED) | Q(completed_at__gt=since), plan__in=work)
    for step in steps.select_related(*STEP_RELATED):
        ended_at = None if step.status in NOT_ENDED else step.completed_at
        work[step.plan_id].append(StoppableWork(facts_of_stored_step(step), ended_at))
    return work


def with_counted_deadline(tx: PlanTransaction, plan: PlanSnapshot) -> PlanSnapshot:
    """Return the plan with its deadline moved by the time of stops, as of a step that is about to start."""
    if plan.deadline_at is None or not Stop.objects.filter(counted_at=None).exists():
        return plan
    row = Plan.objects.get(pk=plan.pk)
    count_deadline(row, tx.now)
    return replace(plan, deadline_at=row.deadline_at)


def resume_after_stops(now: datetime) -> int:
    """Make the steps ready that lifted stops held up, then count the time of those; return the number of rows changed.

    The steps do not wait for the count: whatever starts or ends counts the time for itself. About COUNTED_PER_TICK
    deadlines are moved at once, so that the ticker's other work does not wait for them either.
    """
    lifted = list(Stop.objects.filter(lifted_at__lte=now, counted_at=None))
    if not lifted:
        return 0
    woken = _wake_stopped_steps()
    until = max(stop.lifted_at for stop in lifted if stop.lifted_at)
    of_requests, all_requests = count_stops_of_open_requests(until, now, COUNTED_PER_TICK)
    of_plans, all_plans = _count_plans(until, now, COUNTED_PER_TICK - of_requests)
    if all_requests and all_plans:
        Stop.objects.filter(pk__in=[stop.pk for stop in lifted]).update(counted_at=now)
    return woken + of_requests + of_plans


def _count_plans(until: datetime, now: datetime, limit: int) -> tuple[int, bool]:
    """Do for the deadlines of plans what `count_stops_of_open_requests` does for those of requests."""
    rows = Plan.objects.filter(status=PlanStatus.IN_PROGRESS, deadline_at__isnull=False, created_at__lt=until)
    find_due, count = partial(_with_stopped_time, now=now), partial(_count_plan, now=now)
    return move_deadlines(rows, PLANS_COUNTED_AT_ONCE, limit, find_due, count)


def _with_stopped_time(plans: Collection[Plan], now: datetime) -> list[Plan]:
    """Return those of the plans whose deadlines move if the time of stops is counted."""
    deadlines = {each.pk: deadline for each in plans if (deadline := _stoppable_deadline(each)) is not None}
    stops = stops_since(min((each.began for each in deadlines.values()), default=now))
    if not stops:
        return []
    work = _work_of_plans(plans, stops[0].since)
    moved = {pk for pk, each in deadlines.items() if each.counted_for(work[pk], stops, now) != each}
    return [each for each in plans if each.pk in moved]


@retry_on_deadlock
def _count_plan(plan: Plan, now: datetime) -> bool:
    with plan_transaction(plan.pk, plan.public_id):
        return count_deadline(Plan.objects.get(pk=plan.pk), now)


def _wake_stopped_steps() -> int:
    """Make the steps ready that wait for a stop, unless one covers them still; return their number."""
    waiting = Step.objects.filter(status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.STOP, ready_at=None)
    woken, after = 0, 0
    while steps := list(waiting.filter(pk__gt=after).select_related(*STEP_RELATED).order_by("pk")[:BATCH]):
        stops = standing_stops()

        def wake(step: Step, stops: Sequence[StandingStop] = stops) -> bool:
            if find_covering(stops, facts_of_stored_step(step)) is not None:
                return False
            hints.hint(step.plan_id)
            return bool(waiting.filter(pk=step.pk).update(ready_at=clock.now()))

        woken += run_each(wake, steps)
        after = steps[-1].pk
    return woken
