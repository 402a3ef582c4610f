"""What a grant made out of a decided request would say: what was alike in the calls like it that were approved.

Where all had the same, the proposal asks for the same; where texts began alike, for that beginning; what varied
otherwise is left for the person to choose, and never left out. Held against history before it is made. Never writes.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from os.path import commonprefix
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.grants.conditions import Path, check_grant_rows, covers, leads_out, leaf_at, leaves
from approvals.grants.services import by_scope, scopes_of
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.conditions import MAX_ROWS
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.definitions.levels import USUAL_HOURS, USUAL_USES, GrantLimits
from catalog.errors import ParameterError
from catalog.models import Call
from catalog.secrets.placeholders import shown_text

MOST_APPROVALS = 50
MOST_CALLS = 1000
BACK_DAYS = 30
SHORTEST_PART = 2
MOST_SEEN = 10
Row = dict[str, Any]
_BOUNDARY = re.compile(r"^(.*[^0-9A-Za-z])")
_is_direct: list[Callable[[str], bool]] = []


def register_direct_plan_lookup(judge: Callable[[str], bool]) -> None:
    """Let whoever knows plans say, of a plan's id, whether it is only the plan of one direct call."""
    _is_direct[:] = [judge]


@dataclass(frozen=True, slots=True)
class Part:
    """One argument: what it is in the request, what it was in calls like it, and the row proposed; None: to choose."""

    path: str
    value: Any
    seen: tuple[Any, ...]
    row: Row | None


@dataclass(frozen=True, slots=True)
class History:
    """Held against the calls of the last days: how many would have been covered, and people had rejected."""

    calls: int
    covered: int
    rejected: int
    days: int = BACK_DAYS


@dataclass(frozen=True, slots=True)
class Proposal:
    """A grant as it is proposed; `alike` is of how many approved calls, this one among them."""

    request: ApprovalRequest
    parts: tuple[Part, ...]
    alike: int
    by_you: int
    scope: str
    scopes: Mapping[str, str]
    limits: GrantLimits
    history: History

    @property
    def rows(self) -> list[Row]:
        """The rows that are proposed; those to be chosen are not among them."""
        return [part.row for part in self.parts if part.row is not None]

    @property
    def hours(self) -> int:
        """How many hours it is to last unless told otherwise."""
        return min(USUAL_HOURS, self.limits.max_hours)

    @property
    def uses(self) -> int:
        """How often it is to be used unless told otherwise."""
        return min(USUAL_USES, self.limits.max_uses)

    @property
    def varied(self) -> list[Part]:
        """The arguments that were not the same in all."""
        return [part for part in self.parts if len(part.seen) > 1]

    @property
    def sentence(self) -> str:
        """What was alike, in words."""
        mine = f", {self.by_you} of them by you" if 0 < self.by_you < self.alike else ""
        if self.alike == 1:
            return "This is the only call like this that was approved: the proposal asks for exactly the same."
        who = "You approved" if self.by_you == self.alike else "People approved"
        if not self.varied:
            return f"{who} {self.alike} calls like this{mine}; all were made with the same arguments."
        return f"{who} {self.alike} calls like this{mine}; only {_listed(map(_varied, self.varied))} varied."


def _varied(part: Part) -> str:
    under = f" (under {part.row['value']})" if part.row is not None and part.row["operator"] == "starts_with" else ""
    return f"{part.path}{under}"


def _listed(words: Any) -> str:
    *first, last = list(words)
    return f"{', '.join(first)} and {last}" if first else str(last)


def propose(request: ApprovalRequest, by: User) -> Proposal:
    """Return what a grant out of this approved request would say. Raises LookupError where its tool has no grants."""
    limits = request.tool_version.tool.grant_limits
    if limits is None:
        raise LookupError(f"No grants may be made for {request.tool_version.tool.name}.")
    mine = _arguments(request.call.arguments)
    alike = [request, *_approved_like(request, mine)]
    texts = [_arguments(each.call.arguments) for each in alike]
    parts = tuple(_part(path, texts) for path in _named_paths(mine))
    scopes, scope = scopes_of(request), default_scope(request)
    by_you = sum(any(each.person_id == by.pk for each in one.reviews.all()) for one in alike)
    rows = [part.row or {"path": part.path, "operator": "exists"} for part in parts]
    history = held_against_history(request, rows, scope)
    return Proposal(request, parts, len(alike), by_you, scope, scopes, limits, history)


