"""The extension `io.modelcontextprotocol/tasks`: a held call as a task that the client polls.

A client that declares the extension in a request of protocol version 2026-07-28 gets a task at once instead of waiting.
The task has the id of the approval. Cancelling the task withdraws the request.
"""

from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field

from approvals.states import RequestStatus
from catalog.core.canonical_json import format_utc
from catalog.states import CallStatus
from plans.mcp import calls
from plans.mcp.callers import Context, caller_of, in_thread
from plans.mcp.calls import CallState
from plans.mcp.results import reason_of

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 2_000
KEPT_MILLISECONDS = 24 * 3600 * 1000
FAILED = -32000
REFUSED = frozenset(
    {
        RequestStatus.REJECTED,
        RequestStatus.EXPIRED,
        RequestStatus.REVOKED,
        RequestStatus.CHANGES_REQUESTED,
        RequestStatus.INVALIDATED,
        RequestStatus.SUPERSEDED,
    }
)


class TaskParams(types.RequestParams):
    model_config = ConfigDict(populate_by_name=True)
    task_id: str = Field(alias="taskId", max_length=64)


def is_declared(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    extensions = capabilities.extensions if capabilities is not None else None
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (extensions or {})


def created_task(state: CallState) -> dict[str, Any]:
    return {"resultType": "task", **task_of(state)}


def task_of(state: CallState) -> dict[str, Any]:
    """Return a held call as a task. A completed task contains its result, a failed task its error."""
    request, call = state.request, state.call
    assert request is not None  # noqa: S101 (only held calls become tasks)
    status = _status_of(state)
    task = {
        "taskId": request.public_id,
        "status": status,
        "statusMessage": state.message if state.result is None else reason_or_message(state),
        "createdAt": format_utc(call.created_at),
        "lastUpdatedAt": format_utc(call.finished_at or request.decided_at or call.created_at),
        "ttlMs": KEPT_MILLISECONDS,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    if status == "completed" and state.result is not None:
        task["result"] = state.result.model_dump(by_alias=True, mode="json", exclude_none=True)
    if status == "failed":
        task["error"] = {"code": FAILED, "message": reason_of(call)}
    return task


def _status_of(state: CallState) -> str:
    request, call = state.request, state.call
    if state.result is None:
        return "working"
    if request is not None and call.started_at is None and call.status != CallStatus.COMPLETED:
        if request.status == RequestStatus.WITHDRAWN:
            return "cancelled"
        if request.status in REFUSED:
            return "failed"
    return "cancelled" if call.status == CallStatus.CANCELLED else "completed"


def reason_or_message(state: CallState) -> str:
    """Return the message of a completed call, or the reason why a call did not complete."""
    return state.call.message or "OK" if state.call.status == CallStatus.COMPLETED else reason_of(state.call)


async def get_task(context: Context, params: TaskParams) -> dict[str, Any]:
    """Answer `tasks/get`. Raises MCPError if the task does not belong to the caller's token."""
    state = await _own_task(context, params.task_id)
    return {"resultType": "complete", **task_of(state)}


async def cancel_task(context: Context, params: TaskParams) -> dict[str, Any]:
    """Answer `tasks/cancel`: withdraw the request unless it was decided. Raises what `get_task` raises."""
    state = await _own_task(context, params.task_id)
    await in_thread(calls.withdraw_call, caller_of(context), state)
    return {"resultType": "complete"}


async def _own_task(context: Context, task_id: str) -> CallState:
    if not is_declared(context):
        message = f"This request does not declare the extension {EXTENSION}."
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message)
    state = await in_thread(calls.state_of_approval, caller_of(context), task_id)
    if state is None or not state.is_held:
        raise MCPError(types.INVALID_PARAMS, "There is no such task of this token.")
    return state
