"""The engine's loop: claim → dispatch → finish. The only caller of `catalog.dispatch.pipeline`.

One transaction finishes a step and claims the next; handlers and previews run outside transactions. A worker may die
at any point: its steps are taken back when their leases expire (`plans.engine.recovery`).
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
from approvals.requests import deadlines, lifecycle, start_check
from approvals.requests.digests import ApprovalBinding
from approvals.requests.lifecycle import RequestProvenance
from approvals.reviews import edits
from catalog.core.transactions import retry_on_deadlock, retry_on_lock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.errors import Conflict, RateLimited, ToolDrifted, ToolError
from catalog.inventory import snapshot
from catalog.models import Call, CallRequester
from catalog.results import Preview
from plans.engine import (
    admission,
    calls,
    finishing,
    grants,
    hints,
    late_results,
    limits,
    recovery,
    reports,
    retries,
)
from plans.engine.admission import StartContext
from plans.engine.calls import requesters_of
from plans.engine.late_results import record_late_return
from plans.engine.limits import defer_if_queue_full
from plans.engine.lost_commits import recover_lost_commit, retry_while_database_is_away
from plans.engine.progress import recorded_progress
from plans.engine.work import (
    ApprovedCall,
    HeldCall,
    PlanSnapshot,
    PreparedCall,
    RateLimitedCall,
    RunningCall,
    StaleApproval,
    WorkItem,
    load_snapshot,
)
from plans.states import WaitingFor
from plans.store import statements
from plans.store.requesters import input_authors_of
from plans.store.statements import LeaseLost, StepWait
from plans.store.transactions import PlanTransaction, plan_transaction, record_call_event

INLINE_SECONDS = 2.0
INLINE_STEPS = 50


def _ignore_return() -> None:
    """Do nothing; the default for `TimeSlice.back`."""


@dataclass(slots=True)
class TimeSlice:
    """The time and steps for which a worker may stay with one plan; `back` is called when a tool's code returns."""

    owner: str
    stopping: threading.Event | None = None
    back: Callable[[], None] = _ignore_return
    abandoned: bool = False
    until: float = field(default_factory=lambda: monotonic() + INLINE_SECONDS)
    steps_left: int = INLINE_STEPS

    @property
    def is_stopping(self) -> bool:
        """True if the process is stopping: nothing new starts, and claimed work that has not begun is released."""
        return self.stopping is not None and self.stopping.is_set()

    def goes_on(self) -> bool:
        """Count one step; return False if the slice is used up, the thread abandoned or the process stopping."""
        self.steps_left -= 1
        if self.abandoned or self.is_stopping:
            return False
        return self.steps_left > 0 and monotonic() < self.until


@recover_lost_commit
@retry_on_deadlock
def claim_work(plan_pk: int, *, owner: str, turn: TimeSlice | None = None) -> WorkItem | None:
    """Claim the plan's next ready step and advance it as far as possible in one transaction.

    Claims nothing if the process began to stop, possibly while waiting for the plan's lock.
    """
    plan = load_snapshot(plan_pk)
    with plan_transaction(plan.pk, plan.ref) as tx:
        if turn is not None and turn.is_stopping:
            hints.hint(plan.pk)
            return None
        return _claim(tx, plan, owner)


def _claim_next(tx: PlanTransaction, plan: PlanSnapshot, turn: TimeSlice) -> WorkItem | None:
    """Claim the next step while the time slice lasts, and hint other workers at the other steps that became ready.

    The plan of a direct call rarely has another step, so that it is settled first: mostly that saves the claim.
    """
    if plan.is_call and finishing.settle_plan(tx):
        return None
    if turn.goes_on():
        work = _claim(tx, plan, turn.owner)
        hints.hint(plan.pk, tx.run_deferred() - 1)
        return work
    finishing.settle_plan(tx)
    hints.hint(plan.pk, max(1, tx.run_deferred()))
    return None


def _claim(tx: PlanTransaction, plan: PlanSnapshot, owner: str) -> WorkItem | None:
    """Claim the plan's next step and store it as the transaction's result; settle the plan if none is ready."""
    work = admission.next_work(tx, plan, owner=owner)
    if work is None:
        finishing.settle_plan(tx)
    tx.result = work
    return work


def advance(work: WorkItem, turn: TimeSlice) -> WorkItem | None:
    """Do one piece of work and return the next, of the same step or of another step claimed in the same transaction."""
    with reports.log_context(work):
        return _advance(work, turn)