def default_scope(request: ApprovalRequest) -> str:
    """Return the narrowest scope that a next call can be in: the plan, or of a direct call its session or requester."""
    if not any(judge(request.plan_ref) for judge in _is_direct):
        return str(Grant.Scope.PLAN)
    return str(Grant.Scope.SESSION if request.call.session else Grant.Scope.REQUESTER)


def _approved_like(request: ApprovalRequest, mine: Mapping[str, Any]) -> list[ApprovalRequest]:
    """Return the last approved requests of the same tool and requester or plan whose arguments have the same names."""
    same = Q(plan_ref=request.plan_ref) | Q(call__requested_by=request.call.requested_by_id)
    rows = ApprovalRequest.objects.filter(same, tool_version__tool=request.tool_version.tool_id)
    rows = rows.filter(status__in=(RequestStatus.APPROVED, RequestStatus.CONSUMED)).exclude(pk=request.pk)
    found = rows.select_related("call").prefetch_related("reviews").order_by("-pk")[:MOST_APPROVALS]
    names = set(leaves(mine))
    return [each for each in found if set(leaves(_arguments(each.call.arguments))) == names]


def _arguments(text: str) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(shown_text(text))
    return arguments


def _named_paths(arguments: Mapping[str, Any]) -> list[Path]:
    """Return the paths of the rows that speak of every argument: of the values inside as far as rows can name them."""
    paths = dict.fromkeys(_named(path) for path in leaves(arguments))
    if len(paths) > MAX_ROWS:
        paths = dict.fromkeys(path[:1] for path in paths)
    return [path for path in paths if not any(path[:length] in paths for length in range(1, len(path)))]


def _named(path: Path) -> Path:
    """Return the longest beginning of a path that a row can name: no name with a dot in it, and none too deep."""
    for length in range(len(path), 1, -1):
        begin = path[:length]
        if not any("." in step for step in begin) and _row(".".join(begin), [None]) is not None:
            return begin
    return path[:1]


def _part(path: Path, all_arguments: Sequence[Mapping[str, Any]]) -> Part:
    values = [leaf_at(arguments, path) for arguments in all_arguments]
    distinct = {canonical_text(value): value for value in values}
    seen = tuple(distinct.values())
    row = _row(".".join(path), seen)
    if row is not None and any(leads_out(row, arguments) for arguments in all_arguments):
        row = None
    return Part(".".join(path), values[0], seen[:MOST_SEEN], row)


def _row(path: str, seen: Sequence[Any]) -> Row | None:
    """Return the row that all that was seen satisfies; None where a person must choose."""
    row: Row = {"path": path, "operator": "equals", "value": seen[0]}
    if len(seen) > 1:
        common = _common(seen)
        if not common:
            return None
        row = {"path": path, "operator": "starts_with", "value": common}
    try:
        return check_grant_rows([row])[0]
    except ParameterError:  # a secret, or more than a row may hold
        return None


def _common(values: Sequence[Any]) -> str:
    """Return the folder, or whole words, with which all texts begin; empty where they do not."""
    if not all(isinstance(value, str) for value in values):
        return ""
    begins = commonprefix(list(values))  # noqa: RUF071 (texts, of which paths are some)
    folder, slash, _ = begins.rpartition("/")
    found = _BOUNDARY.match(begins)
    part = f"{folder}{slash}" if slash else found[1] if found else ""
    if part.endswith("://"):  # any host
        return ""
    return part if len(part) >= SHORTEST_PART else ""


def held_against_history(request: ApprovalRequest, rows: list[Row], scope: str) -> History:
    """Hold rows against the tool's calls of the last days in a scope of the request's; the rows must be whole."""
    since = clock.now() - timedelta(days=BACK_DAYS)
    calls = Call.objects.filter(tool_name=request.tool_version.tool.name, created_at__gt=since)
    mine = Q(requested_by=request.call.requested_by_id)
    in_scope = by_scope(Q(plan_ref=request.plan_ref), mine & Q(session=request.call.session), mine)
    calls = calls.filter(in_scope.get(scope, mine)).order_by("-created_at")[:MOST_CALLS]
    found = [
        status == RequestStatus.REJECTED
        for text, status in calls.values_list("arguments", "approval__status")
        if covers(rows, _arguments(text))
    ]
    return History(len(calls), len(found), sum(found))
