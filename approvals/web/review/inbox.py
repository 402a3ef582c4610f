"""The inbox: a list of requests and the selected request in detail. Never writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from math import ceil
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import User
from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery, prefetch_related_objects
from django.db.models.functions import Left
from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext
from rest_framework.exceptions import ValidationError

from approvals.models import ApprovalRequest, Review, Round
from approvals.queue.grouping import RequestGroup, group_requests
from approvals.queue.saved_views import (
    DECIDED,
    HOME,
    NEEDS_ME,
    SAVED_VIEWS,
    WAITING,
    Queues,
    ViewCounts,
    count_duplicates,
)
from approvals.requests.deadlines import expire_and_load
from approvals.requests.privacy import hidden_from
from approvals.requests.queries import answered_by, is_last_decision, last_review, requests_for
from approvals.reviews.batch import MAX_BATCH_ITEMS, individual_objection
from approvals.states import UNDOABLE, RequestStatus
from approvals.web.review.decision_form import WRITTEN_ANSWERS, countdown_message, final_message
from approvals.web.review.detail import RequestDetail, detail_for
from catalog.calls.privacy import PrivateCallParts, can_see_private
from catalog.core import clock
from catalog.rest.pagination import Page, PageCursor, PageParameters, paginate
from catalog.secrets.placeholders import describe_placeholders

ARGUMENT_VIEWS = ("json", "edit", "respond", *WRITTEN_ANSWERS)
"""Other views of a request: arguments as JSON, edit form, form to answer instead of the tool, bar of one answer."""
REQUESTS_PER_PAGE = 50
REQUESTS_ON_HOME = 3
# A stored preview begins with its summary, so that a list need not read the texts after it.
SUMMARY_PREFIX = '{"summary": '
SUMMARY_PREFIX_LENGTH = 8192
CURRENT_ROUND = Round.objects.filter(request=OuterRef("pk"), number=OuterRef("round_number"))
PREVIEW_START = Left(Subquery(CURRENT_ROUND.values("preview")[:1]), SUMMARY_PREFIX_LENGTH)
MOST_READ = 5000
"""Most requests whose previews are read by a search: those of a long queue take too long for a keystroke."""
MOST_SEARCHED = 50
"""Requests with a word in the beginning of their preview, among which a search by summary chooses."""


@dataclass(frozen=True, slots=True)
class InboxQuery:
    """Query parameters of the inbox; `ignored` is an unknown value of `status`."""

    status: str = ""
    item: str = ""
    view: str = ""
    cursor: PageCursor | None = None
    ignored: str = ""

    @property
    def path(self) -> str:
        """The path of the page with this list."""
        return page_path(self.status)

    @classmethod
    def read(cls, params: QueryDict) -> "InboxQuery":
        """Return the query of a URL; invalid values are ignored."""
        return InboxForm(params).query


class InboxForm(forms.Form):
    """Query parameters of the inbox. `before` and `after` are cursors of decided and of open requests."""

    status = forms.ChoiceField(required=False, choices=[(name, name) for name in (*SAVED_VIEWS, HOME)])
    item = forms.CharField(required=False, max_length=64)
    view = forms.ChoiceField(required=False, choices=[(name, name) for name in ARGUMENT_VIEWS])
    before = forms.IntegerField(required=False, min_value=0, max_value=10**18)
    after = forms.CharField(required=False, max_length=1000)

    def clean_before(self) -> PageCursor | None:
        number = self.cleaned_data["before"]
        return None if number is None else PageCursor(back=False, value=number, pk=number)

    def clean_after(self) -> PageCursor | None:
        """Return the cursor of a list of open requests; None if the cursor has no valid time."""
        try:
            cursor = PageCursor.read(self.cleaned_data["after"])
            moment = parse_datetime(str(cursor.value)) if cursor else None
            if moment is None or moment.tzinfo is None:
                return None
            moment.astimezone(UTC)  # databases store UTC, in which the first and last times with an offset do not exist
            return cursor
        except (ValidationError, ValueError, OverflowError):
            return None

    @property
    def query(self) -> InboxQuery:
        """The valid values. An invalid `item` is kept in part, so that the page can report that it does not exist."""
        self.is_valid()
        valid = self.cleaned_data
        return InboxQuery(
            status=valid.get("status", ""),
            item=valid.get("item", self.data.get("item", "").replace("\x00", "")[:64]),
            view=valid.get("view", ""),
            cursor=valid.get("before") or valid.get("after"),
            ignored=self.data.get("status", "") if "status" in self.errors else "",
        )


@dataclass(frozen=True, slots=True)
class UndoableDecision:
    """A decision that its reviewer can still undo: the request's id and summary, the message, and the seconds left.

    `final` is the message once the seconds are over. For several requests decided together `batch` is set; `id` and
    `seconds` are of the request whose undo time ends first. `is_last` is False if the reviewer has made a later
    decision, which is final.
    """

    id: str
    summary: str
    said: str
    final: str
    seconds: int
    batch: str = ""
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Inbox:
    """One page of a list and the selected request.

    `status` is the name of the view, `before` the number of requests on earlier pages, `older` or `later` the cursor of
    the next page; `missing` is the id in the URL if the viewer may not see it.
    """

    status: str
    groups: Sequence[RequestGroup]
    viewer: User
    queues: Queues
    shown: RequestDetail | None = None
    opened: bool = False
    missing: str = ""
    ignored: str = ""
    view: str = ""
    before: int = 0
    older: int | None = None
    later: str = ""
    last_decided: ApprovalRequest | None = None

    @property
    def is_home(self) -> bool:
        """True for the short list on the home page, which shows a change whole or not at all."""
        return self.status == HOME

    @property
    def path(self) -> str:
        """The path of the page that shows a request beside this list."""
        return page_path(self.status)

    @property
    def listed_as(self) -> str:
        """The value of `status` with which the review desk shows this list; empty for the list that it opens with."""
        return {WAITING: "", HOME: NEEDS_ME}.get(self.status, self.status)

    @property
    def feed(self) -> str:
        """The path of the socket that keeps the list up to date, below /ws/pages/."""
        if self.status == DECIDED:
            return "shell"
        return "inbox" if self.status == WAITING else f"inbox/{self.status}"

    @property
    def requests(self) -> list[ApprovalRequest]:
        return [request for group in self.groups for request in group.requests]

    @property
    def counts(self) -> ViewCounts:
        return self.queues.counts

    @property
    def waiting(self) -> int:
        return self.queues.waiting

    @property
    def undoable(self) -> UndoableDecision | None:
        """The last decision that the viewer can still undo; None if there is none."""
        return last_undoable(self.viewer)

    @property
    def total(self) -> int:
        """Number of requests on all pages of the view; for decided requests, only the number on this page."""
        if self.status == DECIDED:
            return len(self.requests)
        if self.is_home:
            return self.queues.needed
        return self.waiting if self.status == WAITING else int(getattr(self.counts, self.status))

    @property
    def through(self) -> int:
        """Position of this page's last request in the view, from 1."""
        return self.before + len(self.requests)

    @property
    def position(self) -> int | None:
        """Position of the selected request in the view, from 1; None if the view does not contain the request."""
        ids = [request.pk for request in self.requests]
        shown = self.shown.request.pk if self.shown and self.status != DECIDED else None
        return self.before + ids.index(shown) + 1 if shown in ids else None


