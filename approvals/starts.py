"""The start of an approved call: what would run is compared with what people agreed to, and used up, once.

Called inside the engine's start transaction, with the plan already locked; nothing here computes a preview.
"""

from collections.abc import Iterator

from approvals.digests import Binding, action_digest
from approvals.errors import ApprovalExpired, Invalidated
from approvals.gate import gate
from approvals.models import ApprovalRequest, Round
from approvals.policy import rule_of
from approvals.requests import locked
from approvals.selectors import counted_approvals, current_round, may_decide, status_sentence
from approvals.states import RequestStatus
from catalog import clock
from catalog.access import name_of
from catalog.definitions import SafetyLevel
from catalog.dispatch import CallFacts, Deny, Hold
from catalog.errors import Conflict
from catalog.facts import record
from catalog.models import Call, Tool
from catalog.transitions import move

__all__ = ["Binding", "consume"]


def consume(call: Call, binding: Binding) -> Round:
    """Use up the approval of `call` to run exactly `binding`; return the round that was approved.

    Raises Invalidated when something differs from what was approved, ApprovalExpired when the run window has passed,
    Conflict when the request is not approved (any more).
    """
    request = locked(ApprovalRequest.objects.select_related("call").get(call=call))
    now = clock.now()
    if request.status != RequestStatus.APPROVED or request.applied_at is None:
        raise Conflict(status_sentence(request))
    if request.not_after is None or request.not_after <= now:
        raise ApprovalExpired("The approval was not used in time.")
    approved = current_round(request)
    for reason in _objections(request, approved, binding):
        raise Invalidated(reason)
    usable = ApprovalRequest.objects.filter(pk=request.pk, digest=approved.digest)
    move(usable.filter(effective_at__lte=now, not_after__gt=now), to=RequestStatus.CONSUMED, consumed_at=now)
    record("approval.consumed", call=call, approval=request.public_id, digest=request.digest)
    return approved


def _objections(request: ApprovalRequest, approved: Round, binding: Binding) -> Iterator[str]:
    """Yield why the call may not start, for people; nothing when it may."""
    yield from _differences(request, approved, binding)
    yield from _objections_to_tool(request, binding)
    yield from _objections_to_reviewers(request, approved)
    yield from _objections_of_policy(request, approved)


def _differences(request: ApprovalRequest, approved: Round, binding: Binding) -> Iterator[str]:
    tool = request.call.tool_name
    if binding.arguments != approved.arguments:
        yield "The arguments are not those that were approved."
    if binding.fingerprint != request.tool_version.fingerprint:
        yield f"The definition of {tool} changed after the approval."
    if binding.state_token != approved.state_token:
        yield "What this call would change has itself changed since the preview that was approved."
    if action_digest(request.call, binding, rule_of(request.policy_revision)) != request.digest:
        yield f"The code of {tool}, or this installation, changed after the approval."


def _objections_to_tool(request: ApprovalRequest, binding: Binding) -> Iterator[str]:
    tool = Tool.objects.select_related("current_version").get(pk=request.tool_version.tool_id)
    if not tool.enabled or not tool.registered:
        yield f"The tool {tool.name} has been switched off since the approval."
    if tool.current_version is None or tool.current_version.fingerprint != binding.fingerprint:
        yield f"The definition of {tool.name} changed after the approval."


def _objections_of_policy(request: ApprovalRequest, approved: Round) -> Iterator[str]:
    """Ask the gate again: those who approved must be enough, and the right ones, for the rule in force now."""
    verdict = gate(_facts(request))
    if isinstance(verdict, Deny):
        yield f"A policy refuses this call now: {verdict.message}"
    elif isinstance(verdict, Hold):
        rule = verdict.terms
        people = [review.person for review in counted_approvals(approved)]
        if len({each.pk for each in people if may_decide(request, each, rule) is None}) < rule.quorum:
            yield f"A policy asks for more or other people now. {rule.sentence}."


def _facts(request: ApprovalRequest) -> CallFacts:
    call = request.call
    categories = request.tool_version.tool.categories.values_list("name", flat=True)
    return CallFacts(
        tool_name=call.tool_name,
        safety_level=SafetyLevel(request.tool_version.safety_level),
        categories=tuple(categories),
        arguments=call.arguments_json,
        requested_by=call.requested_by_id,
        plan_ref=call.plan_ref,
    )


def _objections_to_reviewers(request: ApprovalRequest, approved: Round) -> Iterator[str]:
    reviews = counted_approvals(approved)
    if len({review.person_id for review in reviews}) < approved.quorum:
        yield "Too few approvals count any more."
    for review in reviews:
        why_not = may_decide(request, review.person)
        if why_not is not None:
            yield f"{name_of(review.person)} approved this and may not any more: {why_not}"
