"""Ending plans early: cancelled by a person, or past their deadline."""

from datetime import datetime

from django.contrib.auth.models import User

from approvals.requests import lifecycle
from approvals.states import OPEN
from catalog.calls import vault
from catalog.calls.vault import SecretScope
from catalog.core import transactions
from catalog.core.transactions import move, try_move
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine import hints
from plans.engine.extensions import end_agent_runs
from plans.engine.finishing import RELEASED_COLUMNS
from plans.engine.stops import count_deadline
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store.selectors import DEADLINE_PASSED
from plans.store.transactions import PlanTransaction, plan_transaction

BATCH = 100


def terminate_plan(plan: Plan, tx: PlanTransaction, *, to: PlanStatus, reason: str, by: User | None) -> None:
    """End a plan now: nothing more starts, held calls are withdrawn and running handlers are asked to stop.

    Raises Conflict if it has already ended. Unknown outcomes remain for a person to settle.
    """
    ended = {"completed_at": tx.now, "paused_at": None, "paused_by": None}
    move(Plan.objects.filter(pk=plan.pk), to=to, otherwise="The plan has already ended.", **ended)
    tx.record(f"plan.{to.value}", reason=reason)
    vault.delete_secrets(SecretScope(plan.public_id))
    hints.stop_plan(plan.pk)
    waiting = Step.objects.filter(plan=plan, status=StepStatus.IN_PROGRESS).select_related("call__approval")
    for step in waiting.exclude(waiting_for=WaitingFor.OUTCOME):
        if step.call is None or step.call.status != CallStatus.RUNNING:
            cancel_step(step, tx, reason, by)
    for step in Step.objects.filter(plan=plan, status=StepStatus.PENDING):
        cancel_step(step, tx, reason, by)


def cancel_step(step: Step, tx: PlanTransaction, reason: str, by: User | None) -> None:
    """Cancel a step that has not ended, with its call and its open approval request."""
    call = step.call
    if step.agent:
        end_agent_runs([step.pk], tx)
    if try_move(Step.objects.filter(pk=step.pk), to=StepStatus.CANCELLED, completed_at=tx.now, **RELEASED_COLUMNS):
        tx.record("step.cancelled", step.step_id, **({"call": call.public_id} if call else {}))
    if call is not None:
        if hasattr(call, "approval") and call.approval.status in OPEN:
            lifecycle.withdraw_for_plan(call.approval, by=by, reason=reason)
        else:
            try_move(Call.objects.filter(pk=call.pk), to=CallStatus.CANCELLED, message=reason, finished_at=tx.now)


def end_overdue_plans(now: datetime) -> int:
    """Fail the plans whose deadline has passed; return their number."""
    overdue = list(Plan.objects.filter(status=PlanStatus.IN_PROGRESS, deadline_at__lte=now)[:BATCH])
    return transactions.run_each(lambda plan: _end_overdue(plan, now), overdue)


def _end_overdue(plan: Plan, now: datetime) -> bool:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        overdue = Plan.objects.filter(pk=plan.pk, status=PlanStatus.IN_PROGRESS, deadline_at__lte=now)
        current = overdue.first()  # it may have ended or been given more time since the query
        if current is not None and count_deadline(current, now):
            current = overdue.first()
        is_overdue = current is not None
        if is_overdue:
            terminate_plan(plan, tx, to=PlanStatus.FAILED, reason=DEADLINE_PASSED, by=None)
    return is_overdue