def inbox_for(viewer: User, query: InboxQuery) -> Inbox:
    """Return the inbox for a URL, in a fixed number of queries.

    If the view contains the named request, the list is the page with that request.
    """
    named = _find_request(viewer, query.item)
    status = query.status or (DECIDED if named is not None and named.status != RequestStatus.PENDING else WAITING)
    listed = _list_page(viewer, status, query.cursor, named)
    shown = named
    if named is None and not query.item and listed.groups:
        shown = _find_request(viewer, listed.requests[0].public_id)
    last_decided = None
    if shown is None and status != HOME:
        decided = _load_listed_fields(requests_for(viewer).filter(decided_at__isnull=False))
        last_decided = decided.order_by("-decided_at").first()
    detail = detail_for(shown, viewer) if shown else None
    if detail is not None and any(row.pk == detail.request.pk and not row.duplicates for row in listed.requests):  # type: ignore[attr-defined] # counted for the list
        detail.duplicates = []
    return replace(
        listed,
        shown=detail,
        opened=bool(query.item),
        missing=query.item if named is None else "",
        ignored=query.ignored[:40],
        view=query.view,
        last_decided=last_decided,
    )


def inbox_list(viewer: User, view: str = WAITING) -> Inbox:
    """Return the list of one view without a selected request; only open requests are counted."""
    return _list_page(viewer, view)


