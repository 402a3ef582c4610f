"""Pause, resume and cancel plans. Each is one conditional UPDATE with its event.

While `paused_at` is set, no step is claimed. Running calls finish; requests and the plan's deadline still expire.
"""

from dataclasses import dataclass

from django.db.models import Count, Q

from approvals.states import RequestStatus
from catalog.access.roles import user_display_name
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict
from catalog.states import CallStatus
from plans.engine import hints
from plans.engine.cancellation import terminate_plan
from plans.engine.refusals import require_plan_within_limits
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction


@retry_on_deadlock
def pause_plan(plan: Plan, *, by: Requester) -> None:
    """Pause a plan: no further step starts. Raises Conflict if it is already paused, has not started or has ended."""
    with plan_transaction(plan.pk, plan.public_id) as tx:
        going = Plan.objects.filter(pk=plan.pk, status=PlanStatus.IN_PROGRESS, paused_at=None)
        if not going.update(paused_at=tx.now, paused_by=by.user):
            raise Conflict(_control_refusal(plan, "The plan is already paused."))
        tx.record("plan.paused", by=user_display_name(by.user))


@retry_on_deadlock
def resume_plan(plan: Plan, *, by: Requester) -> None:
    """Resume a paused plan. Raises Conflict if it is not paused, OutsideLimits if `by` may not use all its tools."""
    require_plan_within_limits(plan, by.ids)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        paused = Plan.objects.filter(pk=plan.pk, status=PlanStatus.IN_PROGRESS, paused_at__isnull=False)
        if not paused.update(paused_at=None, paused_by=None):
            raise Conflict(_control_refusal(plan, "The plan is not paused."))
        tx.record("plan.resumed", by=user_display_name(by.user))
        hints.hint(plan.pk, Step.objects.filter(plan=plan, ready_at__lte=tx.now).count())


@retry_on_deadlock
def cancel_plan(plan: Plan, *, by: Requester) -> None:
    """Cancel a plan: withdraw held calls and ask running handlers to stop. Raises Conflict if it has ended."""
    with plan_transaction(plan.pk, plan.public_id) as tx:
        terminate_plan(plan, tx, to=PlanStatus.CANCELLED, reason="The plan was cancelled.", by=by.user)


def _control_refusal(plan: Plan, otherwise: str) -> str:
    status = Plan.objects.values_list("status", flat=True).get(pk=plan.pk)
    if status == PlanStatus.PENDING:
        return "The plan has not started."
    return "The plan has ended." if status in PLAN_TERMINAL else otherwise


@dataclass(frozen=True, slots=True)
class AtStake:
    """Numbers of running calls and of approved calls that would be stopped if the plan were cancelled now."""

    running: int
    approved: int

    def __bool__(self) -> bool:
        return bool(self.running or self.approved)


def at_stake(plan: Plan) -> AtStake:
    steps = Step.objects.filter(plan=plan, status=StepStatus.IN_PROGRESS)
    running = Count("pk", filter=Q(call__status=CallStatus.RUNNING))
    approved = Count("pk", filter=Q(call__approval__status=RequestStatus.APPROVED))
    return AtStake(**steps.aggregate(running=running, approved=approved))
