"""Factories of tools, held calls, requests, answers, grants and deliveries for the tests of approvals.

Those that take or return a plan use `plans`; all others create requests without plans.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.grants.services import GrantTerms, create_grant, grant_status
from approvals.models import ApprovalRequest, Delegation, Delivery, Envelope, Grant, Policy, PolicyRevision
from approvals.policies.gate import invalidate_rules, rules_in_force
from approvals.policies.rulebook import Rulebook, rule_from_revision
from approvals.requests.digests import ApprovalBinding
from approvals.requests.lifecycle import open_request
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.errors import ParameterError
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call, CallRequester, Implementation, Source, Tool, ToolVersion
from catalog.results import Preview
from catalog.states import CallStatus
from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.pages import Pages

POLICY_ROWS = {
    "row-TOTAL_FORMS": "2",
    "row-INITIAL_FORMS": "0",
    "stage-TOTAL_FORMS": "1",
    "stage-INITIAL_FORMS": "0",
}
"""Fields of the policy editor that give the number of conditions and stages."""


def page_of_request(request: ApprovalRequest, action: str = "") -> str:
    """Return the URL of a request's page, or of an action on it."""
    return f"/approvals/{request.public_id}/{action}/" if action else f"/approvals/?item={request.public_id}"


def rules_now() -> Rulebook:
    """Return the rules in force, read anew."""
    invalidate_rules()
    return rules_in_force()


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back everything done in the body."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


SECRET_HOOK = "https://hooks.example.org/T0/secret-token"


def delivery_to(person, **fields) -> Delivery:
    """Store a delivery to a user."""
    now = clock.now()
    defaults = {"event_key": f"key-{Delivery.objects.count()}", "kind": "approval.opened", "channel": "mail"}
    defaults |= {"address_key": "a", "address": "x", "shown_address": f"{person.username}@example.org"}
    return Delivery.objects.create(person=person, due_at=now, created_at=now, **{**defaults, **fields})


