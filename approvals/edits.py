"""Edits: a reviewer accepts a part of a change, and the request goes on in a new round, written once.

An edit keeps call and request, whose ids clients follow; it changes what the call would run with and the digest, and
leaves earlier reviews behind. Reviews themselves are kept by `approvals.decisions`, in whose transaction this happens.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from approvals.digests import Binding, action_digest
from approvals.gate import gate
from approvals.models import ApprovalRequest, Round
from approvals.policy import Rule, rule_of
from approvals.selectors import current_round
from approvals.states import RequestStatus
from catalog import clock, dispatch
from catalog.canonical import canonical_text
from catalog.definitions import SafetyLevel, Tool
from catalog.errors import Conflict, ParameterError
from catalog.facts import record
from catalog.hunks import Division
from catalog.models import Call
from catalog.registry import get_tool
from catalog.states import CallStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User

APPROVED = (RequestStatus.APPROVED, RequestStatus.CONSUMED)


@dataclass(frozen=True)
class Part:
    """What a tool lets people accept in part: the parameter, and the texts it leads from and to."""

    tool: Tool[Any, Any]
    parameter: str
    before: str | None
    after: str

    @cached_property
    def division(self) -> Division:
        """The change in its hunks. Comparing long texts takes its time."""
        return Division(self.before, self.after)

    @property
    def total(self) -> int:
        """How many hunks there are."""
        return len(self.division)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What accepting these hunks makes of a change: the text after, and the rows of its preview."""

    part: Part
    hunks: Sequence[int]
    after: str
    rows: Sequence[Mapping[str, Any]]


def part_of(round_: Round, tool_name: str) -> Part | None:
    """Return what may be accepted in part of a round; None when its tool shows no such change."""
    tool, preview = get_tool(tool_name), round_.preview_json or {}
    if tool is None or tool.hunks is None or preview.get("kind") != "diff":
        return None
    text = json.loads(round_.arguments).get(tool.hunks)
    if not isinstance(text, str) or text != preview.get("after"):
        return None
    return Part(tool, tool.hunks, preview.get("before"), text)


def progress_of(request: ApprovalRequest) -> str:
    """Say how many hunks of what was asked first are applied, rejected and open; empty for an indivisible change."""
    rounds = sorted(request.rounds.all(), key=lambda round_: round_.number)
    first = part_of(rounds[0], request.call.tool_name)
    last = part_of(rounds[-1], request.call.tool_name) if len(rounds) > 1 else first
    if first is None or last is None or first.total < 2:
        return ""
    is_open, is_approved = request.status == RequestStatus.PENDING, request.status in APPROVED
    applied = last.total if is_approved else 0
    pending = last.total if is_open else 0
    return f"Progress: {applied}/{first.total} applied, {first.total - applied - pending} rejected, {pending} pending"


def narrowing_of(request: ApprovalRequest, hunks: Collection[int]) -> Narrowing | None:
    """Work out what accepting these hunks makes of a request; None where they are all of its change.

    It compares texts, so it comes before anything is locked. Raises ParameterError for hunks that there are not.
    """
    part = part_of(current_round(request), request.call.tool_name)
    if part is None:
        raise refused("not_divisible", "This change is accepted or rejected as a whole; leave hunks out.")
    accepted, total = sorted(set(hunks)), part.total
    unknown = sorted(set(accepted).difference(range(total)))
    if unknown:
        listed = ", ".join(map(str, unknown[:5]))
        raise refused("unknown_hunk", f"This change has the hunks 0 to {total - 1}; there is no {listed}.")
    if len(accepted) == total:
        return None
    after = part.division.apply(accepted)
    return Narrowing(part, accepted, after, Division(part.before, after).rows)


