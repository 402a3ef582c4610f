"""The engine: claim → dispatch → finish, and the only caller of `catalog.dispatch.pipeline` on behalf of anyone.

One transaction finishes a step and claims the next; handlers and previews run outside every transaction. A worker
may die at any line: what it held is taken back when its lease expires (`plans.engine.recovery`).
"""

import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import monotonic

from django.contrib.auth.models import User
from django.db import transaction

from approvals.audit import restore_guard
from approvals.errors import ApprovalExpired, AuditUnavailable, Invalidated
from approvals.models import ApprovalRequest
from approvals.requests import consumption, deadlines, lifecycle
from approvals.requests.digests import Binding
from approvals.requests.lifecycle import Background
from approvals.reviews import edits
from catalog.core.transactions import retried, retried_patiently
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.errors import Conflict, RateLimited, ToolDrifted, ToolError
from catalog.inventory import snapshot
from catalog.models import Call, CallRequester
from catalog.results import Preview
from plans.engine import (
    calls,
    finishing,
    grants,
    hints,
    late_results,
    limits,
    postponed_starts,
    recovery,
    reports,
    starting,
)
from plans.engine.grants import people_of
from plans.engine.late_results import come_back
from plans.engine.limits import lacks_room
from plans.engine.lost_commits import found_again, patiently
from plans.engine.starting import Start
from plans.engine.work import Hold, Limited, Order, PlanFacts, Renewal, Resume, Run, Work, plan_facts
from plans.states import WaitingFor
from plans.store import statements
from plans.store.requesters import input_authors_of
from plans.store.statements import LeaseLost, Parking
from plans.store.transactions import Recording, recording, tell

INLINE_SECONDS = 2.0
INLINE_STEPS = 50


def _nobody_watches() -> None:
    """Stand in where no one waits for a tool's code to return."""


@dataclass(slots=True)
class Turn:
    """How long one worker may stay with one plan before others get theirs; `back` tells that a tool's code returned."""

    owner: str
    stopping: threading.Event | None = None
    back: Callable[[], None] = _nobody_watches
    abandoned: bool = False
    until: float = field(default_factory=lambda: monotonic() + INLINE_SECONDS)
    steps_left: int = INLINE_STEPS

    @property
    def is_stopping(self) -> bool:
        """Whether the process was told to stop: nothing starts any more, and what has not begun is let go."""
        return self.stopping is not None and self.stopping.is_set()

    def goes_on(self) -> bool:
        """Count one more step; False when the turn is over, the thread written off or the process stopping."""
        self.steps_left -= 1
        if self.abandoned or self.is_stopping:
            return False
        return self.steps_left > 0 and monotonic() < self.until


@found_again
@retried
def claim(plan_pk: int, *, owner: str, turn: Turn | None = None) -> Work | None:
    """Claim the plan's next ready step and take it as far as it goes inside one transaction.

    Claims nothing for a turn whose process was told to stop, perhaps while it waited for the plan's lock.
    """
    plan = plan_facts(plan_pk)
    with recording(plan.pk, plan.ref) as batch:
        if turn is not None and turn.is_stopping:
            hints.hint(plan.pk)
            return None
        return _claim(batch, plan, owner)


def _next(batch: Recording, plan: PlanFacts, turn: Turn) -> Work | None:
    """Claim the next step while the turn goes on, and tell other workers of the rest of what became ready."""
    if turn.goes_on():
        work = _claim(batch, plan, turn.owner)
        hints.hint(plan.pk, batch.run_deferred() - 1)
        return work
    finishing.settle_plan(batch)
    hints.hint(plan.pk, max(1, batch.run_deferred()))
    return None


def _claim(batch: Recording, plan: PlanFacts, owner: str) -> Work | None:
    """Claim the plan's next step, which the transaction hands on; end the plan when none is left."""
    work = starting.next_work(batch, plan, owner=owner)
    if work is None:
        finishing.settle_plan(batch)
    batch.leads_to = work
    return work


def advance(work: Work, turn: Turn) -> Work | None:
    """Do one piece of work and return the next: of the same step, or of the plan, claimed in the same transaction."""
    with reports.about(work):
        return _advance(work, turn)


