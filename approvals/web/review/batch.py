"""Batch review: several requests on one page with a table of their differences, one decision, and its results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.translation import gettext

from approvals.models import ApprovalRequest
from approvals.requests.queries import requests_for, with_related
from approvals.reviews.batch import MAX_BATCH_ITEMS, BatchItem, BatchItemResult, batch_objection, decide_many
from approvals.states import ReviewVerdict
from approvals.web.review.detail import RequestDetail, details_for
from approvals.web.review.rendering import ArgumentRow, render_argument
from catalog.errors import ToolgateError


class BatchReview:
    """The selected requests, with `results` or a `setback` of a submission; `intent` is "reject" or ""."""

    def __init__(self, viewer: User, requests: Sequence[ApprovalRequest]) -> None:
        self.viewer = viewer
        self.requests = requests
        self.results: list[BatchResultLine] = []
        self.setback = ""
        self.asks_again = False
        self.intent = ""
        self.comment = ""

    @cached_property
    def request_details(self) -> list[RequestDetail]:
        return details_for(self.requests, self.viewer)

    @cached_property
    def waiting(self) -> list[ApprovalRequest]:
        return [each.request for each in self.request_details if each.is_open]

    @property
    def tool(self) -> str:
        """Name of the tool of all requests; empty if they have different tools."""
        tools = {request.call.tool_name for request in self.requests}
        return next(iter(tools)) if len(tools) == 1 else ""

    @cached_property
    def obstacle(self) -> str | None:
        """Reason why the requests cannot be approved together; None if they can."""
        return batch_objection(self.waiting, ReviewVerdict.APPROVE)

    @property
    def second_press(self) -> str:
        """Reason why approving needs a second press of the button; empty if one press is enough."""
        reasons = [each.second_press for each in self.request_details if each.request in self.waiting]
        return next(filter(None, reasons), "")

    @property
    def needs_reason(self) -> bool:
        return any(each.actions.needs_reason for each in self.request_details if each.is_open)

    @cached_property
    def names(self) -> list[str]:
        """Names of the arguments that differ between the requests."""
        every = dict.fromkeys(name for each in self.request_details for name in each.arguments)
        return [name for name in every if not self._is_shared(name)]

    @cached_property
    def shared(self) -> list[ArgumentRow]:
        """Arguments that are the same in all requests."""
        first = self.request_details[0].arguments if self.request_details else {}
        return [render_argument(name, value) for name, value in first.items() if self._is_shared(name)]

    def _is_shared(self, name: str) -> bool:
        given = [each.arguments for each in self.request_details]
        values = {json.dumps(each[name], sort_keys=True) if name in each else "" for each in given}
        return len(values) <= 1

    @cached_property
    def rows(self) -> list[tuple[RequestDetail, list[ArgumentRow | None]]]:
        """Each request with its values of the differing arguments."""
        found = []
        for each in self.request_details:
            given = each.arguments
            row = [render_argument(name, given[name]) if name in given else None for name in self.names]
            found.append((each, row))
        return found


@dataclass(frozen=True, slots=True)
class BatchResultLine:
    """Result of one request in a batch: its title and the result of `approvals.reviews.batch`."""

    title: str
    item: BatchItemResult

    @property
    def is_done(self) -> bool:
        return not self.item.detail


def load_batch(viewer: User, ids: Sequence[str]) -> BatchReview:
    """Return the requests with these ids that the viewer may see, oldest first."""
    wanted = [public_id.replace("\x00", "")[:64] for public_id in ids[: MAX_BATCH_ITEMS + 1]]
    found = with_related(requests_for(viewer).filter(public_id__in=wanted)).order_by("opened_at", "id")
    return BatchReview(viewer, list(found))


def submit_batch(viewer: User, form: QueryDict) -> BatchReview:
    """Record one decision on the checked requests, each with the digest that was displayed."""
    items = [BatchItem(*text.split(":", 1)) for text in form.getlist("item") if text.count(":") == 1]
    several = load_batch(viewer, [item.id for item in items])
    several.comment = form.get("comment", "").replace("\r\n", "\n")
    verdict = form.get("verdict", "")
    if form.getlist("verdict") not in ([ReviewVerdict.APPROVE], [ReviewVerdict.REJECT]):
        several.setback = gettext("Choose whether to approve or to reject.")
        return several
    if verdict == ReviewVerdict.REJECT and several.needs_reason and not several.comment.strip():
        several.intent = verdict
        several.setback = gettext("Give a reason for the rejections, for the agents and the audit log.")
        return several
    if verdict == ReviewVerdict.APPROVE and several.second_press and form.get("confirmed") != "1":
        several.asks_again = True
        return several
    try:
        results = decide_many(viewer, verdict, several.comment, items, channel="page")
    except ToolgateError as error:
        several.setback = error.message
        return several
    titles = {each.request.public_id: "".join(each.title) for each in several.request_details}
    several.results = [BatchResultLine(titles.get(result.id, result.id), result) for result in results]
    return several
