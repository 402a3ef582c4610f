"""Recovery from dead workers: takes back steps with expired leases without running anything dangerous twice.

Also deletes secrets that outlived their call because a process died.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import CharField, Exists, OuterRef
from django.db.models.functions import Cast

from catalog.core.transactions import log_unexpected, retry_on_deadlock, run_each, try_move
from catalog.errors import Conflict, ToolError
from catalog.models import Call, CallSecret
from catalog.states import CallStatus
from plans.engine import cancellation, finishing, hints, limits, reports, retries
from plans.engine.work import PlanSnapshot, RunningCall, WorkItem, load_snapshot
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, StepStatus
from plans.store import statements
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction, plan_transaction

BATCH = 100
MAX_LEASE_FACTOR = 2
"""Limit of a lease's remaining time, as a multiple of its length; more means that the clock was set back."""


def take_back_lost_steps(now: datetime) -> int:
    """Take back the steps whose lease has expired; return their number."""
    lasts = timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
    too_long = Step.objects.filter(lease_until__gt=now + MAX_LEASE_FACTOR * lasts)
    if too_long.exists():  # from before the clock was set back; live workers renew theirs
        too_long.update(lease_until=now + lasts)
    with connection.cursor() as cursor:
        lost = statements.lost_steps(cursor, now=now, limit=BATCH)
    return run_each(_take_back, lost)


def expire_all_leases(now: datetime) -> None:
    """End every lease now: after a restore, no lease belongs to a live worker. Any running worker is fenced off."""
    Step.objects.filter(lease_until__gt=now).update(lease_until=now)


def _take_back(lost_step: ClaimedStep) -> bool:
    """Take back one step in a transaction of its plan; return False if its lease was renewed in the meantime."""
    plan = load_snapshot(lost_step.plan_pk)
    with plan_transaction(plan.pk, plan.ref) as tx:
        is_lost = statements.is_lost(tx.cursor, lost_step, now=tx.now)
        if is_lost:
            reports.report_lease_lost(lost_step, plan.ref)
            _reassign(tx, plan, lost_step)
    return is_lost


def _reassign(tx: PlanTransaction, plan: PlanSnapshot, lost_step: ClaimedStep) -> None:
    step = Step.objects.select_related("call__version", "call__approval").get(pk=lost_step.pk)
    running = step.call is not None and step.call.status == CallStatus.RUNNING
    if step.call is not None and running:
        limits.spend_seconds(tx.cursor, plan, since=step.call.started_at, until=tx.now)
    if step.call is not None and running and not retries.may_run_again(step.call):
        finishing.wait_for_settlement(tx, lost_step, step.call)
    elif retries.plan_is_over(tx):
        cancellation.cancel_step(step, tx, "Its worker was lost after the plan had ended.", None)
    elif not running and step.crashes + 1 >= retries.CRASHES:
        reason = f"Its worker was lost {retries.CRASHES} times before the call could start."
        finishing.refuse(tx, lost_step, ToolError(reason))
        finishing.settle_plan(tx)
    elif statements.reclaim_step(tx.cursor, lost_step, now=tx.now):
        call = step.call if running else None
        if call is not None:
            try_move(Call.objects.filter(pk=call.pk), to=CallStatus.READY)
            more = {"call": call.public_id, "attempt": call.attempt, "error": "worker_lost"}
            tx.record("step.retrying", lost_step.step_id, **more)
        hints.hint(tx.plan_pk)


def hand_back(running_call: RunningCall) -> None:
    """Release a started call whose handler has not begun, for another worker. Errors are only logged."""
    try:
        _hand_back(running_call)
    except (Conflict, DatabaseError) as error:
        log_unexpected(error)


@retry_on_deadlock
def _hand_back(running_call: RunningCall) -> None:
    with plan_transaction(running_call.plan.pk, running_call.plan.ref) as tx:
        retries.return_unstarted_call(tx, running_call, None, error=retries.WORKER_STOPPED)
        hints.hint(tx.plan_pk)


@retry_on_deadlock
def release_claim(work: WorkItem) -> None:
    """Release a claimed step for another worker; its call must not have begun."""
    with plan_transaction(work.plan.pk, work.plan.ref) as tx:
        retries.retry_later(tx, work.step, None, attempt=work.step.attempt, error=retries.WORKER_STOPPED)
        hints.hint(tx.plan_pk)


SECRETS_BATCH = 500
SETTLED_STATUSES = (StepStatus.COMPLETED, StepStatus.CANCELLED)


def delete_expired_secrets() -> int:
    """Delete secrets of ended plans and of completed or cancelled steps; return their number."""
    if not CallSecret.objects.exists():
        return 0
    ended = CallSecret.objects.filter(
        Exists(Plan.objects.filter(public_id=OuterRef("plan_ref"), status__in=PLAN_TERMINAL))
    )
    steps = Step.objects.annotate(ref=Cast("step_id", CharField())).filter(status__in=SETTLED_STATUSES)
    over = CallSecret.objects.filter(
        Exists(steps.filter(plan__public_id=OuterRef("plan_ref"), ref=OuterRef("step_ref")))
    )
    found = [*ended.values_list("pk", flat=True)[:SECRETS_BATCH], *over.values_list("pk", flat=True)[:SECRETS_BATCH]]
    deleted, _ = CallSecret.objects.filter(pk__in=found).delete() if found else (0, {})
    return deleted