def next_request_id(viewer: User, view: str, request: ApprovalRequest) -> str:
    """Return the id of the request to open after this one is decided: the next or first in the list, or ""."""
    queues = Queues(viewer)
    page = _page_keys(queues, view, _start_of_page(queues, view, request))
    ids = _ids_in_order(viewer, queues, view, page.rows)
    following = ids[ids.index(request.public_id) + 1 :] if request.public_id in ids else ids
    if not following:  # continue with the next page or, after the last one, with the first
        following = _ids_in_order(viewer, queues, view, _page_keys(queues, view, page.next).rows)
    return next((each for each in following if each != request.public_id), "")


def _ids_in_order(viewer: User, queues: Queues, view: str, requests: Sequence[ApprovalRequest]) -> list[str]:
    found = ApprovalRequest.objects.only("public_id", "plan_ref").in_bulk([row.pk for row in requests])
    groups = _grouped(viewer, queues, view, [found[row.pk] for row in requests if row.pk in found])
    return [request.public_id for group in groups for request in group.requests]


def _grouped(viewer: User, queues: Queues, view: str, requests: list[ApprovalRequest]) -> list[RequestGroup]:
    if view == HOME:  # too few to be grouped
        return [RequestGroup("", requests=requests)] if requests else []
    return group_requests(viewer, requests, queues.expiring(view))


def last_undoable(viewer: User) -> UndoableDecision | None:
    """Return the last decision, or batch of decisions, that the viewer can still undo; None if there is none."""
    now = clock.now()
    waiting = requests_for(viewer).filter(status__in=UNDOABLE, applied_at=None, effective_at__gt=now)
    mine = waiting.filter(reviews__person=viewer.pk, reviews__undone_at=None)
    keys = list(mine.order_by().values_list("pk", flat=True))
    if not keys:  # as on most pages, which then build no wide query
        return None
    listed = _load_listed_fields(ApprovalRequest.objects.filter(pk__in=keys)).prefetch_related(REVIEWS_PREFETCH)
    requests = list(listed.order_by("-decided_at", "-id")[:MAX_BATCH_ITEMS])
    reviews = [(last_review(request), request) for request in requests]
    own = [(review, request) for review, request in reviews if review is not None and review.person_id == viewer.pk]
    if not own:
        return None
    last = own[0][0]
    together = [request for review, request in own if last.batch and review.batch == last.batch]
    ends, request = min(
        ((each.effective_at or now, each) for each in together or [own[0][1]]), key=lambda pair: pair[0]
    )
    summary = _summary(viewer, request)
    if len(together) > 1:
        summary = gettext("%(count)s requests") % {"count": len(together)}
    return UndoableDecision(
        request.public_id,
        summary,
        countdown_message(last.verdict, request),
        final_message(last.verdict, request),
        ceil((ends - now).total_seconds()),
        last.batch if len(together) > 1 else "",
        is_last_decision(last),
    )


def summary_of(viewer: User, request: ApprovalRequest) -> str:
    """Return a call's summary as this viewer may see it."""
    return _summary(viewer, _load_listed_fields(ApprovalRequest.objects.filter(pk=request.pk)).get())


def _summary(viewer: User, request: ApprovalRequest) -> str:
    (listed,) = _with_summaries(viewer, [request])
    return str(listed.summary)  # type: ignore[attr-defined] # see _with_summaries


def _list_page(
    viewer: User, view: str, cursor: PageCursor | None = None, selected_request: ApprovalRequest | None = None
) -> Inbox:
    queues = Queues(viewer)
    page = _page(queues, view, (_start_of_page(queues, view, selected_request) if selected_request else None) or cursor)
    rows = _with_summaries(viewer, page.rows)
    count_duplicates(viewer, rows)
    older = page.next.pk if view == DECIDED and page.next else None
    later = page.next.text() if view != DECIDED and page.next else ""
    before = _count_before(queues, view, rows[0]) if rows and page.previous and view != DECIDED else 0
    groups = _grouped(viewer, queues, view, rows)
    return Inbox(view, groups, viewer, queues, before=before or 0, older=older, later=later)


