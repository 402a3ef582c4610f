"""How the last calls like this one were answered, and what came of them. A past approval is not permission.

Alike are calls of one tool whose arguments have the same shape: the same names, and values of the same kind, in the
same folder, at the same host, for the same domain. Never writes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Prefetch

from approvals.models import ApprovalRequest, Review
from approvals.requests.queries import last_review
from approvals.states import RequestStatus
from catalog.models import ToolVersion
from catalog.states import TERMINAL

ANSWERED = (
    RequestStatus.APPROVED,
    RequestStatus.CONSUMED,
    RequestStatus.REJECTED,
    RequestStatus.RESPONDED,
    RequestStatus.CHANGES_REQUESTED,
    RequestStatus.REVOKED,
)
RAN = (RequestStatus.CONSUMED, RequestStatus.RESPONDED)
REQUESTS_SEARCHED = 25
"""How many of the tool's last requests are compared."""
VERSIONS_SEARCHED = 3
MAX_ARGUMENTS_LENGTH = 16_384
"""Characters of arguments from which on calls are not compared: they are alike in nothing that a person sees."""
MAIL = re.compile(r"[^@\s/]+@([^@\s/]+)")
MAX_SHAPE_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Precedent:
    """One earlier request, the review that counted, and whether its call was like the one that is asked for now."""

    request: ApprovalRequest
    review: Review | None
    alike: bool

    @property
    def outcome(self) -> str | None:
        """How its run ended, in the words of calls; None when it did not run, or runs still."""
        status = self.request.call.status
        return status if self.request.status in RAN and status in _FINAL_OUTCOMES else None


_FINAL_OUTCOMES = {*map(str, TERMINAL), "outcome_unknown"}


def precedents_for(request: ApprovalRequest, limit: int = 5) -> list[Precedent]:
    """Return the last answered requests of the same tool, those alike first, newest first: for who may see them all."""
    shape = arguments_shape(request.call.arguments)
    alike = {pk: shape is not None and arguments_shape(text) == shape for pk, text in _last_answered(request)}
    chosen = sorted(alike, key=lambda pk: (alike[pk], pk), reverse=True)[:limit]
    found = _with_reviews(chosen) if chosen else {}
    return [Precedent(found[pk], last_review(found[pk]), alike[pk]) for pk in chosen if pk in found]


def _with_reviews(keys: Sequence[int]) -> dict[int, ApprovalRequest]:
    """Load what is told of earlier requests: how each was answered, and how its run ended."""
    reviews = Review.objects.select_related("person").order_by("id")
    earlier = ApprovalRequest.objects.select_related("call").only("public_id", "status", "decided_at", "call__status")
    return earlier.prefetch_related(Prefetch("reviews", reviews)).in_bulk(keys)


def _last_answered(request: ApprovalRequest) -> list[tuple[int, str]]:
    """Return keys and arguments of the tool's last answered requests, version by version: each by the order of keys."""
    versions = ToolVersion.objects.filter(tool=request.tool_version.tool_id).order_by("-number")
    found: list[tuple[int, str]] = []
    for version in versions.values_list("pk", flat=True)[:VERSIONS_SEARCHED]:
        decided = ApprovalRequest.objects.filter(tool_version=version, decided_at__isnull=False)
        answered = decided.filter(status__in=ANSWERED).exclude(pk=request.pk).order_by("-id")
        found += answered.values_list("pk", "call__arguments")[: REQUESTS_SEARCHED - len(found)]
        if len(found) == REQUESTS_SEARCHED:
            break
    return found


def arguments_shape(arguments: str) -> Any:
    """Return the shape of a call's arguments, given as stored; None when they are too long to be compared."""
    return _shape(json.loads(arguments), 0) if len(arguments) <= MAX_ARGUMENTS_LENGTH else None


def _shape(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth < MAX_SHAPE_DEPTH:
        return {name: _shape(inner, depth + 1) for name, inner in value.items()}
    return _text_shape(value) if isinstance(value, str) else type(value).__name__


def _text_shape(text: str) -> str:
    """Say what a text names, without what differs from call to call: a host, a domain, a folder, or any text."""
    if "\n" in text or len(text) > 1000:
        return "text"
    if "://" in text:
        return f"at {_host(text)}"
    mail = MAIL.fullmatch(text)
    if mail:
        return f"@{mail[1].lower()}"
    folder, slash, _ = text.rpartition("/")
    return f"in {folder}/" if slash and " " not in folder else "text"


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
