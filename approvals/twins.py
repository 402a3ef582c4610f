"""Requests that wait for the very same call: shown with each other, answered one by one. Never writes."""

from typing import TYPE_CHECKING

from approvals.models import ApprovalRequest
from approvals.requests.queries import pending_for
from approvals.states import RequestStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST = 20
"""How many a page names; the queue counts all of them."""


def twins_of(viewer: "User", request: ApprovalRequest) -> list[ApprovalRequest]:
    """Return the others that wait for the same call, oldest first, as far as the viewer may see them.

    What a reviewer changed is nobody's twin: its arguments are no longer those that were asked for.
    """
    if request.status != RequestStatus.PENDING or request.round_number != 1 or not request.likeness:
        return []
    same = pending_for(viewer).filter(likeness=request.likeness, round_number=1).exclude(pk=request.pk)
    return list(same.select_related("call__token__user", "call__requested_by").order_by("pk")[:MOST])