def _advance(work: WorkItem, turn: TimeSlice) -> WorkItem | None:
    if isinstance(work, HeldCall):
        return _hold_call(work, turn)
    if isinstance(work, RateLimitedCall):
        return _count_rate(work, turn)
    if isinstance(work, ApprovedCall):
        return _start_or_renew(work, turn)
    if isinstance(work, StaleApproval):
        return _renew_approval(work, turn)
    if work.order.level == SafetyLevel.DANGEROUS and not restore_guard.ensure_start_checkpoint(work.call):
        return _postpone_started(work, turn)
    outcome = run_handler(work)
    turn.back()
    return retry_while_database_is_away(lambda: finish_and_claim_next(work, outcome, turn))


@recover_lost_commit
@retry_on_lock
def _postpone_started(run: RunningCall, turn: TimeSlice) -> WorkItem | None:
    """Postpone a started call without a checkpoint: after a database restore, nothing would show that it ran."""
    with plan_transaction(run.plan.pk, run.plan.ref) as tx:
        retries.postpone_started_call(tx, run)
        return _claim_next(tx, run.plan, turn)


def run_handler(run: RunningCall) -> pipeline.CallOutcome:
    """Run the handler outside of transactions, unless the lease was lost since the start."""
    if not late_results.holds_lease(run):
        return pipeline.expired_before_start(run.order.target.tool)
    with reports.handler_span(run), recorded_progress(run):
        order = run.order
        return pipeline.run_call(
            order.target.tool,
            order.arguments,
            calls.context_for_handler(run),
            partial(late_results.may_undo, run),
            secrets=order.secrets,
        )


def finish_and_claim_next(run: RunningCall, outcome: pipeline.CallOutcome, turn: TimeSlice) -> WorkItem | None:
    """Finish a step and claim the next one in one transaction; hint at other steps that became ready."""
    try:
        return _finish_and_claim_next(run, outcome, turn, optimistic=True)
    except LeaseLost:  # rolled back: repeat, and check the lease before writing anything
        return _finish_and_claim_next(run, outcome, turn, optimistic=False)


@recover_lost_commit
@retry_on_lock
def _finish_and_claim_next(
    run: RunningCall, outcome: pipeline.CallOutcome, turn: TimeSlice, *, optimistic: bool
) -> WorkItem | None:
    with plan_transaction(run.plan.pk, run.plan.ref) as tx:
        if turn.abandoned and record_late_return(tx, run, outcome):
            return None
        if run.plan.has_budget and statements.renew_lease(tx.cursor, run.step, until=tx.now):
            limits.spend_seconds(tx.cursor, run.plan, since=run.call.started_at, until=tx.now)
        finishing.finish(tx, run, outcome, optimistic=optimistic)
        limits.wake_others(tx.cursor, run.step.tool, run.plan.pk, now=tx.now)
        return _claim_next(tx, run.plan, turn)


def preview(plan: PlanSnapshot, step_id: int, order: PreparedCall) -> Preview | None:
    """Compute the preview of a call. Raises ToolError if the tool refuses the call."""
    context = calls.context_for_preview(plan, step_id, order)
    return pipeline.preview_call(order.target.tool, order.arguments, context, secrets=order.secrets)


def _preview(work: HeldCall | ApprovedCall | StaleApproval, order: PreparedCall, turn: TimeSlice) -> Preview | None:
    """Compute the preview for a claimed step. Raises Conflict if the thread was abandoned in the meantime."""
    try:
        return preview(work.plan, work.step.step_id, order)
    finally:
        turn.back()
        if turn.abandoned:
            raise Conflict("The preview took too long.")


def _count_rate(limited: RateLimitedCall, turn: TimeSlice) -> WorkItem | None:
    """Count a call against its requester's rate limit; admit it, or postpone it if the limit is reached."""
    try:
        counted: datetime | RateLimited = limits.count_call(limited.order, limited.plan)
    except RateLimited as refusal:
        counted = refusal
    return _admit_counted(limited, counted, turn)


@recover_lost_commit
@retry_on_lock
def _admit_counted(limited: RateLimitedCall, counted: datetime | RateLimited, turn: TimeSlice) -> WorkItem | None:
    with plan_transaction(limited.plan.pk, limited.plan.ref) as tx:
        if isinstance(counted, RateLimited):
            if not limits.wait_for_rate_limit(tx, limited.step, counted):
                finishing.refuse(tx, limited.step, counted)
            return _claim_next(tx, limited.plan, turn)
        if _release_if_paused(tx, limited, turn):
            transaction.on_commit(lambda: limits.give_back_count(limited.order, limited.plan, counted), robust=True)
            return None
        work = admission.admit(StartContext(tx, limited.plan, limited.step), limited.order, counted=True)
        tx.result = work
        return work or _claim_next(tx, limited.plan, turn)


