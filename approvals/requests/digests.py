"""Digests that approvals are bound to: equal digests mean that all bound fields are equal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection

from approvals.models import Instance
from approvals.policies.rulebook import Rule
from catalog.core.canonical_json import canonical_text, digest
from catalog.models import Call
from catalog.schemas.defaults import fill_defaults

ACTION_DOMAIN, INTENT_DOMAIN, CALL_DOMAIN = "action-v1", "intent-v1", "likeness-v1"
NO_CREDENTIAL = ""
"""Placeholder for the credential that a call runs under; no current tool has one."""


@dataclass(frozen=True, slots=True)
class ApprovalBinding:
    """Properties of a call that an approval is bound to: the call does not start if one of them has changed."""

    fingerprint: str
    implementation_digest: str
    arguments: str
    state_token: str


@dataclass(frozen=True, slots=True)
class Origin:
    name: str
    epoch: int


def current_origin() -> Origin:
    """Return this installation and its current epoch. Raises Instance.DoesNotExist if its row is missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, epoch FROM approvals_instance WHERE id = 1")
        row = cursor.fetchone()
    if row is None:
        raise Instance.DoesNotExist("The row of this installation is missing.")
    return Origin(*row)


def action_digest(call: Call, binding: ApprovalBinding, rule: Rule, origin: Origin | None = None) -> str:
    """Return the digest of all that an approval of `call` under `rule` binds; `origin` None: the current origin."""
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
    """Return the digest of a call's intent: plan, tool and arguments, independent of the call's id."""
    return intent_digest_for(call.plan_ref, call.tool_name, call.arguments, call.version.input_schema)


def intent_digest_for(plan_ref: str, tool_name: str, arguments: str, schema: Mapping[str, Any]) -> str:
    """Return the intent digest for a plan, tool and arguments (RFC 8785 text) with the defaults of `schema`."""
    filled = canonical_text(fill_defaults(dict(schema), json.loads(arguments)).arguments)
    return digest(INTENT_DOMAIN, current_origin().name, plan_ref, tool_name, filled)


def call_digest(call: Call) -> str:
    """Return the digest of a call's tool and arguments; equal calls have the same digest in any plan."""
    return likeness_of(call.tool_name, call.arguments)


def likeness_of(tool_name: str, arguments: str) -> str:
    """Return the digest of a tool and its arguments (RFC 8785 text)."""
    return digest(CALL_DOMAIN, tool_name, arguments)
