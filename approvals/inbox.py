"""The inbox as a page asks for it: which list, which requests, which of them is open beside it. Never writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.functions import Left
from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ValidationError

from approvals.briefing import Briefing, brief
from approvals.expiry import seen_by
from approvals.models import ApprovalRequest, Review, Round
from approvals.queues import DECIDED, SAVED_VIEWS, WAITING, Counts, Queues, count_twins
from approvals.selectors import answered_by, requests_for
from approvals.states import RequestStatus
from catalog.pages import Cursor, Page, PageAt, page_of
from catalog.privacy import private_in, sees_private
from catalog.secrets import in_words

if TYPE_CHECKING:
    from django.contrib.auth.models import User

VIEWS = ("json", "edit", "respond")
"""Beside its usual look: the raw arguments, the form that changes them, the form that answers in the tool's place."""
MOST_LISTED = 50
# A stored preview begins with its summary; the texts after it are not read to fill a list.
SUMMARY_MARK = '{"summary": '
SUMMARY_ROOM = 8192


@dataclass(frozen=True, slots=True)
class Asked:
    """What the URL asks for: a list, an item, a view of its arguments, where the list goes on."""

    status: str = ""
    item: str = ""
    view: str = ""
    cursor: Cursor | None = None
    ignored: str = ""

    @classmethod
    def read(cls, params: QueryDict) -> "Asked":
        """Read a URL; what means nothing is noted and left out."""
        status = params.get("status", "")
        known = status if status in SAVED_VIEWS else ""
        item = params.get("item", "").replace("\x00", "")[:64]
        view = params.get("view", "") if params.get("view") in VIEWS else ""
        cursor = _cursor(params.get("before", "")) or _place(params.get("after", ""))
        return cls(known, item, view, cursor, "" if known else status)


@dataclass(frozen=True, slots=True)
class Inbox:
    """All that the page shows. `opened` says that the URL names the request; `missing`, that it is not to be seen.

    `status` names the view. A list goes on at `older` or `later`. What is counted is counted when it is drawn.
    """

    status: str
    requests: Sequence[ApprovalRequest]
    viewer: "User"
    queues: Queues
    shown: Briefing | None = None
    opened: bool = False
    missing: str = ""
    ignored: str = ""
    view: str = ""
    older: int | None = None
    later: str = ""
    last_decided: ApprovalRequest | None = None

    @property
    def counts(self) -> Counts:
        """How many requests stand in each view of what waits."""
        return self.queues.counts

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self.queues.waiting

    @property
    def position(self) -> int | None:
        """The place of the request that is shown in its list, from 1; None when it is not in it."""
        ids = [request.pk for request in self.requests]
        shown = self.shown.request.pk if self.shown else None
        return ids.index(shown) + 1 if shown in ids else None


def inbox_for(viewer: "User", asked: Asked) -> Inbox:
    """Return the inbox that a URL asks for, in a fixed number of queries."""
    named = _named(viewer, asked.item)
    status = asked.status or (DECIDED if named is not None and named.status != RequestStatus.PENDING else WAITING)
    listed = _listed(viewer, status, asked.cursor)
    shown = named if named is not None or asked.item else _first(viewer, listed.requests)
    return replace(
        listed,
        shown=brief(shown, viewer) if shown else None,
        opened=bool(asked.item),
        missing=asked.item if named is None else "",
        ignored=asked.ignored[:40],
        view=asked.view,
        last_decided=_last_decided(viewer) if shown is None else None,
    )


def queue_of(viewer: "User", view: str = WAITING) -> Inbox:
    """Return the list of one view alone: no request open beside it, nothing counted but what waits."""
    return _listed(viewer, view)


def waiting_for(viewer: "User", view: str = WAITING) -> Sequence[ApprovalRequest]:
    """Return the beginning of a view of what waits, oldest first, with no more than their ids."""
    narrow = Queues(viewer).of(view).only("public_id", "opened_at")
    return page_of(narrow, order="opened_at", at=PageAt(MOST_LISTED)).rows


def _listed(viewer: "User", view: str, cursor: Cursor | None = None) -> Inbox:
    queues = Queues(viewer)
    page = _page(queues, view, cursor)
    rows = _with_summaries(viewer, page.rows)
    count_twins(viewer, rows)
    older = page.next.pk if view == DECIDED and page.next else None
    later = page.next.text() if view != DECIDED and page.next else ""
    return Inbox(view, rows, viewer, queues, older=older, later=later)


