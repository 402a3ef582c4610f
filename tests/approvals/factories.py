"""Factories of tools, held calls, requests, answers, grants and deliveries for the tests of approvals.

Those that take or return a plan go through `plans`; all others know no plan.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.grants.services import GrantTerms, create_grant, grant_status
from approvals.models import ApprovalRequest, Delegation, Delivery, Grant, Policy, PolicyRevision
from approvals.policies.rulebook import rule_from_revision
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
from plans.models import Plan
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.pages import Pages


def page_of_request(request: ApprovalRequest, action: str = "") -> str:
    """Return the address of a request, or of an action on it."""
    return f"/approvals/{request.public_id}/{action}/" if action else f"/approvals/?item={request.public_id}"


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back all that happens meanwhile."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


SECRET_HOOK = "https://hooks.example.org/T0/secret-token"


def delivery_to(person, **fields) -> Delivery:
    """Store a delivery to someone."""
    now = clock.now()
    told = {"event_key": f"key-{Delivery.objects.count()}", "kind": "approval.opened", "channel": "mail"}
    told |= {"address_key": "a", "address": "x", "shown_address": f"{person.username}@example.org"}
    return Delivery.objects.create(person=person, due_at=now, created_at=now, **{**told, **fields})


ARGUMENTS = {"path": "note.txt", "content": "hello"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
PREVIEW = Preview("Write note.txt", "diff", before="", after="hello", state_token="state-1")


def make_tool(name: str = "write_note", level: str = "dangerous", reversibility: str = "restorable") -> Tool:
    """Return a tool with one version and one implementation, made when it is first asked for."""
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
    """Return a call of `tool` that `by` asked for."""
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
    """Put one more policy into the order."""
    policy = Policy.objects.create(name=f"Policy {order}", order=order)
    policy.revision = PolicyRevision.objects.create(policy=policy, number=1, **terms)
    policy.save()
    return policy.revision


def ask(by: User, tool: Tool | None = None, preview: Preview | None = PREVIEW) -> ApprovalRequest:
    """Return a pending request about a call that `by` asked for, held by the default policy as it is now."""
    return open_request(held_call(by, tool), rule=rule_from_revision(set_rule()), preview=preview, now=clock.now())


def hand(request: ApprovalRequest, by: User, to: User) -> ApprovalRequest:
    """Let someone answer in another's place, whatever their role is by now; return the request."""
    Delegation.objects.create(request=request, by=by, to=to, at=clock.now())
    return request


def approval(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return the answer of someone who saw the request as it is."""
    return Decision(ReviewVerdict.APPROVE, request.digest, comment=comment, channel=channel)  # type: ignore[arg-type]


def rejection(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return the refusal of someone who saw the request as it is."""
    return Decision(ReviewVerdict.REJECT, request.digest, comment=comment, channel=channel)  # type: ignore[arg-type]


def binding_of(call: Call) -> ApprovalBinding:
    """Return what would run if nothing changed since the preview."""
    assert call.implementation is not None
    return ApprovalBinding(
        call.version.fingerprint, call.implementation.digest, call.arguments, str(PREVIEW.state_token)
    )


@contextmanager
def refusal_at(path: str, code: str) -> Iterator[None]:
    """Check that what is done inside is refused with one error, of this code at this path."""
    with pytest.raises(ParameterError) as refused:
        yield
    assert [(each["path"], each["code"]) for each in refused.value.details["errors"]] == [(path, code)]


def answer(plan: Plan, by: User, verdict: ReviewVerdict, step_id: int = 1, **more: Any) -> ApprovalRequest:
    """Let someone answer what a step waits for, as it is now."""
    request = request_of(plan, step_id)
    return decide(request, by=by, decision=Decision(verdict, request.digest, **more))


def edit(plan: Plan, by: User, value: Any, **more: Any) -> ApprovalRequest:
    """Let someone approve what a step waits for with another value."""
    return answer(plan, by, ReviewVerdict.APPROVE, arguments={"value": value}, **more)


def respond(plan: Plan, by: User, response: Any, **more: Any) -> ApprovalRequest:
    """Let someone answer in the tool's place."""
    return answer(plan, by, ReviewVerdict.RESPOND, response=response, **more)


def send_back(plan: Plan, by: User, comment: str = "Smaller, please.", **more: Any) -> ApprovalRequest:
    """Let someone ask for changes."""
    return answer(plan, by, ReviewVerdict.REQUEST_CHANGES, comment=comment, **more)


def reject(plan: Plan, by: User, effect: str = "fail", comment: str = "Not today.", **more: Any) -> ApprovalRequest:
    """Let someone reject what a step waits for."""
    return answer(plan, by, ReviewVerdict.REJECT, comment=comment, effect=effect, **more)


def setback_on(pages: Pages) -> str:
    """Return why the page that is open says an answer was not recorded: the kind of setback, or the wrong field."""
    found = re.findall(r'data-setback="(\w+)"', pages.html)
    assert len(found) <= 1, found
    return found[0] if found else ""


ANY = [{"path": "value", "operator": "exists"}]


def let_be_granted(admin: User, settings: Any, monkeypatch: Any) -> None:
    """Let the dangerous tool be granted; policies and tools are read anew each time."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", 0.0)
    allow(admin, max_hours=8, max_uses=20)


def allow(admin: User, **limits: int) -> None:
    """Let grants be made for the dangerous tool."""
    apply_overrides("dangerous", {"grantable": limits or None}, by=admin)


def grant(by: User, ref: str = "ada", scope: str = "requester", rows: object = None, **more: Any) -> Grant:
    """Make a grant for the dangerous tool."""
    terms = GrantTerms(tool="dangerous", rows=ANY if rows is None else rows, scope=scope, scope_ref=ref, **more)
    return create_grant(terms, by=by)


def dangerous(value: object = "x") -> dict[str, Any]:
    """Return the document of a dangerous step."""
    return act(1, value, "dangerous")


def run(ada: User, value: object = "x") -> Plan:
    """Let a plan of one dangerous step go as far as it goes."""
    return work_off(make_plan(ada, dangerous(value)))


def grant_state(made: Grant) -> str:
    """Return where a grant stands now: active, used_up, expired, revoked by a person, or ended by what happened."""
    made.refresh_from_db()
    return grant_status(made).word


def ended(made: Grant) -> str:
    """Return why a grant has ended; empty while it is in force."""
    made.refresh_from_db()
    return "" if grant_status(made).is_active else grant_status(made).sentence


def approved(ada: User, rosa: User) -> ApprovalRequest:
    """A request that Rosa approved, and whose call ran."""
    plan = run(ada)
    approve(plan, rosa)
    work_off(plan)
    return request_of(plan)


def terms_from(request: ApprovalRequest, scope: str = "requester", ref: str = "ada") -> GrantTerms:
    """Return terms about the dangerous tool."""
    return GrantTerms(tool="dangerous", rows=ANY, scope=scope, scope_ref=ref)
