"""Requests as lists narrow them down, and whose they are. Never writes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import QuerySet

from approvals.models import ApprovalRequest
from approvals.selectors import pending_for, requests_for, whole
from approvals.states import RequestStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilters:
    """What a list is narrowed to; what is empty does not narrow."""

    status: str = ""
    tool: str = ""
    plan: str = ""
    mine: bool = False


def listed_for(viewer: "User", filters: RequestFilters) -> QuerySet[ApprovalRequest]:
    """Return the requests that fit, of those the viewer may see, with all that a list shows of them."""
    wanted = {
        "status": filters.status,
        "tool_version__tool__name": filters.tool,
        "plan_ref": filters.plan,
        "call__requested_by": viewer.pk if filters.mine else "",
    }
    mine = pending_for(viewer) if filters.status == RequestStatus.PENDING else requests_for(viewer)
    return whole(mine.filter(**{name: value for name, value in wanted.items() if value}))


def is_own(request: ApprovalRequest, user: "User") -> bool:
    """Say whether the user asked for the call, or it was asked for on their behalf."""
    asked = {requester.user_id for requester in request.call.requesters.all()}
    return user.pk in asked | {request.call.requested_by_id}
