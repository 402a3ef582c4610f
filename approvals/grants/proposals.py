"""Proposals of grants: conditions derived from what similar approved calls have in common.

Equal values give `equals`, texts with a common prefix `starts_with`, commands `in`; for other arguments the user must
choose a condition. A proposal is compared with past calls. Never writes.
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

from approvals.grants.services import available_scopes, scope_mapping
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.bounds import ArgumentPath, check_bounds, conditions_cover, leaf_paths
from approvals.policy_language.conditions import MAX_CONDITIONS, compile_conditions
from approvals.policy_language.derived import is_command
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.core.json_paths import dotted, follow
from catalog.definitions.grant_limits import DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES, GrantLimits
from catalog.dispatch.arguments import CallArguments, stored_arguments, validator_of
from catalog.errors import ParameterError
from catalog.models import Call
from catalog.schemas.normalization import large_integers_as_digits
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
    """Register a function that takes a plan's id and returns True if the plan was created for a direct call."""
    _direct_plan_checks[:] = [judge]


@dataclass(frozen=True, slots=True)
class ArgumentProposal:
    """One argument with its values in similar calls. `row` is the proposed condition; None if the user must choose."""

    path: str
    value: Any
    seen: tuple[Any, ...]
    row: GrantCondition | None


@dataclass(frozen=True, slots=True)
class CoverageHistory:
    """Number of recent calls, of those that the grant would cover, and of covered calls that were rejected."""

    calls: int
    covered: int
    rejected: int
    days: int = HISTORY_DAYS


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed grant; `alike` is the number of similar approved calls, including that of `request`."""

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
        """The proposed conditions. Arguments for which the user must choose a condition are left out."""
        return [part.row for part in self.parts if part.row is not None]

    @property
    def hours(self) -> int:
        """Default duration in hours."""
        return min(DEFAULT_GRANT_HOURS, self.limits.max_hours)

    @property
    def uses(self) -> int:
        return min(DEFAULT_GRANT_USES, self.limits.max_uses)

    @property
    def varied(self) -> list[ArgumentProposal]:
        """Arguments whose values differ between the similar calls."""
        return [part for part in self.parts if len(part.seen) > 1]

    @property
    def sentence(self) -> str:
        """Sentence about the similar calls and about the arguments that varied."""
        mine = f", {self.by_you} of them by you" if 0 < self.by_you < self.alike else ""
        if self.alike == 1:
            return "This is the only similar call that was approved. The proposal covers exactly these arguments."
        who = "You approved" if self.by_you == self.alike else "Reviewers approved"
        if not self.varied:
            return f"{who} {self.alike} similar calls{mine}, all with the same arguments."
        *first, last = (
            f"{part.path} (under {part.row['value']})"
            if part.row is not None and part.row["operator"] == "starts_with"
            else part.path
            for part in self.varied
        )
        varied = f"{', '.join(first)} and {last}" if first else last
        return f"{who} {self.alike} similar calls{mine}; only {varied} varied."


def propose_grant(request: ApprovalRequest, by: User) -> Proposal:
    """Return the proposed grant for an approved request. Raises LookupError if its tool cannot be granted."""
    limits = request.tool_version.tool.grant_limits
    if limits is None:
        raise LookupError(f"{request.tool_version.tool.name} cannot be granted.")
    mine = _arguments(request)
    alike = [request, *_similar_approvals(request, mine)]
    arguments = [_arguments(each) for each in alike]
    parts = tuple(_propose_argument(path, arguments) for path in _nameable_paths(mine.given))
    scopes, scope = available_scopes(request), default_scope(request)
    by_you = sum(any(each.person_id == by.pk for each in one.reviews.all()) for one in alike)
    rows = [part.row or {"path": part.path, "operator": "exists"} for part in parts]
    history = replay_history(request, rows, scope)
    return Proposal(request, parts, len(alike), by_you, scope, scopes, limits, history)


def default_scope(request: ApprovalRequest) -> str:
    """Return the narrowest scope for further calls: the plan; for a direct call, its session or else its requester."""
    if not any(judge(request.plan_ref) for judge in _direct_plan_checks):
        return str(Grant.Scope.PLAN)
    return str(Grant.Scope.SESSION if request.call.session else Grant.Scope.REQUESTER)


def _similar_approvals(request: ApprovalRequest, arguments: CallArguments) -> list[ApprovalRequest]:
    """Return recent approved requests of the same plan or requester for this tool, with the same argument names."""
    same = Q(plan_ref=request.plan_ref) | Q(call__requested_by=request.call.requested_by_id)
    rows = ApprovalRequest.objects.filter(same, tool_version__tool=request.tool_version.tool_id)
    rows = rows.filter(status__in=(RequestStatus.APPROVED, RequestStatus.CONSUMED)).exclude(pk=request.pk)
    found = rows.select_related("call", "tool_version").prefetch_related("reviews").order_by("-pk")
    names = set(leaf_paths(arguments.given))
    return [each for each in found[:MAX_APPROVALS_COMPARED] if set(leaf_paths(_arguments(each).given)) == names]


def _arguments(request: ApprovalRequest) -> CallArguments:
    validator = validator_of(request.tool_version.input_schema)
    return stored_arguments(validator, request.call.arguments_json, request.call.defaults)


def _nameable_paths(arguments: Mapping[str, Any]) -> list[ArgumentPath]:
    """Return the argument paths for which to propose conditions, as deep as conditions can name nested values."""
    paths: dict[ArgumentPath, None] = {}
    for path in leaf_paths(arguments):
        # The longest prefix that a row can name: without names that contain dots, and not too deep.
        begins = (path[:length] for length in range(len(path), 1, -1))
        nameable = (
            begin
            for begin in begins
            if not any("." in step for step in begin) and _propose_condition(dotted(begin), [None]) is not None
        )
        paths[next(nameable, path[:1])] = None
    if len(paths) > MAX_CONDITIONS:
        paths = dict.fromkeys(path[:1] for path in paths)
    return [path for path in paths if not any(path[:length] in paths for length in range(1, len(path)))]


def _propose_argument(path: ArgumentPath, all_arguments: Sequence[CallArguments]) -> ArgumentProposal:
    values = [large_integers_as_digits(follow(arguments.given, path)) for arguments in all_arguments]
    distinct = {canonical_text(value): value for value in values}
    seen = tuple(distinct.values())
    row = _propose_condition(dotted(path), seen)
    covers = compile_conditions([row]).covers if row is not None else None
    # A list or object may have defaults inside.
    if covers is not None and not all(covers(form) for arguments in all_arguments for form in arguments.forms):
        row = None
    return ArgumentProposal(dotted(path), values[0], seen[:MAX_VALUES_LISTED], row)


def _propose_condition(path: str, seen: Sequence[Any]) -> GrantCondition | None:
    """Return a condition that all values in `seen` satisfy; None if the user must choose."""
    row: GrantCondition = {"path": path, "operator": "equals", "value": seen[0]}
    if len(seen) > 1 and is_command(path):
        row = {"path": path, "operator": "in", "value": list(seen)}
    elif len(seen) > 1:
        common = _common_prefix(seen)
        if not common:
            return None
        row = {"path": path, "operator": "starts_with", "value": common}
    try:
        return check_bounds([row])[0]
    except ParameterError:  # a secret, or a value too large for a row
        return None


def _common_prefix(values: Sequence[Any]) -> str:
    """Return the folder or whole words that all texts begin with; empty if there is no such prefix."""
    if not all(isinstance(value, str) for value in values):
        return ""
    begins = commonprefix(list(values))  # noqa: RUF071 (for any texts, not only paths)
    folder, slash, _ = begins.rpartition("/")
    found = _BOUNDARY.match(begins)
    part = f"{folder}{slash}" if slash else found[1] if found else ""
    if part.endswith("://"):  # would allow any host
        return ""
    return part if len(part) >= MIN_PREFIX_LENGTH else ""


def replay_history(request: ApprovalRequest, rows: list[GrantCondition], scope: str) -> CoverageHistory:
    """Count the tool's recent calls in this scope, and how many of them a grant with these conditions would cover."""
    since = clock.now() - timedelta(days=HISTORY_DAYS)
    calls = Call.objects.filter(tool_name=request.tool_version.tool.name, created_at__gt=since)
    mine = Q(requested_by=request.call.requested_by_id)
    in_scope = scope_mapping(Q(plan_ref=request.plan_ref), mine & Q(session=request.call.session), mine)
    calls = calls.filter(in_scope.get(scope, mine)).order_by("-created_at")[:MAX_CALLS_REPLAYED]
    versions = request.tool_version.tool.versions.filter(pk__in=calls.values("version")).in_bulk()
    validators = {pk: validator_of(version.input_schema) for pk, version in versions.items()}
    columns = ("version_id", "arguments", "defaults", "approval__status")
    found = [
        status == RequestStatus.REJECTED
        for version, text, defaults, status in calls.values_list(*columns)
        if conditions_cover(rows, stored_arguments(validators.get(version), json.loads(without_macs(text)), defaults))
    ]
    return CoverageHistory(len(calls), len(found), sum(found))
