"""What people agree to, as one number: two calls with the same digest are the same call in every bound field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection

from approvals.models import Instance
from approvals.policies.rulebook import Rule
from catalog.core.canonical_json import canonical_text, digest
from catalog.models import Call
from catalog.schemas.normalization import fill_defaults

ACTION_DOMAIN, INTENT_DOMAIN, CALL_DOMAIN = "action-v1", "intent-v1", "likeness-v1"
NO_CREDENTIAL = ""
"""Stands for the credential a call runs under; none of today's tools has one."""


@dataclass(frozen=True, slots=True)
class ApprovalBinding:
    """What would run: the version's fingerprint, its code's digest, canonical arguments, the target's state."""

    fingerprint: str
    implementation_digest: str
    arguments: str
    state_token: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something is agreed to: the installation, and its epoch."""

    name: str
    epoch: int


def current_origin() -> Origin:
    """Return this installation in its present epoch. Raises Instance.DoesNotExist without its row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, epoch FROM approvals_instance WHERE id = 1")
        row = cursor.fetchone()
    if row is None:
        raise Instance.DoesNotExist("This installation's row is missing.")
    return Origin(*row)


def action_digest(call: Call, binding: ApprovalBinding, rule: Rule, origin: Origin | None = None) -> str:
    """Return the digest over everything an approval of `call`, held by `rule`, is bound to: here, unless told where."""
    origin = origin or current_origin()
    return digest(
        ACTION_DOMAIN,
        origin.name,
        str(origin.epoch),
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
    return intent_digest_for(call.plan_ref, call.tool_name, call.arguments, call.version.input_schema)


def intent_digest_for(plan_ref: str, tool_name: str, arguments: str, schema: Mapping[str, Any]) -> str:
    """Return the digest of what a call of this tool with these arguments, as RFC 8785 text, would want in a plan.

    An argument that is left out counts as the default that `schema`, the tool's input schema, has for it.
    """
    return digest(INTENT_DOMAIN, current_origin().name, plan_ref, tool_name, _with_defaults(arguments, schema))


def _with_defaults(arguments: str, schema: Mapping[str, Any]) -> str:
    return canonical_text(fill_defaults(dict(schema), json.loads(arguments)))


def call_digest(call: Call) -> str:
    """Return the digest of what is wanted, wherever it is asked for: same tool and arguments."""
    return likeness_of(call.tool_name, call.arguments)


def likeness_of(tool_name: str, arguments: str) -> str:
    """Return the digest that calls of one tool with the same arguments, as RFC 8785 text, have in common."""
    return digest(CALL_DOMAIN, tool_name, arguments)