ARGUMENTS = {"path": "note.txt", "content": "hello"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
PREVIEW = Preview("Write note.txt", "diff", before="", after="hello", state_token="state-1")


def make_tool(name: str = "write_note", level: str = "dangerous", reversibility: str = "restorable") -> Tool:
    """Return a tool with one version and one implementation, creating it on first use."""
    source, _ = Source.objects.get_or_create(name="tests")
    tool, made = Tool.objects.get_or_create(name=name, defaults={"source": source})
    if made:
        tool.current_version = ToolVersion.objects.create(
            tool=tool,
            number=1,
            fingerprint="f" * 64,
            description="Write a note.",
            input_schema=SCHEMA,
            safety_level=level,
            reversibility=reversibility,
            retry_safe=False,
            timeout=30,
        )
        tool.save()
        Implementation.objects.create(tool=tool, reference=f"tests:{name}", digest="c" * 64)
    return tool


def held_call(by: User, tool: Tool | None = None, *, status: CallStatus = CallStatus.HELD) -> Call:
    """Return a call of `tool` requested by `by`."""
    tool = tool or make_tool()
    version = tool.current_version
    assert version is not None
    call = Call.objects.create(
        tool_name=tool.name,
        version=version,
        implementation=tool.implementations.get(),
        arguments=canonical_text(ARGUMENTS),
        status=status,
        requested_by=by,
        created_at=clock.now(),
    )
    CallRequester.objects.create(call=call, user=by)
    return call


def set_rule(**terms: object) -> PolicyRevision:
    """Change the default policy for dangerous calls in place and return its revision."""
    revision = PolicyRevision.objects.select_related("policy").get(safety_level="dangerous")
    PolicyRevision.objects.filter(pk=revision.pk).update(**terms)
    return PolicyRevision.objects.select_related("policy").get(pk=revision.pk)


def add_policy(order: int, **terms: object) -> PolicyRevision:
    """Add a policy."""
    policy = Policy.objects.create(name=f"Policy {order}", order=order)
    policy.revision = PolicyRevision.objects.create(policy=policy, number=1, **terms)
    policy.save()
    return policy.revision


def ask(by: User, tool: Tool | None = None, preview: Preview | None = PREVIEW) -> ApprovalRequest:
    """Return a pending request for a call by `by`, held by the current default policy."""
    return open_request(held_call(by, tool), rule=rule_from_revision(set_rule()), preview=preview, now=clock.now())


def hand(request: ApprovalRequest, by: User, to: User) -> ApprovalRequest:
    """Add a delegation regardless of roles; return the request."""
    Delegation.objects.create(request=request, by=by, to=to, at=clock.now())
    return request


def approval(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return an approval of the current request."""
    return Decision(ReviewVerdict.APPROVE, request.digest, comment=comment, channel=channel)  # type: ignore[arg-type]


def rejection(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return a rejection of the current request."""
    return Decision(ReviewVerdict.REJECT, request.digest, comment=comment, channel=channel)  # type: ignore[arg-type]


def binding_of(call: Call) -> ApprovalBinding:
    """Return the binding of a call that has not changed since its preview."""
    assert call.implementation is not None
    return ApprovalBinding(
        call.version.fingerprint, call.implementation.digest, call.arguments, str(PREVIEW.state_token)
    )


@contextmanager
def refusal_at(path: str, code: str) -> Iterator[None]:
    """Check that the body raises one error with this code and path."""
    with pytest.raises(ParameterError) as refused:
        yield
    assert [(each["path"], each["code"]) for each in refused.value.details["errors"]] == [(path, code)]


def answer(plan: Plan, by: User, verdict: ReviewVerdict, step_id: int = 1, **more: Any) -> ApprovalRequest:
    """Decide the current request of a step."""
    request = request_of(plan, step_id)
    return decide(request, by=by, decision=Decision(verdict, request.digest, **more))


def edit(plan: Plan, by: User, value: Any, **more: Any) -> ApprovalRequest:
    """Approve the request of a step with an edited value."""
    return answer(plan, by, ReviewVerdict.APPROVE, arguments={"value": value}, **more)


def respond(plan: Plan, by: User, response: Any, **more: Any) -> ApprovalRequest:
    """Answer instead of the tool."""
    return answer(plan, by, ReviewVerdict.RESPOND, response=response, **more)


def send_back(plan: Plan, by: User, comment: str = "Smaller, please.", **more: Any) -> ApprovalRequest:
    """Request changes."""
    return answer(plan, by, ReviewVerdict.REQUEST_CHANGES, comment=comment, **more)


def reject(plan: Plan, by: User, effect: str = "fail", comment: str = "Not today.", **more: Any) -> ApprovalRequest:
    """Reject the request of a step."""
    return answer(plan, by, ReviewVerdict.REJECT, comment=comment, effect=effect, **more)


def setback_on(pages: Pages) -> str:
    """Return the failure shown on the open page: its kind, or the field with the error."""
    found = re.findall(r'data-setback="(\w+)"', pages.html)
    assert len(found) <= 1, found
    return found[0] if found else ""


ANY = [{"path": "value", "operator": "exists"}]


def let_be_granted(admin: User, settings: Any, monkeypatch: Any) -> None:
    """Allow grants of the dangerous tool, and disable the caches of policies and tools."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", 0.0)
    allow(admin, max_hours=8, max_uses=20)


def allow(admin: User, **limits: int) -> None:
    """Allow grants of the dangerous tool."""
    apply_overrides("dangerous", {"grantable": limits or None}, by=admin)


def grant(by: User, ref: str = "ada", scope: str = "requester", rows: object = None, **more: Any) -> Grant:
    """Create a grant for the dangerous tool."""
    terms = GrantTerms(tool="dangerous", rows=ANY if rows is None else rows, scope=scope, scope_ref=ref, **more)
    return create_grant(terms, by=by)


def dangerous(value: object = "x") -> dict[str, Any]:
    """Return the document of a dangerous step."""
    return act(1, value, "dangerous")


def run(ada: User, value: object = "x") -> Plan:
    """Run a plan of one dangerous step until it waits or ends."""
    return work_off(make_plan(ada, dangerous(value)))


def grant_state(made: Grant) -> str:
    """Return the current status of a grant: active, used_up, expired, revoked, or ended automatically."""
    made.refresh_from_db()
    return grant_status(made).word


def ended(made: Grant) -> str:
    """Return the reason for which a grant ended; empty while it is active."""
    made.refresh_from_db()
    return "" if grant_status(made).is_active else grant_status(made).sentence


def approved(ada: User, rosa: User) -> ApprovalRequest:
    """A request that Rosa approved and whose call has run."""
    plan = run(ada)
    approve(plan, rosa)
    work_off(plan)
    return request_of(plan)


def terms_from(request: ApprovalRequest, scope: str = "requester", ref: str = "ada") -> GrantTerms:
    """Return terms about the dangerous tool."""
    return GrantTerms(tool="dangerous", rows=ANY, scope=scope, scope_ref=ref)


def item(tool: str = "dangerous", rows: object = None, count: int = 2, **more: Any) -> dict[str, Any]:
    """Return an item of a proposal, by default for any two calls of the dangerous tool."""
    return {"tool": tool, "arguments": ANY if rows is None else rows, "count": count, **more}


def propose(by: Requester, *items: dict[str, Any], **more: Any) -> Envelope:
    """Propose an envelope for an hour with a direct call."""
    arguments = {"purpose": "Tidy up", "items": list(items) or [item()], "minutes": 60, **more}
    call = create_call(CallOrder("propose_envelope", arguments), by=by)
    return Envelope.objects.select_related("call__approval").get(call=call)


def open_envelope(by: Requester, reviewer: User, *items: dict[str, Any], **more: Any) -> Envelope:
    """Propose an envelope, let a reviewer approve it, and start its call."""
    envelope = propose(by, *items, **more)
    plan = Plan.objects.get(public_id=envelope.call.plan_ref)
    approve(plan, reviewer)
    work_off(plan)
    envelope.refresh_from_db()
    return envelope


def call_within(by: Requester, value: object = "x", tool: str = "dangerous", **more: Any) -> Call:
    """Make a direct call, do what is ready, and return the call as it is then."""
    call = create_call(CallOrder(tool, {"value": value}, **more), by=by)
    work_off(Plan.objects.get(public_id=call.plan_ref))
    return Call.objects.get(pk=call.pk)
