"""Nodes of contract C for programs that do their own routing: `should_execute_tools` and `execute_tools`.

Toolgate itself turns a planner's answer into a plan (`plans.planner.steps`). Here a state passes from node to node, and
no plan is made.
"""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from django.contrib.auth.models import User

from catalog.access.roles import user_for_token
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallOutcome
from catalog.errors import ToolError, ToolgateError
from catalog.models import ApiToken, Call, new_call_id
from catalog.rest.authentication import check_scope
from catalog.states import PUBLIC_STATUS
from catalog.styles.class_tools import outcome_to_dict, safe_execute
from catalog.tools.registry import get_tool, unknown_tool_error
from plans.actions.call import CallOrder, create_call
from plans.llm.client import in_database
from plans.planner.output import PlannedCall, State
from plans.store.requesters import Requester

WAITS_FOR_APPROVAL = "This needs approval by a person before it runs. Nothing has been done yet."
STILL_RUNNING = "This is still running. The result will be available from its call."
REQUESTER_MISSING = "This tool needs a requester. Set requester to a User or an ApiToken."
NO_CALL = "A tool call must be an object with the tool's name as tool and its arguments as args."
NO_ARGUMENTS = "The args of a tool call must be an object of arguments by name."
POLL_SECONDS = 0.05
MARGIN_SECONDS = 5.0
LONGEST_NAME = 128
"""Maximum characters of a session's name."""


async def execute_tools(state: State) -> dict[str, Any]:
    """Run the planner's tool calls one after the other and return their results; failures of calls are not raised.

    `tool_results` maps tool names to contract C's results (the last one if a tool was called twice); `results` lists
    all of them in order, each with its call's id. With a `requester` in the state (a User, an ApiToken or a
    `Requester`), each call passes the gate, and the result of a call that waits for approval says so; calls of a User
    or ApiToken belong to the session named by the conversation's id. Without a requester only safe tools run. Raises
    TypeError for any other requester.
    """
    by = state.get("requester")
    if not isinstance(by, Requester | User | ApiToken | None):
        raise TypeError(f"The requester of a state is a User or an ApiToken, not a {type(by).__name__}.")
    calls = state.get("tool_calls") or []
    ordered = [await _run_tool_call(call, state) for call in (calls if isinstance(calls, list | tuple) else [calls])]
    return {"tool_results": {each["tool"]: each["result"] for each in ordered}, "results": ordered}


async def _run_tool_call(call: Any, state: State) -> dict[str, Any]:
    fields = call.model_dump() if isinstance(call, PlannedCall) else call
    if not isinstance(fields, Mapping) or not isinstance(fields.get("tool"), str):
        return _tool_result("", new_call_id(), _failure_result(NO_CALL, NO_CALL))
    name, args = fields["tool"], fields.get("args")
    args = {} if args is None else args
    tool = get_tool(name)
    if tool is None:
        unknown_tool_error(name)  # logs the miss
        return _tool_result(name, new_call_id(), _failure_result(f"Unknown tool: {name}", None))
    if not isinstance(args, Mapping):
        return _tool_result(name, new_call_id(), _failure_result(NO_ARGUMENTS, NO_ARGUMENTS))
    try:
        if state.get("requester") is not None:
            by = await in_database(_requester_of_state, state)
            order = CallOrder(name, dict(args), reason=str(fields.get("reason") or ""), caller_ids=_context(state))
            return await _call_through_gate(order, by)
        if tool.safety_level != SafetyLevel.SAFE:
            raise ToolError(REQUESTER_MISSING)
        return _tool_result(name, new_call_id(), await safe_execute(tool, dict(args), _context(state)))
    except ToolgateError as refusal:
        message = refusal.user_message() if isinstance(refusal, ToolError) else refusal.message
        return _tool_result(name, new_call_id(), _failure_result(message, message))


def _requester_of_state(state: State) -> Requester:
    """Return the requester of a state's calls. Raises NotAllowed for a person or token that may not call tools."""
    by = state["requester"]
    if isinstance(by, Requester):
        return by
    token = by if isinstance(by, ApiToken) else None
    user = user_for_token(token) if token else by
    check_scope("calls:create", user, token)
    conversation = _context(state)["conversation_id"]
    return Requester(user, token, via="shell", session="" if conversation is None else str(conversation)[:LONGEST_NAME])


def _context(state: State) -> dict[str, Any]:
    conversation, user = _object(state.get("conversation_context")), _object(state.get("user_context"))
    return {
        "trace_id": state.get("trace_id"),
        "conversation_id": conversation.get("conversation_id"),
        "conference_id": user.get("conference_id"),
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


async def _call_through_gate(order: CallOrder, by: Requester) -> dict[str, Any]:
    call = await in_database(lambda: create_call(order, by=by))
    tool = get_tool(order.tool)
    until = monotonic() + (tool.longest_seconds if tool else 0) + MARGIN_SECONDS
    while True:
        ended = await in_database(_final_result, call.pk)
        if ended is not None or monotonic() >= until:
            return _tool_result(order.tool, call.public_id, ended or _failure_result("running", STILL_RUNNING))
        await asyncio.sleep(POLL_SECONDS)


def _final_result(call_pk: int) -> dict[str, Any] | None:
    """Return contract C's result of a call that ended or waits for approval; None while it runs."""
    call = Call.objects.get(pk=call_pk)
    status = PUBLIC_STATUS[call.status]
    if status == "running":
        return None
    if status == "waiting":
        return _failure_result("waiting_for_approval", WAITS_FOR_APPROVAL)
    response = call.response_json or {}
    extra = {"user_message": response["user_message"]} if response.get("user_message") else {}
    results = response.get("results") or []
    value = results[0] if len(results) == 1 else results or None
    text = response.get("error") or response.get("warning") or call.message
    success = status == "completed" and bool(response.get("success"))
    return outcome_to_dict(
        CallOutcome(success=success, message=call.message or str(text), value=value, error=text, fields=extra)
    )


def _failure_result(error: str, user_message: str | None) -> dict[str, Any]:
    return {"success": False, "data": None, "error": error, "user_message": user_message}


def _tool_result(name: str, call_id: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"tool": name, "call": call_id, "result": result}