def _hold_call(hold: HeldCall, turn: TimeSlice) -> WorkItem | None:
    """Compute the preview, then store the held call with its approval request; no thread waits for the decision."""
    try:
        return _store_hold(hold, _preview(hold, hold.order, turn), turn)
    except AuditUnavailable:
        return _postpone_start(hold, turn)
    except ToolError as error:
        return _refuse_work(hold, error, turn)


@recover_lost_commit
@retry_on_lock
def _store_hold(hold: HeldCall, preview: Preview | None, turn: TimeSlice) -> WorkItem | None:
    with plan_transaction(hold.plan.pk, hold.plan.ref) as tx:
        if hold.order.target.grant_limits is not None and _release_if_paused(tx, hold, turn):
            return None
        tx.result = run = grants.start_granted(tx, hold, preview)
        if run is not None:
            return run
        if not defer_if_queue_full(tx, hold, exactly=True):
            store_held(tx, hold, preview)
        return _claim_next(tx, hold.plan, turn)


@recover_lost_commit
@retry_on_lock
def _refuse_work(work: HeldCall | ApprovedCall | StaleApproval, error: ToolError, turn: TimeSlice) -> WorkItem | None:
    with plan_transaction(work.plan.pk, work.plan.ref) as tx:
        finishing.refuse(tx, work.step, error)
        return _claim_next(tx, work.plan, turn)


def store_held(tx: PlanTransaction, hold: HeldCall, preview: Preview | None) -> Call:
    """Store a held call, its requesters and its approval request. Raises Conflict if the lease was lost."""
    call = grants.store_as_held(tx, hold)
    if not statements.release_step(tx.cursor, hold.step, StepWait(WaitingFor.APPROVAL, call.pk, tx.now)):
        raise Conflict("Another worker took over this step while its preview was computed.")
    request = open_approval_request(tx, hold, call, preview)
    tx.record(
        "step.waiting", hold.step.step_id, waiting_for="approval", call=call.public_id, approval=request.public_id
    )
    return call


def open_approval_request(
    tx: PlanTransaction, hold: HeldCall, call: Call, preview: Preview | None, *, early_by: "User | None" = None
) -> ApprovalRequest:
    """Store the requesters of a held call and open its approval request; `early_by` requested it before its step."""
    people = requesters_of(hold.plan, hold.order, hold.step.pk)
    if call.requested_by_id is not None:
        people.add(call.requested_by_id)
    rows = [CallRequester(call=call, user_id=person) for person in people]
    CallRequester.objects.bulk_create(rows, ignore_conflicts=True)  # a grant's earlier start may have stored some
    background = RequestProvenance(early_by, input_authors_of(hold.step))
    request = lifecycle.open_request(call, rule=hold.rule, preview=preview, now=tx.now, provenance=background)
    if hold.order.replaces is not None:
        lifecycle.supersede(hold.order.replaces, request)
    return request


def _start_or_renew(resume: ApprovedCall, turn: TimeSlice) -> WorkItem | None:
    """Start an approved call if it still matches the approval; otherwise request a new approval."""
    call = resume.call
    try:
        order = calls.prepare_stored_call(call)
        return _start_approved(resume, order, _preview(resume, order, turn), turn)
    except ToolDrifted as error:
        return _release_drifted(resume, error, turn)
    except ToolError as error:
        return _refuse_work(resume, error, turn)
    except AuditUnavailable:
        return _postpone_start(resume, turn)
    except ApprovalExpired:
        return _expire_approval(resume, turn)
    except Invalidated as change:
        snapshot.drop_snapshot()
        return StaleApproval(resume.step, resume.plan, call, str(change), change.what)


@recover_lost_commit
@retry_on_lock
def _postpone_start(work: HeldCall | ApprovedCall, turn: TimeSlice) -> WorkItem | None:
    """Postpone a step whose start could not be written to the checkpoint file."""
    with plan_transaction(work.plan.pk, work.plan.ref) as tx:
        retries.postpone_start(tx, work.step)
        return _claim_next(tx, work.plan, turn)


@recover_lost_commit
@retry_on_lock
def _release_drifted(work: ApprovedCall | StaleApproval, error: ToolDrifted, turn: TimeSlice) -> WorkItem | None:
    """Leave a call whose tool has other code here to another process; fail it after MAX_RELEASES attempts."""
    with plan_transaction(work.plan.pk, work.plan.ref) as tx:
        if not error.may_run_elsewhere or not retries.release_for_other_worker(tx, work.step):
            finishing.refuse(tx, work.step, error)
        return _claim_next(tx, work.plan, turn)


