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

from approvals.grants.conditions import (
    ArgumentPath,
    check_grant_conditions,
    conditions_cover,
    escapes_prefix,
    leaf_paths,
    value_at_path,
)
from approvals.grants.services import available_scopes, scope_mapping
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.conditions import MAX_CONDITIONS
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.definitions.levels import DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES, GrantLimits
from catalog.errors import ParameterError
from catalog.models import Call
from catalog.secrets.placeholders import without_macs

MAX_APPROVALS_COMPARED = 50
MAX_CALLS_REPLAYED = 1000
HISTORY_DAYS = 30
MIN_PREFIX_LENGTH = 2
MAX_VALUES_LISTED = 10
GrantCondition = dict[str, Any]
_BOUNDARY = re.compile(r"^(.*[^0-9A-Za-z])")
_direct_plan_checks: list[Callable[[str], bool]] = []


def register_direct_plan_lookup(judge: Callable[[str], bool]) -> None:
    """Let whoever knows plans say, of a plan's id, whether it is only the plan of one direct call."""
    _direct_plan_checks[:] = [judge]


@dataclass(frozen=True, slots=True)
class ArgumentProposal:
    """One argument: what it is in the request, what it was in calls like it, and the row proposed; None: to choose."""

    path: str
    value: Any
    seen: tuple[Any, ...]
    row: GrantCondition | None


@dataclass(frozen=True, slots=True)
class CoverageHistory:
    """Held against the calls of the last days: how many would have been covered, and people had rejected."""

    calls: int
    covered: int
    rejected: int
    days: int = HISTORY_DAYS


@dataclass(frozen=True, slots=True)
class Proposal:
    """A grant as it is proposed; `alike` is of how many approved calls, this one among them."""

    request: ApprovalRequest
    parts: tuple[ArgumentProposal, ...]
    alike: int
    by_you: int
    scope: str
    scopes: Mapping[str, str]
    limits: GrantLimits
    history: CoverageHistory

    @property
    def rows(self) -> list[GrantCondition]:
        """The rows that are proposed; those to be chosen are not among them."""
        return [part.row for part in self.parts if part.row is not None]

    @property
    def hours(self) -> int:
        """How many hours it is to last unless told otherwise."""
        return min(DEFAULT_GRANT_HOURS, self.limits.max_hours)

    @property
    def uses(self) -> int:
        """How often it is to be used unless told otherwise."""
        return min(DEFAULT_GRANT_USES, self.limits.max_uses)

    @property
    def varied(self) -> list[ArgumentProposal]:
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
        varied = _join_words(map(_variation_sentence, self.varied))
        return f"{who} {self.alike} calls like this{mine}; only {varied} varied."


def _variation_sentence(part: ArgumentProposal) -> str:
    under = f" (under {part.row['value']})" if part.row is not None and part.row["operator"] == "starts_with" else ""
    return f"{part.path}{under}"


def _join_words(words: Any) -> str:
    *first, last = list(words)
    return f"{', '.join(first)} and {last}" if first else str(last)


def propose_grant(request: ApprovalRequest, by: User) -> Proposal:
    """Return what a grant out of this approved request would say. Raises LookupError where its tool has no grants."""
    limits = request.tool_version.tool.grant_limits
    if limits is None:
        raise LookupError(f"No grants may be made for {request.tool_version.tool.name}.")
    mine = _arguments(request.call.arguments)
    alike = [request, *_similar_approvals(request, mine)]
    texts = [_arguments(each.call.arguments) for each in alike]
    parts = tuple(_propose_argument(path, texts) for path in _nameable_paths(mine))
    scopes, scope = available_scopes(request), default_scope(request)
    by_you = sum(any(each.person_id == by.pk for each in one.reviews.all()) for one in alike)
    rows = [part.row or {"path": part.path, "operator": "exists"} for part in parts]
    history = replay_history(request, rows, scope)
    return Proposal(request, parts, len(alike), by_you, scope, scopes, limits, history)


def default_scope(request: ApprovalRequest) -> str:
    """Return the narrowest scope that a next call can be in: the plan, or of a direct call its session or requester."""
    if not any(judge(request.plan_ref) for judge in _direct_plan_checks):
        return str(Grant.Scope.PLAN)
    return str(Grant.Scope.SESSION if request.call.session else Grant.Scope.REQUESTER)


