"""The secrets in what an agent's model wants called, between the turn that wrote them and the steps made of it.

A turn's result is stored and shown like any other: it holds `{"$secret": name}` in their places. What was written is
kept by the vault, in the place of the turn's step, until the loop takes the turn in.
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

SECRETS_GONE = "This call was not made: the secrets in its arguments are not kept any more. Send it again with them."


def redacted_calls(calls: Sequence[ToolUse]) -> list[ToolUse]:
    """Return calls as they may be kept and told again: without the secrets in their arguments."""
    return [each.model_copy(update={"arguments": _redacted_call(each)}) for each in calls]


def _redacted_call(call: ToolUse) -> Any:
    """Return a call's arguments without secrets; none for a tool of which nobody knows what is one."""
    known = get_tool(call.tool)
    return json.loads(without_macs(vault.redact_arguments(known, call.arguments).text)) if known is not None else {}


@retry_on_deadlock
def store_turn_secrets(turn: TurnResult, plan_ref: str, step_id: int) -> TurnResult:
    """Return a turn as its step's result may hold it; what was written with secrets in it the vault keeps.

    An earlier attempt of the step left what nobody asks for any more. For a plan that has ended nothing is kept.
    """
    result = turn.model_copy(update={"calls": redacted_calls(turn.calls)})
    pairs = zip(turn.calls, result.calls, strict=True)
    secrets = [_arguments_secret(each) for each, seen in pairs if each.arguments != seen.arguments]
    place = SecretScope(plan_ref, str(step_id))
    with transaction.atomic():
        # Whoever ends the plan deletes its secrets: before these are kept, or after.
        goes_on = Plan.objects.select_for_update().filter(public_id=plan_ref, completed_at=None).exists()
        vault.delete_secrets(place)
        if goes_on:
            vault.store_secrets(place, secrets)
    return result


def _arguments_secret(call: ToolUse) -> Secret:
    """Return all arguments of a call as one secret."""
    return Secret("arguments", _vault_key(call.id), call.arguments, keyring().mac(_vault_key(call.id), call.arguments))


def _vault_key(call_id: str) -> str:
    return f"calls.{call_id}"


def restore_turn_secrets(turn: TurnResult, plan_ref: str, step_id: int) -> TurnResult:
    """Return a turn with its calls as they were written, for the steps that are made of them; they are kept no more.

    A call whose secrets are gone has a `problem` that says so.
    """
    place = SecretScope(plan_ref, str(step_id))
    kept = vault.secret_values_in(place)
    calls = [_with_secrets_restored(each, kept.get(_vault_key(each.id))) for each in turn.calls]
    vault.delete_secrets(place)
    return turn.model_copy(update={"calls": calls})


def _with_secrets_restored(call: ToolUse, written: Any) -> ToolUse:
    """Return a call with what is kept of it, where that is what it shows."""
    found = call if written is None else call.model_copy(update={"arguments": written})
    if _redacted_call(found) != call.arguments or (written is None and PLACEHOLDER_KEY in json.dumps(call.arguments)):
        return call.model_copy(update={"problem": call.problem or SECRETS_GONE})
    return found
