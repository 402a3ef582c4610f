"""List of decided requests: what was decided, by whom and when, with filters. Open requests are in the inbox."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpResponseBase
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_safe

from approvals.models import DECIDED_OR_OPENED_AT, ApprovalRequest, Review
from approvals.queue.saved_views import DECIDED, Queues
from approvals.requests.queries import requests_for
from approvals.states import RequestStatus
from approvals.web.review.inbox import inbox_url, listed_requests
from catalog.access.roles import can_see_all, user_display_name
from catalog.calls.privacy import private_parts_of
from catalog.models import ApiToken, CallRequester, Tool
from catalog.ui.labels import Badge, status_badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    SortOrder,
    age_filter,
    column_choices,
    column_filter,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, sign_in_required


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """A decided request. `summary` is its summary as the viewer may see it; in a CSV private ones are left out."""

    request: ApprovalRequest
    word: Badge
    summary: str

    @property
    def address(self) -> str:
        return inbox_url(self.request.public_id, status=DECIDED)

    @property
    def answered_by(self) -> str:
        return str(self.request.answered_by)  # type: ignore[attr-defined] # see listed_requests

    @property
    def requester(self) -> str:
        return user_display_name(self.request.call.requested_by) if self.request.call.requested_by else ""


def _rows(viewer: User, requests: Sequence[ApprovalRequest]) -> list[DecidedRow]:
    listed = listed_requests(viewer, [request.pk for request in requests])
    return [DecidedRow(each, status_badge(each.status), each.summary) for each in listed]  # type: ignore[attr-defined] # see listed_requests


def _rows_without_private(viewer: User, requests: Sequence[ApprovalRequest]) -> list[DecidedRow]:
    """Return rows for a CSV, without the summaries of calls with private arguments, because they may repeat those."""
    rows = _rows(viewer, requests)
    private = private_parts_of([row.request.call for row in rows])
    return [
        DecidedRow(row.request, row.word, gettext("Run %(tool)s") % {"tool": row.request.call.tool_name})
        if row.request.call_id in private
        else row
        for row in rows
    ]


def _seen(viewer: User, requests_of_row: "QuerySet[Any]", column: str) -> Q:
    """Return the condition for rows that are in `column` of a request which the viewer may see.

    Viewers of all requests need one look into an index for each row, by `requests_of_row`, a query about the row of the
    outer one; `IN (SELECT column …)` reads all requests.
    """
    if can_see_all(viewer):
        return Q(Exists(requests_of_row))
    return Q(pk__in=requests_for(viewer).order_by().values(column))


def _tools(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    requests = ApprovalRequest.objects.filter(tool_version__tool=OuterRef("pk"))
    return column_choices(Tool.objects.filter(_seen(viewer, requests, "tool_version__tool")), "name", chosen)


def _reviewers(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    reviews = Review.objects.filter(person=OuterRef("pk"))
    return person_choices(User.objects.filter(_seen(viewer, reviews, "reviews__person")), chosen)


def _requesters(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    calls = CallRequester.objects.filter(user=OuterRef("pk"))
    return person_choices(User.objects.filter(_seen(viewer, calls, "call__requested_by")), chosen)


def _agents(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    if can_see_all(viewer):  # calls have no index of tokens, so these are all that were ever used
        return column_choices(ApiToken.objects.exclude(last_used_at=None), "name", chosen)
    tokens = requests_for(viewer).order_by().values("call__token")
    return column_choices(ApiToken.objects.filter(pk__in=tokens), "name", chosen)


def _status(*statuses: RequestStatus) -> Q:
    return Q(status__in=statuses)


DECIDED_LIST = register_list(
    ListDefinition[ApprovalRequest](
        name="decided",
        path="/approvals/decided/",
        count_text=ngettext_lazy("%(shown)s request", "%(shown)s requests", "count"),
        search_label=gettext_lazy("Search decided requests"),
        search_hint=gettext_lazy("Tool, request or plan ID, requester"),
        rows=lambda viewer, _query: Queues(viewer).of(DECIDED).annotate(ended_at=DECIDED_OR_OPENED_AT).only("pk"),
        present=_rows,
        csv_present=_rows_without_private,
        search=lambda text: (
            Q(call__tool_name__icontains=text)
            | Q(public_id=text)
            | Q(plan_ref=text)
            | Q(call__requested_by__username=text)
        ),
        tabs={
            "": (gettext_lazy("All"), Q()),
            "approved": (gettext_lazy("Approved"), _status(RequestStatus.APPROVED, RequestStatus.CONSUMED)),
            "rejected": (gettext_lazy("Rejected"), _status(RequestStatus.REJECTED)),
            "responded": (gettext_lazy("Answered"), _status(RequestStatus.RESPONDED)),
            "changes": (gettext_lazy("Changes requested"), _status(RequestStatus.CHANGES_REQUESTED)),
            "expired": (gettext_lazy("Expired"), _status(RequestStatus.EXPIRED)),
            "withdrawn": (gettext_lazy("Withdrawn"), _status(RequestStatus.WITHDRAWN, RequestStatus.REVOKED)),
            "replaced": (gettext_lazy("Replaced"), _status(RequestStatus.INVALIDATED, RequestStatus.SUPERSEDED)),
        },
        filters=(
            column_filter(
                name="tool",
                label=gettext_lazy("Tool"),
                offer=_tools,
                column="tool_version__tool__name",
            ),
            ListFilter(
                name="reviewer",
                label=gettext_lazy("Reviewer"),
                offer=_reviewers,
                condition=lambda values: Q(
                    pk__in=Review.objects.filter(person__username__in=values, undone_at=None).values("request")
                ),
            ),
            column_filter(
                name="requester",
                label=gettext_lazy("Requester"),
                offer=_requesters,
                column="call__requested_by__username",
            ),
            column_filter(
                name="agent",
                label=gettext_lazy("Agent"),
                offer=_agents,
                column="call__token__name",
            ),
            age_filter("opened_at"),
        ),
        orders={
            "-decided": SortOrder(gettext_lazy("Last decided first"), "-ended_at"),
            "decided": SortOrder(gettext_lazy("Last decided last"), "ended_at"),
            "-opened": SortOrder(gettext_lazy("Last opened first"), "-id"),
            "opened": SortOrder(gettext_lazy("Last opened last"), "id"),
        },
        columns=(
            Column(gettext_lazy("Decision")),
            Column(gettext_lazy("Request")),
            Column(gettext_lazy("Tool")),
            Column(gettext_lazy("Reviewer")),
            Column(gettext_lazy("Requester")),
            Column(gettext_lazy("Decided"), "decided", "-decided"),
        ),
        row_template="approvals/_decided.html",
        empty_template="approvals/_none_decided.html",
        csv_columns={
            "id": lambda row: row.request.public_id,
            "status": lambda row: row.request.status,
            "tool": lambda row: row.request.call.tool_name,
            "summary": lambda row: row.summary,
            "reviewer": lambda row: row.answered_by,
            "requester": lambda row: row.request.call.requested_by.username if row.request.call.requested_by else "",
            "plan": lambda row: row.request.plan_ref,
            "opened_at": lambda row: row.request.opened_at,
            "decided_at": lambda row: row.request.decided_at,
        },
    )
)


@require_safe
@sign_in_required
def decided_requests(request: PageRequest) -> HttpResponseBase:
    return render_list(request, DECIDED_LIST, "approvals/decided.html", {"section": "approvals"})
