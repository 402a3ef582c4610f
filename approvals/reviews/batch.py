"""Many answers at once: every request is judged and decided by itself, in a transaction of its own.

Together are approved only requests of one tool whose rule says so; what is named is the requests and what was seen of
each, so that a selection which has moved decides nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from django.contrib.auth.models import User
from django.db.models import Prefetch

from approvals.audit.restore_guard import ensure_not_restored
from approvals.models import ApprovalRequest, PolicyRevision
from approvals.requests.queries import requests_for
from approvals.reviews import coordination
from approvals.reviews.confirmation import requires_individual_review
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.definitions.levels import Reversibility
from catalog.errors import Conflict, ParameterError, RestoredDatabase, ToolgateError, field_error
from catalog.models import ToolVersion

ItemT = TypeVar("ItemT", bound="BatchItem")
MAX_BATCH_ITEMS = 100
SNOOZE = "snooze"
VERDICTS = (ReviewVerdict.APPROVE.value, ReviewVerdict.REJECT.value, SNOOZE)
NOT_FOUND_MESSAGE = "There is no such request, or it is not yours to see."
RESULT_BY_ERROR = {
    RestoredDatabase: "restored",
    Conflict: "conflict",
    NotAllowed: "forbidden",
    ParameterError: "invalid",
}
"""What is said of an item that was not recorded, by what its own review would have raised, the nearest kind first."""


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One request of a batch, and the digest of what was seen of it."""

    id: str
    seen_digest: str = ""


@dataclass(frozen=True, slots=True)
class BatchItemResult:
    """What became of one item: the request's status, or why nothing did, which `detail` then says."""

    id: str
    status: str
    detail: str = ""


def decide_many(
    by: User, verdict: str, comment: str, items: Sequence[BatchItem], channel: Literal["rest", "page"] = "rest"
) -> list[BatchItemResult]:
    """Give one answer to many requests; each is told by itself what became of it, in the order of the items.

    Raises ParameterError, and decides nothing, for too many items, one named twice, and requests that cannot be
    decided together.
    """
    ensure_not_restored()
    verdict = ReviewVerdict(verdict)
    held = _load_requests(by, items)
    waiting = [request for request in held.values() if request.status == RequestStatus.PENDING]
    why_not = batch_objection(waiting, verdict)
    if why_not is not None:
        raise field_error("items", "not_together", why_not)

    def answer(item: BatchItem) -> ApprovalRequest:
        return decide(
            held[item.id], by=by, decision=Decision(verdict, item.seen_digest, comment=comment, channel=channel)
        )

    return [_result(item, held, answer) for item in items]


def batch_status(by: User, items: Sequence[BatchItem]) -> list[BatchItemResult]:
    """Return where the requests of a batch stand whose own answer was lost."""
    held = _load_requests(by, items)
    found = {public_id: BatchItemResult(public_id, str(request.status)) for public_id, request in held.items()}
    return [found.get(item.id) or BatchItemResult(item.id, "not_found", NOT_FOUND_MESSAGE) for item in items]


def snooze_many(by: User, until: datetime, items: Sequence[BatchItem]) -> list[BatchItemResult]:
    """Put many requests off for oneself; raises what `decide_many` raises."""
    ensure_not_restored()
    held = _load_requests(by, items)
    return [_result(item, held, lambda each: coordination.snooze(held[each.id], by=by, until=until)) for item in items]


def batch_objection(requests: Iterable[ApprovalRequest], verdict: str) -> str | None:
    """Return why these requests cannot be decided together, with what can be done; None when they can.

    Whether a person may decide each of them is judged request by request. Rejecting has no obstacle: it does no harm.
    """
    listed = list(requests)
    if verdict != ReviewVerdict.APPROVE:
        return None
    tools = sorted({request.tool_version.tool.name for request in listed})
    if len(tools) > 1:
        return f"Only requests of one tool are approved together; these are of {', '.join(tools)}. Reject is for all."
    return next(filter(None, map(_request_objection, listed)), None)


def _request_objection(request: ApprovalRequest) -> str | None:
    terms, tool = request.policy_revision, request.tool_version.tool.name
    name = f"The policy “{terms.policy.name}”"
    if not terms.batchable:
        return f"{name} lets calls of {tool} be approved one by one only."
    if request.tool_version.reversibility == Reversibility.IRREVERSIBLE and terms.tool != tool:
        return f"What {tool} does cannot be undone. {name} does not name this tool alone: approve one by one."
    if requires_individual_review(terms):
        return f"{name} asks for a closer look at each call: approve one by one."
    return None


def _load_requests(by: User, items: Sequence[BatchItem]) -> dict[str, ApprovalRequest]:
    """Return the requests that the items name and the person may see. Raises ParameterError for what is no batch."""
    ids = [item.id for item in items]
    if not 1 <= len(ids) <= MAX_BATCH_ITEMS:
        raise field_error("items", "too_many" if ids else "required", f"Name 1 to {MAX_BATCH_ITEMS} requests.")
    if len(set(ids)) < len(ids):
        twice = next(public_id for public_id in ids if ids.count(public_id) > 1)
        raise field_error("items", "duplicate", f"{twice} is named twice; name each request once.")
    found = requests_for(by).filter(public_id__in=ids)
    asked = found.select_related("call__requested_by").prefetch_related("call__requesters")
    # A tool or a rule, which many of them share, is read once for all.
    shared = (
        Prefetch("tool_version", ToolVersion.objects.select_related("tool")),
        Prefetch("policy_revision", PolicyRevision.objects.select_related("policy")),
    )
    return {request.public_id: request for request in asked.prefetch_related(*shared)}


def _result(
    item: BatchItem, held: dict[str, ApprovalRequest], act: Callable[[BatchItem], ApprovalRequest]
) -> BatchItemResult:
    if item.id not in held:
        return BatchItemResult(item.id, "not_found", NOT_FOUND_MESSAGE)
    return answer_item(item, lambda each: BatchItemResult(each.id, act(each).status))


def answer_item(item: ItemT, answer: Callable[[ItemT], BatchItemResult]) -> BatchItemResult:
    """Answer one item and say what became of it; the others do not depend on it."""
    try:
        return answer(item)
    except ToolgateError as error:
        word = next((word for kind, word in RESULT_BY_ERROR.items() if isinstance(error, kind)), None)
        if word is None:
            raise
        return BatchItemResult(item.id, word, error.message)
