"""What people agree to, as one number: two calls with the same digest are the same call in every bound field."""

from dataclasses import dataclass

from approvals.models import Instance
from approvals.policy import Rule
from catalog.canonical import digest
from catalog.models import Call

ACTION, INTENT, LIKENESS = "action-v1", "intent-v1", "likeness-v1"
NO_CREDENTIAL = ""
"""Stands for the credential a call runs under; none of today's tools has one."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What would run: the version's fingerprint, its code's digest, canonical arguments, the target's state."""

    fingerprint: str
    implementation_digest: str
    arguments: str
    state_token: str


def this_instance() -> Instance:
    """Return this installation's one row."""
    return Instance.objects.get(pk=1)


def action_digest(call: Call, binding: Binding, rule: Rule, instance: Instance | None = None) -> str:
    """Return the digest over everything an approval of `call`, held by `rule`, is bound to: here, unless told where."""
    instance = instance or this_instance()
    return digest(
        ACTION,
        instance.name,
        str(instance.epoch),
        call.plan_ref,
        call.step_ref,
        call.public_id,
        call.tool_name,
        binding.fingerprint,
        binding.implementation_digest,
        NO_CREDENTIAL,
        binding.arguments,
        binding.state_token,
        str(rule.revision_id),
        str(rule.number),
    )


def intent_digest(call: Call) -> str:
    """Return the digest of what is wanted, whichever call asks for it: same plan, tool and arguments."""
    return intent_of(call.plan_ref, call.tool_name, call.arguments)


def intent_of(plan_ref: str, tool_name: str, arguments: str) -> str:
    """Return the digest of what a call of this tool with these arguments, as RFC 8785 text, would want in a plan."""
    return digest(INTENT, this_instance().name, plan_ref, tool_name, arguments)


def likeness(call: Call) -> str:
    """Return the digest of what is wanted, wherever it is asked for: same tool and arguments."""
    return digest(LIKENESS, call.tool_name, call.arguments)