def _page(queues: Queues, view: str, cursor: Cursor | None = None) -> Page[ApprovalRequest]:
    """Return one page of a view: what waits stands oldest first, what was decided newest first."""
    order = "-id" if view == DECIDED else "opened_at"
    place = cursor if cursor is not None and isinstance(cursor.value, int) == (view == DECIDED) else None
    narrow = queues.of(view).only("pk", "opened_at")  # what is sorted is narrow, what is shown is then fetched by key
    page = page_of(narrow, order=order, at=PageAt(MOST_LISTED, place))
    keys = [row.pk for row in page.rows]
    found = _lean(ApprovalRequest.objects.filter(pk__in=keys))
    rows = (found.prefetch_related(ANSWERS) if view == DECIDED else found).in_bulk() if keys else {}
    return replace(page, rows=[rows[key] for key in keys if key in rows])


def next_after(requests: Sequence[ApprovalRequest], public_id: str) -> str:
    """Return the id of the request to open when this one is answered: the next, else the first; empty for none."""
    ids = [request.public_id for request in requests]
    place = ids.index(public_id) + 1 if public_id in ids else 0
    others = [*ids[place:], *(each for each in ids[:place] if each != public_id)]
    return others[0] if others else ""


def address_of(public_id: str = "", **more: str) -> str:
    """Return the address of the inbox with this request open."""
    parts = {name: value for name, value in {"item": public_id, **more}.items() if value}
    return f"/approvals/?{urlencode(parts)}" if parts else "/approvals/"


def _cursor(before: str) -> Cursor | None:
    is_number = before.isascii() and before.isdigit() and len(before) < 19
    return Cursor(back=False, value=int(before), pk=int(before)) if is_number else None


def _place(after: str) -> Cursor | None:
    """Read where a list of what waits goes on: none where that is no moment."""
    try:
        cursor = Cursor.read(after[:1000])
        return cursor if cursor is not None and parse_datetime(str(cursor.value)) else None
    except (ValidationError, ValueError):
        return None


LISTED = (
    *("public_id", "status", "round_number", "likeness", "plan_ref", "opened_at", "expires_at", "decided_at"),
    *("call__tool_name", "call__plan_ref", "call__step_ref"),
    *("tool_version__reversibility", "tool_version__tool__returns_private_data"),
    *("claimed_until", "claimed_by__username", "claimed_by__first_name", "claimed_by__last_name"),
)
"""What a list shows of a request: never the arguments, the results and the texts of previews."""
ANSWERS = Prefetch("reviews", Review.objects.select_related("person").order_by("id"))


def _lean(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """Load what a list shows, who answered what was decided aside."""
    judged = Round.objects.filter(request=OuterRef("pk"), number=OuterRef("round_number"))
    start = Left(Subquery(judged.values("preview")[:1]), SUMMARY_ROOM)
    listed = requests.select_related("call", "tool_version__tool", "claimed_by").only(*LISTED)
    return listed.annotate(preview_start=start)


def _with_summaries(viewer: "User", requests: Sequence[ApprovalRequest]) -> list[ApprovalRequest]:
    """Name in a list what each call would do, as far as the viewer may know; of private tools it names nothing."""
    listed = list(requests)
    private = private_in([request.call for request in listed]) if listed else {}
    judges = sees_private(viewer)
    for request in listed:
        hidden = private.get(request.call_id)
        is_named = hidden is None or (judges and hidden.is_wording and not _is_of_private_tool(request))
        summary = summary_at(request.preview_start) if is_named else ""  # type: ignore[attr-defined] # see _lean
        request.summary = in_words(summary) or f"Run {request.call.tool_name}"  # type: ignore[attr-defined] # for pages
        request.answered_by = answered_by(request)  # type: ignore[attr-defined] # for pages
    return listed


def _is_of_private_tool(request: ApprovalRequest) -> bool:
    return request.tool_version.tool.returns_private_data


def summary_at(start: str) -> str:
    """Return the summary with which a stored preview begins; empty when it has none."""
    if not start.startswith(SUMMARY_MARK):
        return ""
    try:
        return str(json.JSONDecoder().raw_decode(start, len(SUMMARY_MARK))[0])
    except ValueError:
        return ""


def _named(viewer: "User", public_id: str) -> ApprovalRequest | None:
    try:
        return seen_by(viewer, public_id) if public_id else None
    except ApprovalRequest.DoesNotExist:
        return None


def _first(viewer: "User", listed: Sequence[ApprovalRequest]) -> ApprovalRequest | None:
    return _named(viewer, listed[0].public_id) if listed else None


def _last_decided(viewer: "User") -> ApprovalRequest | None:
    return _lean(requests_for(viewer).filter(decided_at__isnull=False)).order_by("-decided_at").first()