def narrow(request: ApprovalRequest, narrowing: Narrowing, *, by: "User") -> None:
    """Narrow a request, locked by the caller, who has seen that its digest is that of the narrowing.

    Raises Conflict when a policy refuses the narrower call, or it no longer waits.
    """
    round_, old, part = current_round(request), request.digest, narrowing.part
    arguments = dispatch.check(part.tool, json.loads(round_.arguments) | {part.parameter: narrowing.after})
    preview = {**(round_.preview_json or {}), "after": narrowing.after, "rows": narrowing.rows}
    _open_round(request, arguments, preview, editor=by)
    told = {"approval": request.public_id, "digest": request.digest, "edited_digest": old}
    record("approval.edited", call=request.call, by=by, **told, hunks=list(narrowing.hunks), of=part.total)


def take_back(request: ApprovalRequest, *, by: "User") -> None:
    """Undo the edit that came with an answer just undone: what was asked before stands again, in a round of its own."""
    round_ = current_round(request)
    if round_.editor_id != by.pk:
        return
    before = request.rounds.get(number=round_.number - 1)
    old = request.digest
    _open_round(request, json.loads(before.arguments), before.preview_json, editor=None)
    told = {"approval": request.public_id, "digest": request.digest, "edited_digest": old}
    record("approval.edited", call=request.call, by=by, **told)


def editor_counts(request: ApprovalRequest, by: "User") -> bool:
    """Say whether this person's approval counts in the current round: an editor's does where one person is enough."""
    round_ = current_round(request)
    return round_.editor_id != by.pk or round_.quorum == 1


def _open_round(
    request: ApprovalRequest, arguments: Mapping[str, Any], preview: Mapping[str, Any] | None, *, editor: "User | None"
) -> None:
    """Open the next round with what would run now, on the terms of the rule that holds it now."""
    call, last, text = request.call, current_round(request), canonical_text(arguments)
    rule = _judged_again(request, arguments)
    code = call.implementation.digest if call.implementation else ""
    binding = Binding(call.version.fingerprint, code, text, last.state_token)
    digest, number = action_digest(call, binding, rule), request.round_number + 1
    Round.objects.create(
        request=request,
        number=number,
        arguments=text,
        digest=digest,
        preview=json.dumps(preview) if preview else "",
        state_token=last.state_token,
        policy_revision_id=rule.revision_id,
        quorum=rule.quorum,
        editor=editor,
        created_at=clock.now(),
    )
    open_one = ApprovalRequest.objects.filter(pk=request.pk, digest=request.digest, status=RequestStatus.PENDING)
    if not open_one.update(digest=digest, round_number=number, policy_revision_id=rule.revision_id):
        raise Conflict("The request was answered while this was being changed.")
    if not Call.objects.filter(pk=call.pk, status=CallStatus.HELD).update(arguments=text):
        raise Conflict("The call no longer waits for an answer, so what it would run with stays as it is.")
    call.arguments = text
    request.refresh_from_db(fields=["digest", "round_number", "policy_revision"])


def _judged_again(request: ApprovalRequest, arguments: Mapping[str, Any]) -> Rule:
    """Ask policy about the edited call: a rule that holds it sets the terms, else those of before stay."""
    call, version = request.call, request.tool_version
    verdict = gate(
        dispatch.CallFacts(
            tool_name=call.tool_name,
            safety_level=SafetyLevel(version.safety_level),
            categories=tuple(version.tool.categories.values_list("name", flat=True)),
            arguments=arguments,
            requested_by=call.requested_by_id,
            plan_ref=call.plan_ref,
        )
    )
    if isinstance(verdict, dispatch.Deny):
        raise Conflict(f"A policy refuses the call as you would have it: {verdict.message}")
    rule = verdict.terms if isinstance(verdict, dispatch.Hold) else None
    return rule if isinstance(rule, Rule) else rule_of(request.policy_revision)


def refused(code: str, message: str) -> ParameterError:
    """Return the error for hunks that cannot be taken."""
    return ParameterError(message, {"field": "hunks", "errors": [{"path": "hunks", "code": code, "message": message}]})
