"""The tool `permission_prompt`: Claude Code calls it before it runs a tool of its own (`--permission-prompt-tool`).

The answer must be one text block of JSON without structured content: `{"behavior": "allow", "updatedInput"}` or
`{"behavior": "deny", "message"}`. Whatever fails is a refusal.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

import mcp_types as types

from catalog.access.roles import NotAllowed
from catalog.access.tokens import ASK_SCOPE
from catalog.core.transactions import is_unavailable, log_unexpected
from catalog.errors import ToolgateError
from catalog.models import Call
from catalog.rest.authentication import check_scope
from catalog.rest.problems import DATABASE_UNAVAILABLE
from catalog.states import CallStatus
from plans.coding_agents.hook_formats.events import short
from plans.coding_agents.hooks import ASK_AGAIN
from plans.coding_agents.permissions import (
    PROMPT_SESSION,
    PermissionAnswer,
    PermissionQuestion,
    ask,
    session_of_question,
    tell_to_ask_again,
)
from plans.coding_agents.sessions import coding_agent_of, note_hook_traffic
from plans.live.waits import until_decided, until_one_ends
from plans.mcp.callers import (
    CHECK_SECONDS,
    Caller,
    Context,
    TokenEnded,
    caller_of,
    check_arguments,
    client_of,
    in_held_thread,
    in_thread,
    session_of,
    verify_again,
)
from plans.mcp.waiting import PROGRESS_SECONDS, listed_wait, usual_seconds

CLIENT = "claude-code"
"""The client of a prompt whose sender has another name, such as a program that embeds Claude Code."""
TOKEN_ENDED = "This token is no longer valid."  # noqa: S105 - a sentence
FAILED = "Toolgate could not decide about this call, so it was not allowed."


async def permission_prompt(context: Context, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Answer a prompt, after a wait for as long as the client stands."""
    try:
        check_arguments(context)
        return _result(await _answer(context, arguments))
    except TokenEnded:
        return refusal(TOKEN_ENDED)
    except ToolgateError as error:
        return refusal(error.user_message() if hasattr(error, "user_message") else str(error))
    except NotAllowed as error:
        return refusal(error.message)
    except Exception as error:  # noqa: BLE001 - logged without its message; a refusal is the only safe answer
        log_unexpected(error)
        return refusal(DATABASE_UNAVAILABLE.detail if is_unavailable(error) else FAILED)


async def _answer(context: Context, arguments: Mapping[str, Any]) -> PermissionAnswer:
    caller, ends = caller_of(context), monotonic() + usual_seconds(context)
    client = coding_agent_of(client_of(context)) or CLIENT
    question = await in_thread(prompted_question, caller, client, session_of(context), arguments)
    answer = await in_held_thread(caller, _ask, caller, question, None)
    with listed_wait(caller, context.request_id) as wait:
        told_at = float("-inf")
        began = monotonic()
        while answer.decision == "wait" and answer.call is not None and not wait.over.is_set():
            left = ends - (now := monotonic())
            if left <= 0:
                break
            if now - told_at >= PROGRESS_SECONDS:
                told_at = now
                await context.session.report_progress(round(now - began, 1), None, answer.message)
            await until_one_ends(until_decided(answer.call, min(left, CHECK_SECONDS)), wait.over.wait())
            if not await in_thread(_is_held, caller, answer.call):
                answer = await in_held_thread(caller, _ask, caller, question, answer.call)
    if answer.decision == "wait" and answer.call is not None:
        await in_thread(_tell_to_ask_again, caller, answer.call)
    return answer


def prompted_question(caller: Caller, client: str, session: str, arguments: Mapping[str, Any]) -> PermissionQuestion:
    """Return the question in a prompt; its session is that in which the client's hook has asked about the same call.

    Raises ToolgateError for arguments that hold no question.
    """
    tool, given, call_id = (arguments.get(name) for name in ("tool_name", "input", "tool_use_id"))
    if not isinstance(tool, str) or not isinstance(given, dict) or not isinstance(call_id, str | None):
        raise ToolgateError("A prompt needs tool_name (text), input (object) and tool_use_id (text).")
    # Without an id it may be about another call with the same input as one that its hook was allowed.
    repeats = bool(call_id)
    question = PermissionQuestion(client, session or PROMPT_SESSION, tool, given, call_id or "", repeats=repeats)
    return replace(question, session=session_of_question(question, by=caller.requester()) or question.session)


def _ask(caller: Caller, question: PermissionQuestion, waited_for: str | None) -> PermissionAnswer:
    check_scope(ASK_SCOPE, caller.user, caller.token)
    by = caller.requester(question.session)
    if waited_for is None:
        note_hook_traffic(question.client, question.session, by=by, how="permission_prompt")
    return ask(question, by=by, waited_for=waited_for)


def _is_held(caller: Caller, call_ref: str) -> bool:
    """Return whether people have not decided yet. Raises TokenEnded, and NotAllowed if a right was lost."""
    now = verify_again(caller)
    check_scope(ASK_SCOPE, now.user, now.token)
    return Call.objects.filter(public_id=call_ref, status=CallStatus.HELD).exists()


def _tell_to_ask_again(caller: Caller, call_ref: str) -> None:
    tell_to_ask_again(call_ref, by=caller.requester())


def _result(answer: PermissionAnswer) -> types.CallToolResult:
    if answer.decision == "allow" and answer.input is not None:
        return _text({"behavior": "allow", "updatedInput": dict(answer.input)})
    if answer.decision == "wait" and answer.call is not None:
        return refusal(f"{ASK_AGAIN} {answer.url}".strip())
    return refusal(answer.message)


def refusal(message: str) -> types.CallToolResult:
    return _text({"behavior": "deny", "message": short(message) or "Refused by Toolgate."})


def _text(document: Mapping[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=json.dumps(document, ensure_ascii=False))])
