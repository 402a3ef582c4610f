"""Start of an approved call, with the plan locked: compares it with its approval, which is consumed once."""

from collections.abc import Iterator
from datetime import datetime

from approvals.audit.restore_guard import ensure_start_allowed
from approvals.errors import ApprovalExpired, Drift, Invalidated
from approvals.models import ApprovalRequest, Round
from approvals.policies.combined_rules import with_escalation
from approvals.policies.eligibility import may_decide
from approvals.policies.gate import gate
from approvals.policies.history import History
from approvals.policies.quorum import is_enough
from approvals.policies.rulebook import call_facts, rule_from_revision
from approvals.requests.deadlines import count_stops
from approvals.requests.digests import ApprovalBinding, action_digest
from approvals.requests.lifecycle import UNFILLED, hides_defaults, lock_request
from approvals.requests.queries import counted_approvals, current_round, status_sentence
from approvals.states import RequestStatus
from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.core.transactions import move
from catalog.dispatch.pipeline import Deny, Hold
from catalog.errors import Conflict
from catalog.models import Call, Tool
from catalog.signals import record_fact

TOO_FEW_APPROVALS = "The remaining valid approvals are not enough."
Objection = tuple[Drift, str]
"""The changed aspect, and the reason for which the call may not start."""


def consume(
    call: Call, binding: ApprovalBinding, *, now: datetime | None = None, history: History | None = None
) -> Round:
    """Consume the approval of `call` to run exactly `binding`; return the approved round.

    `history` is what came before the call, and `now` the database's time, which may lie before the step became ready.
    Raises Invalidated if anything differs from what was approved, ApprovalExpired if the run window is over,
    AuditUnavailable if no checkpoint can be written, RestoredDatabase, and Conflict if the request is not approved.
    """
    ensure_start_allowed()
    request = lock_request(ApprovalRequest.objects.select_related("call__token").get(call=call))
    now = now or clock.now()
    if request.status != RequestStatus.APPROVED or request.applied_at is None:
        raise Conflict(status_sentence(request))
    if not _is_in_time(request, now):
        raise ApprovalExpired("The approval was not used in time.")
    approved = current_round(request)
    for drift, reason in _objections(request, approved, binding, history):
        raise Invalidated(reason, drift)
    usable = ApprovalRequest.objects.filter(pk=request.pk, digest=approved.digest)
    move(usable.filter(effective_at__lte=now, not_after__gt=now), to=RequestStatus.CONSUMED, consumed_at=now)
    record_fact("approval.consumed", call=call, approval=request.public_id, digest=request.digest)
    return approved


def recheck_consumed(
    call: Call, fingerprint: str, implementation_digest: str, *, history: History | None = None
) -> None:
    """Compare a call once more with its approval, which is consumed although the call has not begun.

    The target's state is not compared. Raises Invalidated, ApprovalExpired, AuditUnavailable and RestoredDatabase.
    """
    ensure_start_allowed()
    request = ApprovalRequest.objects.select_related("call__token").get(call=call)
    if not _is_in_time(request, clock.now()):
        raise ApprovalExpired("The approval was not used in time.")
    approved = current_round(request)
    binding = ApprovalBinding(fingerprint, implementation_digest, call.arguments, approved.state_token)
    for drift, reason in _objections(request, approved, binding, history):
        raise Invalidated(reason, drift)


def _is_in_time(request: ApprovalRequest, now: datetime) -> bool:
    """Return whether the run window has not ended, after the time of stops was counted that may have made it longer."""
    if request.not_after is not None and request.not_after <= now:
        count_stops(request, now)
    return request.not_after is not None and request.not_after > now


def _objections(
    request: ApprovalRequest, round_: Round, binding: ApprovalBinding, history: History | None
) -> Iterator[Objection]:
    """Yield the reasons why the call may not start: first about the call itself, then about its approval."""
    call, name = request.call, request.call.tool_name
    if binding.arguments != round_.arguments:
        yield Drift.ARGUMENTS, "The arguments differ from the approved ones."
    if hides_defaults(call):
        yield Drift.ARGUMENTS, UNFILLED
    if binding.fingerprint != request.tool_version.fingerprint:
        yield Drift.DEFINITION, f"The definition of {name} changed after the approval."
    if binding.state_token != round_.state_token:
        yield Drift.STATE, "The target of this call has changed since the approved preview."
    if action_digest(call, binding, rule_from_revision(request.policy_revision)) != request.digest:
        yield Drift.CODE, f"The code of {name}, or this installation, changed after the approval."
    tool = Tool.objects.select_related("current_version").get(pk=request.tool_version.tool_id)
    if not tool.enabled or not tool.registered:
        yield Drift.TOOL, f"The tool {name} has been disabled since the approval."
    if tool.current_version is None or tool.current_version.fingerprint != binding.fingerprint:
        yield Drift.DEFINITION, f"The definition of {name} changed after the approval."
    yield from _approval_objections(request, round_, history)


def _approval_objections(request: ApprovalRequest, round_: Round, history: History | None) -> Iterator[Objection]:
    """Yield objections of ineligible reviewers, and of the current policies or the request's own rule."""
    approvals = counted_approvals(round_)
    if len({review.person_id for review in approvals}) < round_.quorum:
        yield Drift.REVIEWERS, TOO_FEW_APPROVALS
    for review in approvals:
        why_not = may_decide(request, review.person)
        if why_not is not None:
            who = user_display_name(review.person)
            yield Drift.REVIEWERS, f"{who} approved this but may no longer do so: {why_not}"
    verdict = gate(call_facts(request.call, history=history))
    if isinstance(verdict, Deny):
        yield Drift.POLICY, f"A policy blocks this call now: {verdict.message}" if verdict.policy else verdict.message
    elif isinstance(verdict, Hold):
        rule = with_escalation(verdict.terms, request)
        if not is_enough(request, approvals, rule):
            yield Drift.POLICY, f"A policy now requires more or other approvers. {rule.sentence}"
    if not is_enough(request, approvals):
        yield Drift.REVIEWERS, TOO_FEW_APPROVALS