def _similar_approvals(request: ApprovalRequest, mine: Mapping[str, Any]) -> list[ApprovalRequest]:
    """Return the last approved requests of the same tool and requester or plan whose arguments have the same names."""
    same = Q(plan_ref=request.plan_ref) | Q(call__requested_by=request.call.requested_by_id)
    rows = ApprovalRequest.objects.filter(same, tool_version__tool=request.tool_version.tool_id)
    rows = rows.filter(status__in=(RequestStatus.APPROVED, RequestStatus.CONSUMED)).exclude(pk=request.pk)
    found = rows.select_related("call").prefetch_related("reviews").order_by("-pk")[:MAX_APPROVALS_COMPARED]
    names = set(leaf_paths(mine))
    return [each for each in found if set(leaf_paths(_arguments(each.call.arguments))) == names]


def _arguments(text: str) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(without_macs(text))
    return arguments


def _nameable_paths(arguments: Mapping[str, Any]) -> list[ArgumentPath]:
    """Return the paths of the rows that speak of every argument: of the values inside as far as rows can name them."""
    paths = dict.fromkeys(_nameable_prefix(path) for path in leaf_paths(arguments))
    if len(paths) > MAX_CONDITIONS:
        paths = dict.fromkeys(path[:1] for path in paths)
    return [path for path in paths if not any(path[:length] in paths for length in range(1, len(path)))]


def _nameable_prefix(path: ArgumentPath) -> ArgumentPath:
    """Return the longest beginning of a path that a row can name: no name with a dot in it, and none too deep."""
    for length in range(len(path), 1, -1):
        begin = path[:length]
        if not any("." in step for step in begin) and _propose_condition(".".join(begin), [None]) is not None:
            return begin
    return path[:1]


def _propose_argument(path: ArgumentPath, all_arguments: Sequence[Mapping[str, Any]]) -> ArgumentProposal:
    values = [value_at_path(arguments, path) for arguments in all_arguments]
    distinct = {canonical_text(value): value for value in values}
    seen = tuple(distinct.values())
    row = _propose_condition(".".join(path), seen)
    if row is not None and any(escapes_prefix(row, arguments) for arguments in all_arguments):
        row = None
    return ArgumentProposal(".".join(path), values[0], seen[:MAX_VALUES_LISTED], row)


def _propose_condition(path: str, seen: Sequence[Any]) -> GrantCondition | None:
    """Return the row that all that was seen satisfies; None where a person must choose."""
    row: GrantCondition = {"path": path, "operator": "equals", "value": seen[0]}
    if len(seen) > 1:
        common = _common_prefix(seen)
        if not common:
            return None
        row = {"path": path, "operator": "starts_with", "value": common}
    try:
        return check_grant_conditions([row])[0]
    except ParameterError:  # a secret, or more than a row may hold
        return None


def _common_prefix(values: Sequence[Any]) -> str:
    """Return the folder, or whole words, with which all texts begin; empty where they do not."""
    if not all(isinstance(value, str) for value in values):
        return ""
    begins = commonprefix(list(values))  # noqa: RUF071 (texts, of which paths are some)
    folder, slash, _ = begins.rpartition("/")
    found = _BOUNDARY.match(begins)
    part = f"{folder}{slash}" if slash else found[1] if found else ""
    if part.endswith("://"):  # any host
        return ""
    return part if len(part) >= MIN_PREFIX_LENGTH else ""


def replay_history(request: ApprovalRequest, rows: list[GrantCondition], scope: str) -> CoverageHistory:
    """Hold rows against the tool's calls of the last days in a scope of the request's; the rows must be whole."""
    since = clock.now() - timedelta(days=HISTORY_DAYS)
    calls = Call.objects.filter(tool_name=request.tool_version.tool.name, created_at__gt=since)
    mine = Q(requested_by=request.call.requested_by_id)
    in_scope = scope_mapping(Q(plan_ref=request.plan_ref), mine & Q(session=request.call.session), mine)
    calls = calls.filter(in_scope.get(scope, mine)).order_by("-created_at")[:MAX_CALLS_REPLAYED]
    found = [
        status == RequestStatus.REJECTED
        for text, status in calls.values_list("arguments", "approval__status")
        if conditions_cover(rows, _arguments(text))
    ]
    return CoverageHistory(len(calls), len(found), sum(found))
