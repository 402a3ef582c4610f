"""The engine's loop: claim a step, do its work, finish it and claim the next.

One transaction finishes a step and claims the next; handlers and previews run outside transactions.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import monotonic

from django.db import transaction

from approvals.audit import checkpoints
from approvals.errors import AuditUnavailable
from catalog.core.transactions import retry_on_deadlock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.errors import Conflict, RateLimited, Stopped, ToolError
from plans.engine import (
    admission,
    calls,
    finishing,
    grants,
    hints,
    holding,
    late_results,
    limits,
    recovery,
    reports,
    retries,
    stops,
)
from plans.engine.progress import recorded_progress
from plans.engine.start import StartContext
from plans.engine.work import (
    HeldCall,
    PlanSnapshot,
    PreparedCall,
    RateLimitedCall,
    RunningCall,
    WorkItem,
    WorkWithPreview,
    load_snapshot,
)
from plans.store import statements
from plans.store.statements import LeaseLost, StepWait
from plans.store.transactions import (
    PlanTransaction,
    plan_transaction,
    recover_lost_commit,
    retry_while_database_is_away,
    transact,
)

INLINE_SECONDS = 2.0
INLINE_STEPS = 50


@dataclass(slots=True)
class TimeSlice:
    """The time and number of steps that a worker may spend on one plan; `back` is called when a tool's code returns."""

    owner: str
    stopping: threading.Event | None = None
    back: Callable[[], None] = lambda: None
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
def claim_work(plan_pk: int, *, owner: str, time_slice: TimeSlice | None = None) -> WorkItem | None:
    """Claim the plan's next ready step and advance it as far as possible in one transaction.

    Claims nothing if the process began to stop, possibly while waiting for the plan's lock.
    """
    plan = load_snapshot(plan_pk)
    with plan_transaction(plan.pk, plan.ref) as tx:
        if time_slice is not None and time_slice.is_stopping:
            hints.hint(plan.pk)
            return None
        tx.result = work = _claim(tx, plan, owner, is_fresh=True)
    return work


def _claim(tx: PlanTransaction, plan: PlanSnapshot, owner: str, *, is_fresh: bool = False) -> WorkItem | None:
    work = admission.next_work(tx, plan, owner=owner, is_fresh=is_fresh)
    if work is None:
        finishing.settle_plan(tx)
    return work


def _claim_next(tx: PlanTransaction, plan: PlanSnapshot, time_slice: TimeSlice) -> WorkItem | None:
    """Claim the next step while the time slice lasts, and hint other workers at the other steps that became ready.

    The plan of a direct call is settled first, because it rarely has another step to claim.
    """
    if plan.is_call and finishing.settle_plan(tx):
        return None
    if time_slice.goes_on():
        work = _claim(tx, plan, time_slice.owner)
        hints.hint(plan.pk, tx.run_deferred() - 1)
        return work
    finishing.settle_plan(tx)
    hints.hint(plan.pk, max(1, tx.run_deferred()))
    return None


def _conclude(
    work: WorkItem, time_slice: TimeSlice, act: Callable[[PlanTransaction], WorkItem | None]
) -> WorkItem | None:
    """Run `act` in a transaction of the work's plan. If it returns no work, claim the next step in the transaction."""
    return transact(work.plan.pk, work.plan.ref, lambda tx: act(tx) or _claim_next(tx, work.plan, time_slice))


def advance(work: WorkItem, time_slice: TimeSlice) -> WorkItem | None:
    """Do one piece of work and return the next, for the same step or for a step claimed in the same transaction."""
    with reports.log_context(work):
        if not isinstance(work, RunningCall):
            return _hold_or_start(work, time_slice)
        if work.prepared.level == SafetyLevel.DANGEROUS and not checkpoints.ensure_start_checkpoint(work.call):
            # After a database restore, nothing would show that the call ran.
            return _conclude(work, time_slice, lambda tx: retries.postpone_started_call(tx, work))
        outcome = run_handler(work)
        time_slice.back()
        return retry_while_database_is_away(lambda: finish_and_claim_next(work, outcome, time_slice))


