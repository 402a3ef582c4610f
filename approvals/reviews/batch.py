"""Batch decisions: each request is checked and decided independently, in its own transaction.

Items carry the digests that the reviewer saw, so that a changed selection cannot decide anything else.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from django.contrib.auth.models import User
from django.db.models import Prefetch

from approvals.models import ApprovalRequest, PolicyRevision, Review
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.requests.queries import requests_for
from approvals.reviews import coordination
from approvals.reviews.confirmation import requires_individual_review
from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.reviews.passkeys import SIGNATURE_REQUIRED
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.definitions.levels import Reversibility
from catalog.errors import Conflict, ParameterError, ToolgateError, field_error
from catalog.models import ToolVersion

ItemT = TypeVar("ItemT", bound="BatchItem")
MAX_BATCH_ITEMS = 100
SNOOZE = "snooze"
VERDICTS = (ReviewVerdict.APPROVE.value, ReviewVerdict.REJECT.value, SNOOZE)
NOT_FOUND_MESSAGE = "Request not found, or you may not see it."
RESULT_BY_ERROR = {
    Conflict: "conflict",
    NotAllowed: "forbidden",
    ParameterError: "invalid",
}
"""Result codes of failed items by exception, most specific class first."""


@dataclass(frozen=True, slots=True)
class BatchItem:
    id: str
    seen_digest: str = ""


@dataclass(frozen=True, slots=True)
class BatchItemResult:
    """Result of one item: the request's new status, or an error code with the message in `detail`."""

    id: str
    status: str
    detail: str = ""


def decide_many(
    by: User, verdict: str, comment: str, items: Sequence[BatchItem], channel: Literal["rest", "page"] = "rest"
) -> list[BatchItemResult]:
    """Record the same decision on several requests; return the result of each, in the order of the items.

    Raises ParameterError without deciding anything if the items cannot be decided together, and NotAllowed if one needs
    a signature with a passkey.
    """
    verdict = ReviewVerdict(verdict)
    requests = _load_requests(by, items)
    waiting = [request for request in requests.values() if request.status == RequestStatus.PENDING]
    if verdict == ReviewVerdict.APPROVE and any(each.policy_revision.fresh_passkey for each in waiting):
        raise NotAllowed(SIGNATURE_REQUIRED)
    why_not = batch_objection(waiting, verdict)
    if why_not is not None:
        raise field_error("items", "not_together", why_not)

    batch = secrets.token_urlsafe(16)

    def answer(item: BatchItem) -> ApprovalRequest:
        decision = Decision(verdict, item.seen_digest, comment=comment, channel=channel, batch=batch)
        return decide(requests[item.id], by=by, decision=decision)

    return [_result(item, requests, answer) for item in items]


def undo_batch(by: User, batch: str) -> list[BatchItemResult]:
    """Undo one's own decisions of a batch and return the result of each. Raises Conflict if there are none."""
    reviews = Review.objects.filter(batch=batch, person=by, undone_at=None) if batch else Review.objects.none()
    ids = [each.request.public_id for each in reviews.select_related("request").order_by("id")]
    requests = requests_for(by).in_bulk(ids, field_name="public_id")
    if not requests:
        raise Conflict("There is no decision to undo.")
    items = [BatchItem(public_id) for public_id in ids if public_id in requests]
    return [_result(item, requests, lambda each: undo_decision(requests[each.id], by=by)) for item in items]


def batch_status(by: User, items: Sequence[BatchItem]) -> list[BatchItemResult]:
    """Return the current status of each request, for a client that lost the response to its batch."""
    requests = _load_requests(by, items)
    found = {public_id: BatchItemResult(public_id, str(request.status)) for public_id, request in requests.items()}
    return [found.get(item.id) or BatchItemResult(item.id, "not_found", NOT_FOUND_MESSAGE) for item in items]


def snooze_many(by: User, until: datetime, items: Sequence[BatchItem]) -> list[BatchItemResult]:
    """Snooze several requests for oneself. Raises the same exceptions as `decide_many`."""
    requests = _load_requests(by, items)
    return [
        _result(item, requests, lambda each: coordination.snooze(requests[each.id], by=by, until=until))
        for item in items
    ]


def batch_objection(requests: Iterable[ApprovalRequest], verdict: str) -> str | None:
    """Return why these requests cannot be decided together, with a remedy; None if they can be."""
    listed = list(requests)
    if verdict != ReviewVerdict.APPROVE:
        return None
    tools = sorted({request.tool_version.tool.name for request in listed})
    if len(tools) > 1:
        return (
            f"Only requests of one tool can be approved together; these are of {', '.join(tools)}. You can reject all."
        )
    return next(filter(None, map(individual_objection, listed)), None)


def individual_objection(request: ApprovalRequest) -> str | None:
    """Return the reason why a request cannot be approved in a batch; None if it can."""
    terms, tool = request.policy_revision, request.tool_version.tool.name
    name = f"The policy “{terms.policy.name}”"
    if tool == PROPOSE_ENVELOPE:
        return "Each proposed envelope is a task of its own: approve them one by one."
    if not terms.batchable:
        return f"{name} requires calls of {tool} to be approved one by one."
    if request.tool_version.reversibility == Reversibility.IRREVERSIBLE and terms.tool != tool:
        return f"{name} covers more than {tool}, which cannot be undone: approve one by one."
    if requires_individual_review(terms):
        return f"{name} requires each call to be reviewed individually: approve one by one."
    return None


def _load_requests(by: User, items: Sequence[BatchItem]) -> dict[str, ApprovalRequest]:
    """Return the visible requests of the items by id. Raises ParameterError for an invalid batch."""
    ids = [item.id for item in items]
    if not 1 <= len(ids) <= MAX_BATCH_ITEMS:
        raise field_error("items", "too_many" if ids else "required", f"Select 1 to {MAX_BATCH_ITEMS} requests.")
    if len(set(ids)) < len(ids):
        twice = next(public_id for public_id in ids if ids.count(public_id) > 1)
        raise field_error("items", "duplicate", f"{twice} is listed twice. List each request once.")
    found = requests_for(by).filter(public_id__in=ids)
    requests = found.select_related("call__requested_by").prefetch_related("call__requesters")
    # Tools and rules, which many requests share, are loaded once.
    shared = (
        Prefetch("tool_version", ToolVersion.objects.select_related("tool")),
        Prefetch("policy_revision", PolicyRevision.objects.select_related("policy")),
    )
    return {request.public_id: request for request in requests.prefetch_related(*shared)}


def _result(
    item: BatchItem, requests: dict[str, ApprovalRequest], decide_item: Callable[[BatchItem], ApprovalRequest]
) -> BatchItemResult:
    if item.id not in requests:
        return BatchItemResult(item.id, "not_found", NOT_FOUND_MESSAGE)
    return answer_item(item, lambda each: BatchItemResult(each.id, decide_item(each).status))


def answer_item(item: ItemT, answer: Callable[[ItemT], BatchItemResult]) -> BatchItemResult:
    """Process one item and return its result; an error does not affect the other items."""
    try:
        return answer(item)
    except ToolgateError as error:
        word = next((word for kind, word in RESULT_BY_ERROR.items() if isinstance(error, kind)), None)
        if word is None:
            raise
        return BatchItemResult(item.id, word, error.message)
