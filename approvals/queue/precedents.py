"""Precedents: recent decisions on the same tool and their outcomes. A past approval is no permission.

Calls are alike if their arguments have the same shape: the same names, and values of the same type, folder, host or
mail domain. Never writes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Prefetch

from approvals.models import ApprovalRequest, Review
from approvals.requests.queries import last_review
from approvals.states import RequestStatus
from catalog.errors import ParameterError
from catalog.models import ToolVersion
from catalog.schemas.defaults import fill_defaults
from catalog.states import TERMINAL

ANSWERED = (
    *(RequestStatus.APPROVED, RequestStatus.CONSUMED, RequestStatus.REJECTED),
    *(RequestStatus.RESPONDED, RequestStatus.CHANGES_REQUESTED, RequestStatus.REVOKED),
)
RAN = (RequestStatus.CONSUMED, RequestStatus.RESPONDED)
REQUESTS_SEARCHED = 25
"""Number of the tool's recent requests that are compared."""
VERSIONS_SEARCHED = 3
MAX_ARGUMENTS_LENGTH = 16_384
"""Calls with more characters of arguments are not compared."""
MAIL = re.compile(r"[^@\s/]+@([^@\s/]+)")
MAX_SHAPE_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Precedent:
    """An earlier request with its review; `alike` is True if the calls have the same shape."""

    request: ApprovalRequest
    review: Review | None
    alike: bool

    @property
    def outcome(self) -> str | None:
        """Final status of the call; None if it did not run or has not ended."""
        status = self.request.call.status
        return status if self.request.status in RAN and status in _FINAL_OUTCOMES else None


_FINAL_OUTCOMES = {*map(str, TERMINAL), "outcome_unknown"}


def precedents_for(request: ApprovalRequest, limit: int = 5) -> list[Precedent]:
    """Return recent answered requests for the same tool: alike requests first, then by time. Does not check access."""
    shape = arguments_shape(request.call.arguments, request.tool_version.input_schema)
    answered = _last_answered(request)
    alike = {pk: shape is not None and arguments_shape(text, schema) == shape for pk, text, schema in answered}
    chosen = sorted(alike, key=lambda pk: (alike[pk], pk), reverse=True)[:limit]
    reviews = Prefetch("reviews", Review.objects.select_related("person").order_by("id"))
    earlier = ApprovalRequest.objects.select_related("call").only("public_id", "status", "decided_at", "call__status")
    found = earlier.prefetch_related(reviews).in_bulk(chosen)
    return [Precedent(found[pk], last_review(found[pk]), alike[pk]) for pk in chosen if pk in found]


def _last_answered(request: ApprovalRequest) -> list[tuple[int, str, Mapping[str, Any]]]:
    """Return key, arguments and schema of the tool's recent answered requests, newest version of the tool first."""
    versions = ToolVersion.objects.filter(tool=request.tool_version.tool_id).order_by("-number")
    found: list[tuple[int, str, Mapping[str, Any]]] = []
    for version, schema in versions.values_list("pk", "input_schema")[:VERSIONS_SEARCHED]:
        decided = ApprovalRequest.objects.filter(tool_version=version, decided_at__isnull=False)
        answered = decided.filter(status__in=ANSWERED).exclude(pk=request.pk).order_by("-id")
        # PostgreSQL, while it has no statistics of a grown table, would join the calls before it limits the requests.
        last = ApprovalRequest.objects.filter(pk__in=answered.values("pk")[: REQUESTS_SEARCHED - len(found)])
        found += [(pk, text, schema) for pk, text in last.values_list("pk", "call__arguments")]
        if len(found) == REQUESTS_SEARCHED:
            break
    return found


def arguments_shape(arguments: str, schema: Mapping[str, Any]) -> Any:
    """Return the shape of stored arguments, with the schema's defaults filled in; None if they are too long."""
    if len(arguments) > MAX_ARGUMENTS_LENGTH:
        return None
    try:
        return _shape(fill_defaults(dict(schema), json.loads(arguments)).arguments, 0)
    except ParameterError:  # with defaults they are too long
        return None


def _shape(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth < MAX_SHAPE_DEPTH:
        return {name: _shape(inner, depth + 1) for name, inner in value.items()}
    return _text_shape(value) if isinstance(value, str) else type(value).__name__


def _text_shape(text: str) -> str:
    """Return the stable part of a text: its host, mail domain or folder; "text" if it has none of them."""
    if "\n" in text or len(text) > 1000:
        return "text"
    if "://" in text:
        try:
            return f"at {(urlsplit(text).hostname or '').lower()}"
        except ValueError:
            return "at "
    mail = MAIL.fullmatch(text)
    if mail:
        return f"@{mail[1].lower()}"
    folder, slash, _ = text.rpartition("/")
    return f"in {folder}/" if slash and " " not in folder else "text"