def _hold_or_start(work: RateLimitedCall | WorkWithPreview, time_slice: TimeSlice) -> WorkItem | None:
    """Count or preview a claimed call; then hold, start, postpone or refuse it in a transaction of its own."""
    counted_at: datetime | None = None
    try:
        if isinstance(work, RateLimitedCall):
            prepared, counted_at = work.prepared, limits.count_call(work.prepared, work.plan)
        else:
            prepared = holding.prepare(work)
            try:
                preview = holding.compute_preview(work.plan, work.step.step_id, prepared)
            finally:
                time_slice.back()
                if time_slice.abandoned:
                    raise Conflict("The preview took too long.")

        def act(tx: PlanTransaction) -> WorkItem | None:
            may_start = not isinstance(work, HeldCall) or work.call is not None or work.rule.looks_back
            may_start = may_start or grants.may_be_covered(work.plan, prepared)
            if may_start and (_release_if_paused(tx, work, time_slice) or _release_if_stopped(tx, work, prepared)):
                if counted_at is not None:
                    give_back = partial(limits.give_back_count, prepared, work.plan, counted_at)
                    transaction.on_commit(give_back, robust=True)
                return None
            if may_start and not statements.renew_lease(
                tx.cursor, work.step, until=calls.new_lease(work.step.claimed_by, tx).until
            ):  # before anything is decided: a worker without a lease writes nothing
                raise Conflict("Another worker took over this step before its call could start.")
            if isinstance(work, RateLimitedCall):
                return admission.admit(StartContext(tx, work.plan, work.step), prepared, counted=True)
            return holding.hold_or_start(tx, work, prepared, preview)

        return _conclude(work, time_slice, act)
    except AuditUnavailable:
        return _conclude(work, time_slice, lambda tx: retries.postpone_start(tx, work.step))
    except Stopped as error:
        stopped = error
        return _conclude(work, time_slice, lambda tx: stops.wait_for_lift(tx, work.step, stopped))
    except ToolError as error:
        return _conclude(work, time_slice, partial(_refuse, work, error))


def _refuse(work: RateLimitedCall | WorkWithPreview, error: ToolError, tx: PlanTransaction) -> None:
    """Refuse a claimed call, or postpone it if its rate limit soon allows it or another process has its tool's code."""
    if not (
        isinstance(work, RateLimitedCall)
        and isinstance(error, RateLimited)
        and limits.wait_for_rate_limit(tx, work.step, error)
    ):
        admission.refuse_or_release(tx, work.step, error)


def _release_if_paused(tx: PlanTransaction, work: WorkItem, time_slice: TimeSlice) -> bool:
    """Release a claimed step if its plan was paused or the process is stopping; return whether it was released.

    It is claimed again when the plan is resumed, or by another process.
    """
    if time_slice.is_stopping:
        recovery.release_claim(work)
        return True
    if not statements.is_paused(tx.cursor, tx.plan_pk):
        return False
    statements.release_step(tx.cursor, work.step, StepWait("", work.step.call_pk, tx.now, ready_at=tx.now))
    return True


def _release_if_stopped(tx: PlanTransaction, work: WorkItem, prepared: PreparedCall) -> bool:
    """Let a claimed step wait if a stop covers its call, before an approval or a place is used; return True if so."""
    try:
        stops.require_call_not_stopped(tx, work.plan, work.step.step_id, prepared)
    except Stopped as stopped:
        stops.wait_for_lift(tx, work.step, stopped)
        return True
    return False


def run_handler(running_call: RunningCall) -> pipeline.CallOutcome:
    """Run the handler outside of transactions, unless the lease was lost since the start."""
    prepared = running_call.prepared
    if not late_results.holds_lease(running_call):
        return pipeline.expired_before_start(prepared.target.tool)
    run = partial(
        pipeline.run_call,
        prepared.target.tool,
        prepared.arguments,
        calls.context_for_handler(running_call),
        partial(late_results.may_undo, running_call),
        secrets=prepared.secrets,
    )
    with recorded_progress(running_call):
        return reports.run_in_span(running_call, run)


def finish_and_claim_next(
    running_call: RunningCall, outcome: pipeline.CallOutcome, time_slice: TimeSlice
) -> WorkItem | None:
    """Finish a step and claim the next one in one transaction; hint at other steps that became ready."""
    plan, step = running_call.plan, running_call.step

    def finish(tx: PlanTransaction, *, optimistic: bool = True) -> WorkItem | None:
        if time_slice.abandoned and late_results.record_late_return(tx, running_call, outcome):
            return None
        if plan.has_budget and statements.renew_lease(tx.cursor, step, until=tx.now):
            limits.spend_seconds(tx.cursor, plan, since=running_call.call.started_at, until=tx.now)
        finishing.finish(tx, running_call, outcome, optimistic=optimistic)
        limits.wake_others(tx.cursor, step.tool, plan.pk, now=tx.now)
        return _claim_next(tx, plan, time_slice)

    try:
        return transact(plan.pk, plan.ref, finish)
    except LeaseLost:  # rolled back: repeat, and check the lease before writing anything
        return transact(plan.pk, plan.ref, partial(finish, optimistic=False))


def abandon(work: WorkItem) -> None:
    """End the work of a thread whose tool exceeded its timeout or outlived its plan and cannot be stopped."""
    time_slice = TimeSlice(work.step.claimed_by, steps_left=0)
    if isinstance(work, RunningCall):
        ended = pipeline.cancelled_while_running if work.stop.is_set else pipeline.timed_out
        finish_and_claim_next(work, replace(ended(work.prepared.target.tool), left_running=True), time_slice)
    else:
        _conclude(work, time_slice, lambda tx: finishing.refuse(tx, work.step, ToolError("The preview timed out.")))
