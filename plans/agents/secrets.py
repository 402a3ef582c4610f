"""Secrets in calls that an agent's model requests, between the model's turn and the steps created from it.

A turn's result is stored and shown like any other, with `{"$secret": name}` in place of secrets. The vault keeps the
original arguments under the turn's step until the loop processes the turn.
"""

import json
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from catalog.calls import vault
from catalog.calls.vault import SecretScope, keyring
from catalog.core.transactions import retry_on_deadlock
from catalog.secrets.placeholders import PLACEHOLDER_KEY, Secret, without_macs
from catalog.tools.registry import get_tool
from plans.agents.messages import ToolUse, TurnResult
from plans.models import Plan

SECRETS_GONE = "This call was not made: the secrets in its arguments are no longer stored. Send it again with them."


def redacted_calls(tool_uses: Sequence[ToolUse]) -> list[ToolUse]:
    """Return calls without the secrets in their arguments, safe to store and to send to the model again."""
    return [each.model_copy(update={"arguments": _redacted_call(each)}) for each in tool_uses]


def _redacted_call(tool_use: ToolUse) -> Any:
    """Return a call's arguments without secrets; empty for an unknown tool, whose secrets cannot be located."""
    known = get_tool(tool_use.tool)
    return json.loads(without_macs(vault.redact_arguments(known, tool_use.arguments).text)) if known is not None else {}


@retry_on_deadlock
def store_turn_secrets(turn: TurnResult, plan_ref: str, step_id: int) -> TurnResult:
    """Return a turn without secrets for its step's result, and store the original arguments in the vault.

    Deletes what an earlier attempt of the step stored. Stores nothing for a plan that has ended.
    """
    result = turn.model_copy(update={"calls": redacted_calls(turn.calls)})
    pairs = zip(turn.calls, result.calls, strict=True)
    # All arguments of a call are one secret.
    keys = [(_vault_key(each.id), each.arguments) for each, seen in pairs if each.arguments != seen.arguments]
    secrets = [Secret("arguments", key, arguments, keyring().mac(key, arguments)) for key, arguments in keys]
    place = SecretScope(plan_ref, str(step_id))
    with transaction.atomic():
        # Ending the plan deletes its secrets, so lock it: they are either not stored or deleted afterwards.
        goes_on = Plan.objects.select_for_update().filter(public_id=plan_ref, completed_at=None).exists()
        vault.delete_secrets(place)
        if goes_on:
            vault.store_secrets(place, secrets)
    return result


def _vault_key(call_id: str) -> str:
    return f"calls.{call_id}"


def restore_turn_secrets(turn: TurnResult, plan_ref: str, step_id: int) -> TurnResult:
    """Return a turn with the original arguments of its calls, and delete them from the vault.

    A call whose secrets are gone has a `problem` that says so.
    """
    place = SecretScope(plan_ref, str(step_id))
    kept = vault.secret_values_in(place)
    calls = []
    for each in turn.calls:
        arguments = kept.get(_vault_key(each.id))
        restored = each if arguments is None else each.model_copy(update={"arguments": arguments})
        is_gone = arguments is None and PLACEHOLDER_KEY in json.dumps(each.arguments)
        if is_gone or _redacted_call(restored) != each.arguments:
            restored = each.model_copy(update={"problem": each.problem or SECRETS_GONE})
        calls.append(restored)
    vault.delete_secrets(place)
    return turn.model_copy(update={"calls": calls})
