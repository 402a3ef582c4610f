"""Requests as lists narrow them down, and whose they are. Never writes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from django.db.models import QuerySet

from approvals.models import ApprovalRequest
from approvals.queues import DECIDED, SAVED_VIEWS, WAITING, Queues, by_risk, count_twins
from approvals.requests.queries import NOT_ASKED_YET, requests_for, whole_list, with_snooze
from approvals.states import RequestStatus
from catalog.models import ToolVersion
from catalog.rest.pagination import Page, PageAt, page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User


STATUSES = (*RequestStatus.values, *SAVED_VIEWS)
"""What a list can be narrowed to: a status, or a saved view."""
ORDERS = ("opened", "-opened", "risk")
FIRST_IN_LINE = frozenset(SAVED_VIEWS) - {DECIDED} | {RequestStatus.PENDING}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilters:
    """What a list is narrowed to, and its order; what is empty does not narrow."""

    status: str = ""
    tool: str = ""
    plan: str = ""
    mine: bool = False
    order: str = ""

    @property
    def sorted_by(self) -> str:
        """The field that the list is sorted by: what waits stands oldest first, all else newest first."""
        waits = self.status in FIRST_IN_LINE
        order = self.order or ("opened" if waits else "-opened")
        # Of what waits there is an index by time; of all requests by their keys, which are given in the same order.
        return order if order == "risk" else order.replace("opened", "opened_at" if waits else "id")


def page_for(viewer: "User", filters: RequestFilters, at: PageAt) -> Page[ApprovalRequest]:
    """Return one page of the requests that fit, of those the viewer may see, with all that a list shows of them."""
    found = listed_for(viewer, filters).only("pk", "opened_at")  # what is sorted is narrow
    page = page_of(by_risk(found) if filters.sorted_by == "risk" else found, order=filters.sorted_by, at=at)
    keys = [row.pk for row in page.rows]
    rows = with_snooze(whole_list(ApprovalRequest.objects.filter(pk__in=keys)), viewer).in_bulk() if keys else {}
    page = replace(page, rows=[rows[key] for key in keys if key in rows])
    count_twins(viewer, page.rows)
    return page


def listed_for(viewer: "User", filters: RequestFilters) -> QuerySet[ApprovalRequest]:
    """Return the requests that fit, of those the viewer may see, in no order yet."""
    wanted = {
        "plan_ref": filters.plan,
        "call__requested_by": viewer.pk if filters.mine else "",
    }
    found = _in_status(viewer, filters.status).filter(**{name: value for name, value in wanted.items() if value})
    if not filters.tool:
        return found
    # By keys: only with them, and not by a name beyond a join, is the order of the requests to be had for nothing.
    versions = ToolVersion.objects.filter(tool__name=filters.tool).values_list("pk", flat=True)
    return found.filter(tool_version__in=list(versions))


def _in_status(viewer: "User", status: str) -> QuerySet[ApprovalRequest]:
    if status in (*SAVED_VIEWS, RequestStatus.PENDING):
        return Queues(viewer).of(WAITING if status == RequestStatus.PENDING else status)
    found = requests_for(viewer).exclude(NOT_ASKED_YET)
    return found.filter(status=status) if status else found
