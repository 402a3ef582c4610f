"""The start of an approved call: what would run is compared with what people agreed to, and used up, once.

Called inside the engine's start transaction, with the plan already locked; nothing here computes a preview.
"""

from collections.abc import Iterator
from datetime import datetime

from approvals.audit.restore_guard import ensure_start_allowed
from approvals.errors import ApprovalExpired, Drift, Invalidated
from approvals.models import ApprovalRequest, Round
from approvals.policies.eligibility import is_enough, may_decide
from approvals.policies.gate import gate
from approvals.policies.rulebook import Rule, call_facts, rule_for, rule_from_revision
from approvals.requests.digests import ApprovalBinding, action_digest
from approvals.requests.lifecycle import lock_request
from approvals.requests.queries import counted_approvals, current_round, status_sentence
from approvals.states import RequestStatus
from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.core.transactions import move
from catalog.dispatch.pipeline import Deny, Hold
from catalog.errors import Conflict
from catalog.models import Call, Tool
from catalog.signals import record_fact

TOO_FEW_APPROVALS = "Too few approvals count any more."
Objection = tuple[Drift, str]
"""What differs, and why the call may not start, for people."""


def consume(call: Call, binding: ApprovalBinding, *, now: datetime | None = None) -> Round:
    """Use up the approval of `call` to run exactly `binding`; return the round that was approved.

    `now` is the database's time where it has been read: as it is measured, it may lie before the step became ready.

    Raises Invalidated when something differs from what was approved, ApprovalExpired when the run window has passed,
    AuditUnavailable when the start could not be witnessed, Conflict when the request is not approved (any more).
    """
    ensure_start_allowed()
    request = lock_request(ApprovalRequest.objects.select_related("call").get(call=call))
    now = now or clock.now()
    if request.status != RequestStatus.APPROVED or request.applied_at is None:
        raise Conflict(status_sentence(request))
    if request.not_after is None or request.not_after <= now:
        raise ApprovalExpired("The approval was not used in time.")
    approved = current_round(request)
    for what, reason in _objections(request, approved, binding):
        raise Invalidated(reason, what)
    usable = ApprovalRequest.objects.filter(pk=request.pk, digest=approved.digest)
    move(usable.filter(effective_at__lte=now, not_after__gt=now), to=RequestStatus.CONSUMED, consumed_at=now)
    record_fact("approval.consumed", call=call, approval=request.public_id, digest=request.digest)
    return approved


def recheck_consumed(call: Call, fingerprint: str, implementation_digest: str) -> None:
    """Compare a call whose approval was used, and that has not begun, with that approval; its target's state is not.

    Raises Invalidated, ApprovalExpired, AuditUnavailable and RestoredDatabase, as `consume` does.
    """
    ensure_start_allowed()
    request = ApprovalRequest.objects.select_related("call").get(call=call)
    if request.not_after is None or request.not_after <= clock.now():
        raise ApprovalExpired("The approval was not used in time.")
    approved = current_round(request)
    binding = ApprovalBinding(fingerprint, implementation_digest, call.arguments, approved.state_token)
    for what, reason in _objections(request, approved, binding):
        raise Invalidated(reason, what)


def _objections(request: ApprovalRequest, approved: Round, binding: ApprovalBinding) -> Iterator[Objection]:
    """Yield why the call may not start; nothing when it may."""
    yield from _binding_objections(request, approved, binding)
    yield from _tool_objections(request, binding)
    yield from _reviewer_objections(request, approved)
    yield from _policy_objections(request, approved)
    yield from _quorum_objections(request, approved)


def _binding_objections(request: ApprovalRequest, approved: Round, binding: ApprovalBinding) -> Iterator[Objection]:
    tool = request.call.tool_name
    if binding.arguments != approved.arguments:
        yield Drift.ARGUMENTS, "The arguments are not those that were approved."
    if binding.fingerprint != request.tool_version.fingerprint:
        yield Drift.DEFINITION, f"The definition of {tool} changed after the approval."
    if binding.state_token != approved.state_token:
        yield Drift.STATE, "What this call would change has itself changed since the preview that was approved."
    if action_digest(request.call, binding, rule_from_revision(request.policy_revision)) != request.digest:
        yield Drift.CODE, f"The code of {tool}, or this installation, changed after the approval."


def _tool_objections(request: ApprovalRequest, binding: ApprovalBinding) -> Iterator[Objection]:
    tool = Tool.objects.select_related("current_version").get(pk=request.tool_version.tool_id)
    if not tool.enabled or not tool.registered:
        yield Drift.TOOL, f"The tool {tool.name} has been switched off since the approval."
    if tool.current_version is None or tool.current_version.fingerprint != binding.fingerprint:
        yield Drift.DEFINITION, f"The definition of {tool.name} changed after the approval."


def _policy_objections(request: ApprovalRequest, approved: Round) -> Iterator[Objection]:
    """Ask the gate again: those who approved must be enough, and the right ones, for the rule in force now."""
    verdict = gate(call_facts(request.call))
    if isinstance(verdict, Deny):
        yield Drift.POLICY, f"A policy refuses this call now: {verdict.message}"
    elif isinstance(verdict, Hold):
        rule: Rule = verdict.terms
        if rule.revision_id == request.policy_revision_id:  # the group that it was escalated to counts, too
            rule = rule_for(request)
        if not is_enough(request, counted_approvals(approved), rule):
            yield Drift.POLICY, f"A policy asks for more or other people now. {rule.sentence}"


def _reviewer_objections(request: ApprovalRequest, approved: Round) -> Iterator[Objection]:
    reviews = counted_approvals(approved)
    if len({review.person_id for review in reviews}) < approved.quorum:
        yield Drift.REVIEWERS, TOO_FEW_APPROVALS
    for review in reviews:
        why_not = may_decide(request, review.person)
        if why_not is not None:
            yield Drift.REVIEWERS, f"{user_display_name(review.person)} approved this and may not any more: {why_not}"


def _quorum_objections(request: ApprovalRequest, approved: Round) -> Iterator[Objection]:
    """Ask the request's own rule: who agreed must still fill its stages."""
    if not is_enough(request, counted_approvals(approved)):
        yield Drift.REVIEWERS, TOO_FEW_APPROVALS