@recover_lost_commit
@retry_on_lock
def _start_approved(
    resume: ApprovedCall, order: PreparedCall, preview: Preview | None, turn: TimeSlice
) -> RunningCall | None:
    """Compare and consume the approval and mark the call as running, in one transaction before the handler runs."""
    call, target = copy(resume.call), order.target
    state = (preview.state_token or "") if preview else ""
    binding = ApprovalBinding(target.fingerprint, target.implementation_digest, call.arguments, state)
    with plan_transaction(resume.plan.pk, resume.plan.ref) as tx:
        if not statements.renew_lease(tx.cursor, resume.step, until=calls.new_lease(resume.step.claimed_by, tx).until):
            raise Conflict("Another worker took over this step while its preview was computed.")
        if _release_if_paused(tx, resume, turn):
            return None
        limits.check_budget(tx.cursor, resume.plan)
        approved = start_check.consume(call, binding, now=tx.now)
        if not statements.start_call(tx.cursor, call.pk, fence=resume.step.attempt, now=tx.now):
            raise Conflict("The call was settled before it could start.")
        call.fence, call.attempt, call.started_at = resume.step.attempt, call.attempt + 1, tx.now
        record_call_event(tx, "call.started", call, level=order.level, attempt=call.attempt)
        budget = limits.spend_call(tx.cursor, resume.plan)
        edited = edits.summarise_edits(approved.request) if approved.number > 1 else None
        run = RunningCall(
            resume.step, resume.plan, call, order, target_state=state or None, budget=budget, edited=edited
        )
        tx.result = run
    return run


def _release_if_paused(
    tx: PlanTransaction, work: HeldCall | RateLimitedCall | ApprovedCall | StaleApproval, turn: TimeSlice
) -> bool:
    """Release a claimed step if its plan was paused or the process is stopping; return whether it was released.

    It is claimed again when the plan is resumed, or by another process.
    """
    if turn.is_stopping:
        recovery.release_claim(work)
        return True
    if not statements.is_paused(tx.cursor, tx.plan_pk):
        return False
    statements.release_step(tx.cursor, work.step, StepWait("", work.step.call_pk, tx.now, ready_at=tx.now))
    return True


@recover_lost_commit
@retry_on_lock
def _expire_approval(resume: ApprovedCall, turn: TimeSlice) -> WorkItem | None:
    """Expire a request whose run window has passed; its step fails with it."""
    with plan_transaction(resume.plan.pk, resume.plan.ref) as tx:
        deadlines.expire_if_due(resume.call.approval, tx.now)
        return _claim_next(tx, resume.plan, turn)


def _renew_approval(renewal: StaleApproval, turn: TimeSlice) -> WorkItem | None:
    """Invalidate the approval and admit the current call, in one transaction."""
    try:
        order = calls.prepare_replacement(renewal.call)
        preview = _preview(renewal, order, turn)
    except ToolDrifted as error:
        return _release_drifted(renewal, error, turn)
    except ToolError as error:
        return _refuse_work(renewal, error, turn)
    return _store_renewal(renewal, order, preview, turn)


@recover_lost_commit
@retry_on_lock
def _store_renewal(
    renewal: StaleApproval, order: PreparedCall, preview: Preview | None, turn: TimeSlice
) -> WorkItem | None:
    with plan_transaction(renewal.plan.pk, renewal.plan.ref) as tx:
        if _release_if_paused(tx, renewal, turn):
            return None
        lifecycle.invalidate(renewal.call.approval, reason=renewal.reason, drift=renewal.what)
        work = admission.admit(StartContext(tx, renewal.plan, renewal.step), order, counted=True)
        if isinstance(work, HeldCall):
            store_held(tx, work, preview)
            work = None
        tx.result = work
        return work or _claim_next(tx, renewal.plan, turn)


def abandon(work: WorkItem) -> None:
    """End the work of a thread whose tool exceeded its timeout or outlived its plan and cannot be stopped."""
    turn = TimeSlice(work.step.claimed_by, steps_left=0)
    if isinstance(work, RunningCall):
        ended = pipeline.cancelled_while_running if work.stop.is_set else pipeline.timed_out
        finish_and_claim_next(work, replace(ended(work.order.target.tool), left_running=True), turn)
        return
    _record_abandoned(work)


@recover_lost_commit
@retry_on_lock
def _record_abandoned(work: HeldCall | ApprovedCall | StaleApproval | RateLimitedCall) -> None:
    with plan_transaction(work.plan.pk, work.plan.ref) as tx:
        finishing.refuse(tx, work.step, ToolError("The preview timed out."))
        finishing.settle_plan(tx)
        hints.hint(work.plan.pk)
