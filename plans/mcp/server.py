"""Handlers of the MCP methods, for both protocol eras: versions with a handshake, and 2026-07-28."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from django.conf import settings
from mcp.server import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from catalog.access.roles import NotAllowed
from catalog.access.tokens import record_first_refusal
from catalog.core.transactions import is_unavailable, log_unexpected
from catalog.rest.problems import DATABASE_UNAVAILABLE
from plans.coding_agents.sessions import coding_agent_of, note_connection
from plans.mcp import calls, listing, results, tasks
from plans.mcp.callers import (
    OPENED_KEY,
    Context,
    caller_of,
    check_arguments,
    client_of,
    in_call_thread,
    in_held_thread,
    in_thread,
    scope_of,
    session_of,
)
from plans.mcp.operations import record_outcome
from plans.mcp.permission_prompt import permission_prompt
from plans.mcp.waiting import usual_seconds, wait_for_end, wait_for_people

INSTRUCTIONS = (
    "Toolgate runs tools for you, and people approve the dangerous calls before they run; before a task of several "
    "such calls, ask for all of them at once with propose_envelope. "
    "A call that waits for a person returns the status pending_approval with an approval_id; it is stored, so do not "
    "make it again. "
    "Call approval_result with that approval_id, and with wait_seconds of up to 50, to learn the outcome; you may ask "
    "as often as you need and do other work in between. "
    "Closing the connection or cancelling the request ends only your wait, never the call. "
    "A call that was rejected, has expired or was withdrawn returns an error with the reason: act on the reason and do "
    "not make the same call again."
)
INTERNAL = "Something went wrong here; it has been logged."


class ToolgateServer(Server[dict[str, Any]]):
    """A server that also declares `tools.listChanged` in the handshake era."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the options for a handshake, with `tools.listChanged` but no tasks, which need a newer version."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions or {})


def build_server(listen: Callable[[Context, Any], Awaitable[Any]]) -> ToolgateServer:
    """Return the server with its handlers. `listen` serves subscriptions to changes of the tools."""
    server = ToolgateServer(
        "toolgate",
        version=str(settings.SPECTACULAR_SETTINGS["VERSION"]),
        title="Toolgate",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=listing.input_schema_of,
        on_subscriptions_listen=listen,
    )
    server.middleware[:] = [record_outcome]  # spans are Toolgate's own
    server.extensions[tasks.EXTENSION] = {}
    server.add_request_handler("tools/list", types.PaginatedRequestParams, guarded(list_tools))
    server.add_request_handler("tools/call", types.CallToolRequestParams, guarded(call_tool))
    server.add_request_handler("tasks/get", tasks.TaskParams, guarded(tasks.get_task))
    server.add_request_handler("tasks/cancel", tasks.TaskParams, guarded(tasks.cancel_task))
    return server


Handler = Callable[[Context, Any], Awaitable[Any]]


def guarded(handler: Handler) -> Handler:
    """Return a handler that logs unexpected errors without their messages, since these may contain arguments."""

    @functools.wraps(handler)
    async def handle(context: Context, params: Any) -> Any:
        try:
            return await handler(context, params)
        except (MCPError, asyncio.CancelledError):
            raise
        except NotAllowed as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from None
        except Exception as error:  # noqa: BLE001 - details of unexpected errors stay out of answers
            log_unexpected(error)
            raise MCPError(
                types.INTERNAL_ERROR, DATABASE_UNAVAILABLE.detail if is_unavailable(error) else INTERNAL
            ) from None

    return handle


async def list_tools(context: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
    agent, session = coding_agent_of(client_of(context)), session_of(context)
    if agent is not None:  # it has tools of its own, about which it may ask or not
        by = caller_of(context).requester(session)
        await in_thread(functools.partial(note_connection, agent, session, by=by))
    return await in_thread(listing.list_tools, caller_of(context), params.cursor)


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
    """Answer `tools/call` with the result, with a task, or after a limited wait with the pending result."""
    arguments, session = params.arguments or {}, session_of(context)
    if params.name == listing.PERMISSION_PROMPT:
        return await permission_prompt(context, arguments)
    try:
        check_arguments(context)
        if params.name == listing.APPROVAL_RESULT:
            return await approval_result(context, arguments)
        call = caller_of(context), params.name, arguments, session
        made: calls.OpenedCall | None = scope_of(context).get(OPENED_KEY)
        if made is not None and made.error is not None:
            raise made.error
        opened = made.state if made is not None else await in_call_thread(calls.open_call, *call)
        state = opened if opened is not None else await in_held_thread(call[0], calls.open_held_call, *call)
    except MCPError as error:
        await in_thread(record_first_refusal, caller_of(context).token, params.name, error.message)
        raise
    except Exception as error:
        refused = results.refusal(error)
        if refused is None:
            raise
        await in_thread(record_first_refusal, caller_of(context).token, params.name, results.refusal_reason(error))
        return refused
    if state.result is None and state.is_held and tasks.is_declared(context):
        return tasks.created_task(state)
    if state.result is None and not state.is_held:
        state = await wait_for_end(context, state)
    if state.result is None and state.is_held:
        state = await wait_for_people(context, state, usual_seconds(context))
    return state.result or state.interim_result


async def approval_result(context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    wrong = _wrong_argument(arguments)
    if wrong is not None:
        return wrong
    state = await in_thread(calls.state_of_approval, caller_of(context), arguments["approval_id"])
    if state is None:
        return results.result(calls.NO_APPROVAL, {"error": "not_found", "message": calls.NO_APPROVAL}, is_error=True)
    seconds = float(arguments.get("wait_seconds", 0))
    if state.result is None and seconds > 0:
        state = await wait_for_people(context, state, seconds)
    return state.result or state.interim_result


def _wrong_argument(arguments: dict[str, Any]) -> types.CallToolResult | None:
    field = next((name for name in arguments if name not in listing.RESULT_TOOL.input_schema["properties"]), None)
    seconds = arguments.get("wait_seconds", 0)
    if field is not None:
        message = f"The parameter '{field[:64]}' is invalid: there is no such parameter."
    elif not isinstance(arguments.get("approval_id"), str):
        field, message = "approval_id", "The parameter 'approval_id' is invalid: it must be a text."
    elif isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= listing.MOST_SECONDS:
        field = "wait_seconds"
        message = f"The parameter 'wait_seconds' is invalid: it must be a number from 0 to {listing.MOST_SECONDS}."
    else:
        return None
    problem = {"path": field, "code": "invalid", "message": message}
    return results.result(message, {"error": "invalid", "message": message, "errors": [problem]}, is_error=True)