def _advance(work: Work, turn: Turn) -> Work | None:
    if isinstance(work, Hold):
        return _hold(work, turn)
    if isinstance(work, Limited):
        return _count(work, turn)
    if isinstance(work, Resume):
        return _resume(work, turn)
    if isinstance(work, Renewal):
        return _ask_again(work, turn)
    if work.order.level == SafetyLevel.DANGEROUS and not restore_guard.witnesses_start(work.call):
        return _put_back(work, turn)
    outcome = perform(work)
    turn.back()
    return patiently(lambda: end(work, outcome, turn))


@found_again
@retried_patiently
def _put_back(run: Run, turn: Turn) -> Work | None:
    """Let a call wait whose start no checkpoint tells of: a database set back would know nothing of it."""
    with recording(run.plan.pk, run.plan.ref) as batch:
        postponed_starts.put_off_started(batch, run)
        return _next(batch, run.plan, turn)


def perform(run: Run) -> pipeline.Outcome:
    """Run the handler, outside every transaction, unless the lease was lost since the start."""
    if not late_results.is_ours(run):
        return pipeline.too_late(run.order.target.tool)
    with reports.calling(run):
        order = run.order
        return pipeline.run(
            order.target.tool,
            order.arguments,
            calls.context_for_handler(run),
            partial(late_results.may_undo, run),
            secrets=order.secrets,
        )


def end(run: Run, outcome: pipeline.Outcome, turn: Turn) -> Work | None:
    """Finish a step and claim the next one in one transaction; hint at what else became ready."""
    try:
        return _end(run, outcome, turn, optimistic=True)
    except LeaseLost:  # everything was rolled back: do it again, looking at the lease before anything is written
        return _end(run, outcome, turn, optimistic=False)


@found_again
@retried_patiently
def _end(run: Run, outcome: pipeline.Outcome, turn: Turn, *, optimistic: bool) -> Work | None:
    with recording(run.plan.pk, run.plan.ref) as batch:
        if turn.abandoned and come_back(batch, run, outcome):
            return None
        if run.plan.has_budget and statements.renew_lease(batch.cursor, run.step, until=batch.now):
            limits.spend_seconds(batch.cursor, run.plan, since=run.call.started_at, until=batch.now)
        finishing.finish(batch, run, outcome, optimistic=optimistic)
        limits.wake_others(batch.cursor, run.step.tool, run.plan.pk, now=batch.now)
        return _next(batch, run.plan, turn)


def preview(plan: PlanFacts, step_id: int, order: Order) -> Preview | None:
    """Compute what a call would do. Raises ToolError when the tool already knows that it cannot."""
    context = calls.context_for_preview(plan, step_id, order)
    return pipeline.preview(order.target.tool, order.arguments, context, secrets=order.secrets)


def _preview(work: Hold | Resume | Renewal, order: Order, turn: Turn) -> Preview | None:
    """Compute the preview for a claimed step. Raises Conflict when the thread was written off meanwhile."""
    try:
        return preview(work.plan, work.step.step_id, order)
    finally:
        turn.back()
        if turn.abandoned:
            raise Conflict("The preview came back too late.")


def _count(limited: Limited, turn: Turn) -> Work | None:
    """Count a call against its caller's limit; admit it, or put it off when the limit is reached."""
    try:
        counted: datetime | RateLimited = limits.count_call(limited.order, limited.plan)
    except RateLimited as refusal:
        counted = refusal
    return _store_counted(limited, counted, turn)


@found_again
@retried_patiently
def _store_counted(limited: Limited, counted: datetime | RateLimited, turn: Turn) -> Work | None:
    with recording(limited.plan.pk, limited.plan.ref) as batch:
        if isinstance(counted, RateLimited):
            if not limits.wait_for_rate_limit(batch, limited.step, counted):
                finishing.refuse(batch, limited.step, counted)
            return _next(batch, limited.plan, turn)
        if _is_set_aside(batch, limited, turn):
            transaction.on_commit(lambda: limits.give_back_count(limited.order, limited.plan, counted), robust=True)
            return None
        work = starting.admit(Start(batch, limited.plan, limited.step), limited.order, counted=True)
        batch.leads_to = work
        return work or _next(batch, limited.plan, turn)


