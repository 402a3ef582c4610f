"""Time: requests nobody answered, and approvals whose run window passed. Expiry never approves anything."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from approvals.outcomes import Refusal, refuse
from approvals.selectors import request_for
from approvals.states import RequestStatus
from catalog import clock
from catalog.batches import do_each
from catalog.facts import announce, record
from catalog.retries import retried
from catalog.transitions import try_move

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def expire_due(now: datetime, limit: int = 100) -> int:
    """Expire what is due, each in its own transaction; return how many were."""
    due = ApprovalRequest.objects.filter(_past(now)).select_related("call").order_by("expires_at")
    return do_each(lambda request: _expire(request, now), due[:limit])


def expire_if_due(request: ApprovalRequest, now: datetime) -> bool:
    """Expire this request if its time has passed; say whether that was done now."""
    ends = {RequestStatus.PENDING: request.expires_at, RequestStatus.APPROVED: request.not_after}
    end = ends.get(RequestStatus(request.status))
    return end is not None and end <= now and _expire(request, now)


def seen_by(viewer: "User", public_id: str) -> ApprovalRequest:
    """Return a request with all that a page shows of it, expired if its time has passed.

    Raises ApprovalRequest.DoesNotExist when the viewer may not see it.
    """
    request = request_for(viewer, public_id)
    return request_for(viewer, public_id) if expire_if_due(request, clock.now()) else request


def next_due(after: datetime) -> datetime | None:
    """Return when a decision takes effect or a request expires next, later than `after`; None when nothing will."""
    requests = ApprovalRequest.objects
    decided = requests.filter(
        status__in=(RequestStatus.APPROVED, RequestStatus.REJECTED), applied_at=None, decided_at__isnull=False
    )
    moments = (
        _earliest(decided, "effective_at", after),
        _earliest(requests.filter(status=RequestStatus.PENDING), "expires_at", after),
        _earliest(requests.filter(status=RequestStatus.APPROVED), "not_after", after),
    )
    return min(filter(None, moments), default=None)


def _earliest(requests: QuerySet[ApprovalRequest], field: str, after: datetime) -> datetime | None:
    return requests.filter(**{f"{field}__gt": after}).order_by(field).values_list(field, flat=True).first()


def _past(now: datetime) -> Q:
    unanswered = Q(status=RequestStatus.PENDING, expires_at__lte=now)
    return unanswered | Q(status=RequestStatus.APPROVED, not_after__lte=now)


@retried
def _expire(request: ApprovalRequest, now: datetime) -> bool:
    with transaction.atomic():
        announce(request.call)
        if not try_move(ApprovalRequest.objects.filter(_past(now), pk=request.pk), to=RequestStatus.EXPIRED):
            return False
        record("approval.expired", call=request.call, approval=request.public_id)
        refuse(request, Refusal("expired", _sentence(request)), now=now)
        return True


def _sentence(request: ApprovalRequest) -> str:
    if request.not_after is not None and request.effective_at is not None:
        window = _span(request.not_after - request.effective_at)
        return f"Approved, but not started within {window}: the approval has expired and the call was not run."
    waited = _span(request.expires_at - request.opened_at)
    return f"Nobody answered within {waited}: the request has expired and the call was not run."


def _span(duration: timedelta) -> str:
    """Say a configured duration in its largest whole unit: 24 h, 15 min, 90 s."""
    seconds = round(duration.total_seconds())
    whole = ((size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds and seconds % size == 0)
    size, unit = next(whole, (1, "s"))
    return f"{seconds // size} {unit}"
