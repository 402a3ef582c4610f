"""Acts of the races and the outcomes that several modules compare."""

from typing import Any

from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests import deadlines
from approvals.reviews import effects
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from plans.actions.control import cancel_plan
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import assert_gapless, call_of, request_of, step_of, work_off

ROUNDS = counts.count(500, 150)
RAN = ("completed", "completed", "completed", "consumed")
EXPIRED = ("failed", "failed", "failed", "expired")


def approve_request(request: ApprovalRequest, by: User, channel: Any = "rest") -> ApprovalRequest:
    """Approve a request."""
    return decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest, channel=channel))


def cancel(plan: Plan) -> str:
    """Cancel a plan as its owner."""
    cancel_plan(plan, by=Requester(plan.author))
    return "cancelled"


def apply_decision(request: ApprovalRequest) -> int:
    """Do what the ticker does at the end of the undo window."""
    assert request.effective_at
    return effects.apply_due(request.effective_at)


def expire(request: ApprovalRequest) -> bool:
    """Do what the ticker does when a request, or its approval, expires."""
    end = request.not_after or request.expires_at
    return deadlines.expire_if_due(request, end)


def drive(plan: Plan, worker: int) -> None:
    """Claim and run ready steps, as one of many workers, until there are none."""
    owner = f"worker-{worker}"
    work = loop.claim_work(plan.pk, owner=owner)
    while work is not None:
        work = loop.advance(work, TimeSlice(owner, until=float("inf"), steps_left=1000))


def settled(plan: Plan) -> tuple[str, str, str, str]:
    """Work the plan off; return the statuses of the plan, its first step, that step's call and its request."""
    plan = work_off(plan)
    assert_gapless(plan)
    assert not plan.steps.exclude(claimed_by="", lease_until=None).exists()
    return plan.status, step_of(plan).status, call_of(plan).status, request_of(plan).status


def audited(request: ApprovalRequest) -> list[str]:
    """Return the audited actions on a request after its opening, oldest first."""
    entries = AuditEntry.objects.filter(object_ref=request.public_id).exclude(action="approval.opened")
    return list(entries.order_by("seq").values_list("action", flat=True))