def _hold(hold: Hold, turn: Turn) -> Work | None:
    """Compute the preview, then store the held call with its request: from here on only the database waits."""
    try:
        return _store_hold(hold, _preview(hold, hold.order, turn), turn)
    except AuditUnavailable:
        return _put_off(hold, turn)
    except ToolError as error:
        return _refuse(hold, error, turn)


@found_again
@retried_patiently
def _store_hold(hold: Hold, shown: Preview | None, turn: Turn) -> Work | None:
    with recording(hold.plan.pk, hold.plan.ref) as batch:
        if hold.order.target.grant_limits is not None and _is_set_aside(batch, hold, turn):
            return None
        batch.leads_to = run = grants.start_granted(batch, hold, shown)
        if run is not None:
            return run
        if not lacks_room(batch, hold, exactly=True):
            store_held(batch, hold, shown)
        return _next(batch, hold.plan, turn)


@found_again
@retried_patiently
def _refuse(work: Hold | Resume | Renewal, error: ToolError, turn: Turn) -> Work | None:
    with recording(work.plan.pk, work.plan.ref) as batch:
        finishing.refuse(batch, work.step, error)
        return _next(batch, work.plan, turn)


def store_held(batch: Recording, hold: Hold, shown: Preview | None) -> Call:
    """Store a held call, its requester set and its approval request. Raises Conflict when the lease was lost."""
    call = grants.held_call(batch, hold)
    if not statements.park_step(batch.cursor, hold.step, Parking(WaitingFor.APPROVAL, call.pk, batch.now)):
        raise Conflict("The step was taken over while its preview was computed.")
    asked = ask_people(batch, hold, call, shown)
    batch.add("step.waiting", hold.step.step_id, waiting_for="approval", call=call.public_id, approval=asked.public_id)
    return call


def ask_people(
    batch: Recording, hold: Hold, call: Call, shown: Preview | None, *, early_by: "User | None" = None
) -> ApprovalRequest:
    """Open the request of a held call that is stored, with its requester set; `early_by`: who asks before its step."""
    people = people_of(hold.plan, hold.order, hold.step.pk)
    if call.requested_by_id is not None:
        people.add(call.requested_by_id)
    rows = [CallRequester(call=call, user_id=person) for person in people]
    CallRequester.objects.bulk_create(rows, ignore_conflicts=True)  # a grant that let it start before has kept some
    background = Background(early_by, input_authors_of(hold.step))
    request = lifecycle.open_request(call, rule=hold.rule, preview=shown, now=batch.now, background=background)
    if hold.order.replaces is not None:
        lifecycle.supersede(hold.order.replaces, request)
    return request


def _resume(resume: Resume, turn: Turn) -> Work | None:
    """Compare an approved call with what was approved; start it, or ask again."""
    call = resume.call
    try:
        order = calls.order_of(call)
        return _start_approved(resume, order, _preview(resume, order, turn), turn)
    except ToolDrifted as error:
        return _leave(resume, error, turn)
    except ToolError as error:
        return _refuse(resume, error, turn)
    except AuditUnavailable:
        return _put_off(resume, turn)
    except ApprovalExpired:
        return _expire(resume, turn)
    except Invalidated as change:
        snapshot.forget()
        return Renewal(resume.step, resume.plan, call, str(change), change.what)


@found_again
@retried_patiently
def _put_off(work: Hold | Resume, turn: Turn) -> Work | None:
    """Let a step wait whose start could not be witnessed."""
    with recording(work.plan.pk, work.plan.ref) as batch:
        postponed_starts.put_off(batch, work.step)
        return _next(batch, work.plan, turn)


@found_again
@retried_patiently
def _leave(work: Resume | Renewal, error: ToolDrifted, turn: Turn) -> Work | None:
    """Leave a call whose tool is other code here to processes that have the right one; at last the approval is void."""
    with recording(work.plan.pk, work.plan.ref) as batch:
        if not starting.leave_to_other_worker(batch, work.step):
            finishing.refuse(batch, work.step, error)
        return _next(batch, work.plan, turn)


