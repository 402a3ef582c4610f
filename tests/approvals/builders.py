"""Held calls and their requests without any plan: what the approvals layer sees of the world."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Delegation, Policy, PolicyRevision
from approvals.policies.rulebook import rule_of
from approvals.requests.digests import Binding
from approvals.requests.lifecycle import open_request
from approvals.reviews.decisions import Decision
from approvals.states import Verdict
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.errors import ParameterError
from catalog.models import Call, CallRequester, Implementation, Source, Tool, ToolVersion
from catalog.results import Preview
from catalog.states import CallStatus

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
    return open_request(held_call(by, tool), rule=rule_of(set_rule()), preview=preview, now=clock.now())


def hand(request: ApprovalRequest, by: User, to: User) -> ApprovalRequest:
    """Let someone answer in another's place, whatever their role is by now; return the request."""
    Delegation.objects.create(request=request, by=by, to=to, at=clock.now())
    return request


def approval(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return the answer of someone who saw the request as it is."""
    return Decision(Verdict.APPROVE, request.digest, comment, channel)  # type: ignore[arg-type]


def rejection(request: ApprovalRequest, comment: str = "", channel: str = "rest") -> Decision:
    """Return the refusal of someone who saw the request as it is."""
    return Decision(Verdict.REJECT, request.digest, comment, channel)  # type: ignore[arg-type]


def binding_of(call: Call) -> Binding:
    """Return what would run if nothing changed since the preview."""
    assert call.implementation is not None
    return Binding(call.version.fingerprint, call.implementation.digest, call.arguments, str(PREVIEW.state_token))


@contextmanager
def refusal_at(path: str, code: str) -> Iterator[None]:
    """Check that what is done inside is refused with one error, of this code at this path."""
    with pytest.raises(ParameterError) as refused:
        yield
    assert [(each["path"], each["code"]) for each in refused.value.details["errors"]] == [(path, code)]