def _page(queues: Queues, view: str, cursor: PageCursor | None = None) -> Page[ApprovalRequest]:
    """Return one page of a view, sorted by age."""
    page = _page_keys(queues, view, cursor)  # sort narrow rows first, then fetch the wide ones by key
    keys = [row.pk for row in page.rows]
    found = _load_listed_fields(ApprovalRequest.objects.filter(pk__in=keys))
    rows = (found.prefetch_related(REVIEWS_PREFETCH) if view == DECIDED else found).in_bulk() if keys else {}
    return replace(page, rows=[rows[key] for key in keys if key in rows])


def _page_keys(queues: Queues, view: str, cursor: PageCursor | None = None) -> Page[ApprovalRequest]:
    """Return the keys of one page: open requests oldest first, those that expire soon before all others.

    The list on the home page has one page only.
    """
    if view == HOME:
        return Page(queues.first_needed(REQUESTS_ON_HOME), next=None, previous=None)
    order = "-id" if view == DECIDED else "opened_at"
    place = cursor if cursor is not None and isinstance(cursor.value, int) == (view == DECIDED) else None
    soon = queues.expiring(view)
    others = queues.of(view).exclude(pk__in=soon) if soon else queues.of(view)
    page = paginate(others.only("pk", "opened_at"), order=order, at=PageParameters(REQUESTS_PER_PAGE, place))
    if soon and place is None:
        found = ApprovalRequest.objects.only("pk", "opened_at").in_bulk(soon)
        page = replace(page, rows=[*(found[pk] for pk in soon if pk in found), *page.rows])
    return page


def _count_before(queues: Queues, view: str, request: ApprovalRequest) -> int | None:
    """Return the number of requests that precede this one in a view of open requests; None if it is not in the view."""
    soon = queues.expiring(view)
    if request.pk in soon:
        return soon.index(request.pk)
    older = Q(opened_at__lt=request.opened_at) | Q(opened_at=request.opened_at, pk__lt=request.pk)
    counts = {"before": Count("pk", filter=older), "here": Count("pk", filter=Q(pk=request.pk))}
    found = queues.of(view).exclude(pk__in=soon).aggregate(**counts)
    return len(soon) + found["before"] if found["here"] else None


def _start_of_page(queues: Queues, view: str, request: ApprovalRequest) -> PageCursor | None:
    """Return the cursor of the page that contains a request; None for the first page, or if it is not in the view."""
    if view in (DECIDED, HOME) or request.status != RequestStatus.PENDING:
        return None
    soon = queues.expiring(view)
    older = max(0, (_count_before(queues, view, request) or 0) - len(soon))
    start = older // REQUESTS_PER_PAGE * REQUESTS_PER_PAGE
    if not start:
        return None
    others = queues.of(view).exclude(pk__in=soon).only("pk", "opened_at")
    last = others.order_by("opened_at", "pk")[start - 1]
    return PageCursor(back=False, value=str(last.opened_at), pk=last.pk)


def page_path(status: str) -> str:
    """Return the path of the page with this list."""
    return "/" if status == HOME else "/approvals/"


def inbox_url(public_id: str = "", status: str = "") -> str:
    """Return the address of a request beside the list `status`."""
    parts = {"item": public_id, "status": "" if status in (HOME, WAITING) else status}
    query = urlencode({name: value for name, value in parts.items() if value})
    return f"{page_path(status)}?{query}" if query else page_path(status)


LISTED_FIELDS = (
    *(
        "public_id",
        "status",
        "round_number",
        "likeness",
        "plan_ref",
        "opened_at",
        "expires_at",
        "decided_at",
        "effective_at",
    ),
    *("call__tool_name", "call__plan_ref", "call__step_ref", "call__token", "call__requested_by"),
    *("tool_version__reversibility", "tool_version__tool__name"),
    *("policy_revision__tool", "policy_revision__batchable", "policy_revision__typed_target"),
    *("policy_revision__min_review_seconds", "policy_revision__fresh_sign_in_seconds", "policy_revision__policy__name"),
    *("claimed_until", "claimed_by__username", "claimed_by__first_name", "claimed_by__last_name"),
)
"""Columns for lists of requests: never arguments, results and the texts of previews."""
REVIEWS_PREFETCH = Prefetch("reviews", Review.objects.select_related("person").order_by("id"))


def listed_requests(viewer: User, keys: Sequence[int]) -> list[ApprovalRequest]:
    """Return requests by their keys, in this order, with reviewers, requesters and summaries."""
    found = _load_listed_fields(ApprovalRequest.objects.filter(pk__in=keys))
    by_key = found.prefetch_related(REVIEWS_PREFETCH, "call__requested_by").in_bulk()
    return _with_summaries(viewer, [by_key[key] for key in keys if key in by_key])