@found_again
@retried_patiently
def _start_approved(resume: Resume, order: Order, shown: Preview | None, turn: Turn) -> Run | None:
    """The start transaction: the approval is compared and consumed, the call is running. Only then does it run."""
    call, target = copy(resume.call), order.target
    state = (shown.state_token or "") if shown else ""
    binding = Binding(target.fingerprint, target.implementation_digest, call.arguments, state)
    with recording(resume.plan.pk, resume.plan.ref) as batch:
        if not statements.renew_lease(
            batch.cursor, resume.step, until=calls.new_lease(resume.step.claimed_by, batch).until
        ):
            raise Conflict("The step was taken over while its preview was computed.")
        if _is_set_aside(batch, resume, turn):
            return None
        limits.check_budget(batch.cursor, resume.plan)
        approved = consumption.consume(call, binding, now=batch.now)
        if not statements.start_call(batch.cursor, call.pk, fence=resume.step.attempt, now=batch.now):
            raise Conflict("The call was settled before it could start.")
        call.fence, call.attempt, call.started_at = resume.step.attempt, call.attempt + 1, batch.now
        tell(batch, "call.started", call, level=order.level, attempt=call.attempt)
        budget = limits.spend_call(batch.cursor, resume.plan)
        edited = edits.edited_by_people(approved.request) if approved.number > 1 else None
        run = Run(resume.step, resume.plan, call, order, target_state=state or None, budget=budget, edited=edited)
        batch.leads_to = run
    return run


def _is_set_aside(batch: Recording, work: Hold | Limited | Resume | Renewal, turn: Turn) -> bool:
    """Give a step back whose plan was paused after it was claimed, or whose process was told to stop.

    It is claimed again when the plan goes on, or by another process.
    """
    if turn.is_stopping:
        recovery.let_go(work)
        return True
    if not statements.is_paused(batch.cursor, batch.plan_pk):
        return False
    statements.park_step(batch.cursor, work.step, Parking("", work.step.call_pk, batch.now, ready_at=batch.now))
    return True


@found_again
@retried_patiently
def _expire(resume: Resume, turn: Turn) -> Work | None:
    """The run window of an approval has passed: the request expires, and its step fails with it."""
    with recording(resume.plan.pk, resume.plan.ref) as batch:
        deadlines.expire_if_due(resume.call.approval, batch.now)
        return _next(batch, resume.plan, turn)


def _ask_again(renewal: Renewal, turn: Turn) -> Work | None:
    """Void the approval and admit the call as it is now, in one transaction."""
    try:
        order = calls.renewal_of(renewal.call)
        shown = _preview(renewal, order, turn)
    except ToolDrifted as error:
        return _leave(renewal, error, turn)
    except ToolError as error:
        return _refuse(renewal, error, turn)
    return _store_renewal(renewal, order, shown, turn)


@found_again
@retried_patiently
def _store_renewal(renewal: Renewal, order: Order, shown: Preview | None, turn: Turn) -> Work | None:
    with recording(renewal.plan.pk, renewal.plan.ref) as batch:
        if _is_set_aside(batch, renewal, turn):
            return None
        lifecycle.invalidate(renewal.call.approval, reason=renewal.reason, what=renewal.what)
        work = starting.admit(Start(batch, renewal.plan, renewal.step), order, counted=True)
        if isinstance(work, Hold):
            store_held(batch, work, shown)
            work = None
        batch.leads_to = work
        return work or _next(batch, renewal.plan, turn)


def abandon(work: Work) -> None:
    """End the work of a thread whose tool is past its time, or its plan, and cannot be stopped: it is left running."""
    turn = Turn(work.step.claimed_by, steps_left=0)
    if isinstance(work, Run):
        ended = pipeline.stopped if work.stop.told else pipeline.timed_out
        end(work, replace(ended(work.order.target.tool), left_running=True), turn)
        return
    _give_up(work)


@found_again
@retried_patiently
def _give_up(work: Hold | Resume | Renewal | Limited) -> None:
    with recording(work.plan.pk, work.plan.ref) as batch:
        finishing.refuse(batch, work.step, ToolError("The tool did not say in time what the call would do."))
        finishing.settle_plan(batch)
        hints.hint(work.plan.pk)
