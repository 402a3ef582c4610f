"""Effects of decisions: each decision is applied to its call once, when its undo window ends."""

from datetime import datetime

from django.db import transaction

from approvals.models import ApprovalRequest, Review
from approvals.requests import held_calls
from approvals.requests.queries import last_review
from approvals.states import APPLYING, RequestStatus, ReviewVerdict
from catalog.core.transactions import run_each
from catalog.signals import announce_call_change


def apply_due(now: datetime, limit: int = 100) -> int:
    """Apply decisions whose undo window is over, each in its own transaction; return their number."""
    due = ApprovalRequest.objects.filter(
        status__in=APPLYING, applied_at=None, decided_at__isnull=False, effective_at__lte=now
    )
    requests = due.select_related("call").order_by("effective_at")[:limit]
    return run_each(lambda request: apply_decision(request, now), requests)


def apply_decision(request: ApprovalRequest, now: datetime, deciding_review: Review | None = None) -> bool:
    """Apply a decision to its call; return False if it was applied before. The review is loaded unless given."""
    with transaction.atomic(savepoint=False):
        announce_call_change(request.call)
        decided = ApprovalRequest.objects.filter(pk=request.pk, status=request.status, status__in=APPLYING)
        if not decided.filter(applied_at=None, effective_at__lte=now).update(applied_at=now):
            return False
        request.applied_at = now
        review = deciding_review or last_review(request)
        if request.status == RequestStatus.APPROVED:
            held_calls.release_call(request, by=review.person if review else None)
        elif review is not None:
            if review.verdict == ReviewVerdict.RESPOND:
                held_calls.respond_for_tool(request, review, now=now)
            elif review.verdict == ReviewVerdict.REQUEST_CHANGES:
                held_calls.send_back_call(request, review, now=now)
            else:
                held_calls.refuse_call(request, held_calls.refusal_from_review(review), now=now)
        return True