def _load_listed_fields(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """Load the columns for lists; reviewers are prefetched separately with `REVIEWS_PREFETCH`."""
    related = ("call", "tool_version__tool", "policy_revision__policy", "claimed_by")
    listed = requests.select_related(*related).only(*LISTED_FIELDS)
    return listed.annotate(preview_start=PREVIEW_START, is_deceptive=Subquery(CURRENT_ROUND.values("is_deceptive")[:1]))


def _with_summaries(viewer: User, requests: Sequence[ApprovalRequest]) -> list[ApprovalRequest]:
    """Set `summary`, `answered_by` and `batch_objection` on each request, as this viewer may see them."""
    listed = list(requests)
    hidden = _set_summaries(viewer, listed)
    for request in listed:
        request.is_deceptive = request.is_deceptive and request.call_id not in hidden  # type: ignore[attr-defined] # see _load_listed_fields
        request.answered_by = answered_by(request)  # type: ignore[attr-defined] # for pages
        request.batch_objection = individual_objection(request)  # type: ignore[attr-defined] # for pages
    return listed


def _set_summaries(viewer: User, requests: Sequence[ApprovalRequest]) -> Mapping[int, PrivateCallParts]:
    """Set `summary` on requests that have `preview_start`; return the private parts hidden from this viewer."""
    if not can_see_private(viewer):
        prefetch_related_objects(requests, "call__requesters", "delegations")
    hidden = hidden_from(viewer, requests) if requests else {}
    for request in requests:
        summary = "" if request.call_id in hidden else parse_summary(request.preview_start)  # type: ignore[attr-defined] # annotated
        run = gettext("Run %(tool)s") % {"tool": request.call.tool_name}
        request.summary = describe_placeholders(summary) or run  # type: ignore[attr-defined] # for pages
    return hidden


def summarised_requests(
    viewer: User, requests: "QuerySet[ApprovalRequest]", words: Sequence[str] = (), *, most: int
) -> list[ApprovalRequest]:
    """Return the first `most` of these visible requests that have each word in their summary or their tool's name.

    `summary` is set on each, as this viewer may see it, and only what they see is searched. With words, the requests
    are in the order in which they were opened, and the first MOST_READ are searched.
    """
    asker = (f"call__requested_by__{name}" for name in ("username", "first_name", "last_name"))
    columns = ("public_id", "call__tool_name", "call__token", "call__plan_ref", "call__step_ref", *asker)
    if words:
        # A time and no subquery: PostgreSQL would read all previews before it applied that.
        for opened_at in requests.values_list("opened_at", flat=True)[MOST_READ : MOST_READ + 1]:
            requests = requests.filter(opened_at__lt=opened_at)
    found = requests.select_related("call__requested_by").only(*columns).annotate(preview_start=PREVIEW_START)
    for word in words:
        found = found.filter(Q(call__tool_name__icontains=word) | _preview_has(word))
    listed: list[ApprovalRequest] = list(found[: MOST_SEARCHED if words else most])
    _set_summaries(viewer, listed)
    shown = [(f"{request.call.tool_name} {request.summary}".casefold(), request) for request in listed]  # type: ignore[attr-defined] # see above
    return [request for text, request in shown if all(word.casefold() in text for word in words)][:most]


def _preview_has(word: str) -> Q:
    """Return the condition for a stored preview with this word. It is ASCII: other letters are escaped in it."""
    spellings = (word,) if word.isascii() else (word, word.lower(), word.upper(), word.capitalize())
    escaped = dict.fromkeys(json.dumps(each)[1:-1] for each in spellings)
    return Q(*(("preview_start__icontains", each) for each in escaped), _connector=Q.OR)


def parse_summary(start: str) -> str:
    """Return the summary from the beginning of a stored preview; empty if it has none."""
    if not start.startswith(SUMMARY_PREFIX):
        return ""
    try:
        return str(json.JSONDecoder().raw_decode(start, len(SUMMARY_PREFIX))[0])
    except ValueError:
        return ""


def _find_request(viewer: User, public_id: str) -> ApprovalRequest | None:
    try:
        return expire_and_load(viewer, public_id) if public_id else None
    except ApprovalRequest.DoesNotExist:
        return None
