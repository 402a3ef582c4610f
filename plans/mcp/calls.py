"""Calls of MCP clients: created like REST calls, joined while undecided, and read for results.

The functions use the database synchronously, so they run in threads; `plans.mcp.waiting` has the waits.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mcp_types as types
from django.db import connection
from mcp.shared.exceptions import MCPError

from approvals.envelopes.reading import outside_sentence
from approvals.models import ApprovalRequest
from approvals.requests.digests import likeness_of
from approvals.requests.lifecycle import withdraw
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.core.locks import LockSpace, LockTimeout, exclusive
from catalog.core.rows import JoinedReader, row_reader
from catalog.errors import Conflict, ToolRemoved
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.rest.authentication import check_scope
from catalog.states import TERMINAL, CallStatus
from catalog.tools.registry import PLANNER_CATEGORY
from plans.actions.call import CallOrder, create_call
from plans.engine import calls as engine_calls
from plans.engine.holding import CallBusy
from plans.engine.progress import progress_of
from plans.engine.refusals import require_call_within_limits
from plans.live.waits import read_soon, standing_in
from plans.mcp import results
from plans.mcp.callers import SCOPE, Caller, verify_again
from plans.mcp.listing import may_wait
from plans.models import ModelText

LOCK_SECONDS = 10.0
SAME_CALL = "The same call is being stored at this moment. Make it again in a few seconds."
PUBLIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
NO_APPROVAL = "There is no approval with this id among the calls of this token."


@dataclass(frozen=True, slots=True)
class CallState:
    """The current state of a call; `result` is None while there is something to wait for."""

    call: Call
    request: ApprovalRequest | None
    result: types.CallToolResult | None
    progress: str = ""
    """The last progress that the running call reported, such as "3 of 10"."""
    outside: str = ""
    """The reason why no envelope of the caller lets the waiting call start, if there is one for calls like it."""

    @property
    def is_running(self) -> bool:
        """True if the call runs or will run, and needs no approval."""
        return self.result is None and self.request is None

    @property
    def is_held(self) -> bool:
        """True if the call has an approval request, whether decided or not."""
        return self.request is not None

    @property
    def interim_result(self) -> types.CallToolResult:
        """The result for a client whose wait ends before the call does."""
        return (
            results.running_result(self.call)
            if self.request is None
            else results.pending_result(self.request, self.outside)
        )

    @property
    def message(self) -> str:
        """The sentence that clients show as progress while they wait."""
        progress = f" ({self.progress})" if self.progress else ""
        if self.request is None:
            return f"{self.call.tool_name} is running{progress}."
        if self.request.status == RequestStatus.PENDING:
            waits = f"Waiting for a person to approve {self.call.tool_name}: {results.page_of(self.request)}"
            return f"{waits} {self.outside}".rstrip()
        return f"{self.call.tool_name} was approved and is still running{progress}."


@dataclass(frozen=True, slots=True)
class OpenedCall:
    """Outcome of `open_call` for a call made before the SDK got the request: its result or its error."""

    state: CallState | None
    error: Exception | None = None


def open_call(caller: Caller, name: str, arguments: Mapping[str, Any], session: str) -> CallState | None:
    """Store a call that no policy can hold, and return its state shortly after. None if a policy may hold the call.

    In that case, use `open_held_call`. Raises MCPError for an unknown tool, NotAllowed, and what `create_call` raises.
    """
    check_scope(SCOPE, caller.user, caller.token)
    callable_tool, by = snapshot.callable_tool(name), caller.requester(session)
    if callable_tool is None and isinstance(missing := snapshot.missing_tool_error(name, by.limits), ToolRemoved):
        raise missing
    if callable_tool is None or callable_tool.tool.runs_in_client or PLANNER_CATEGORY in callable_tool.tool.categories:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:64]}")
    require_call_within_limits(name, arguments, by.ids)
    if may_wait(callable_tool, arguments, by):
        return None
    call = create_call(CallOrder(tool=name, arguments=arguments), by=by)
    if call.status == CallStatus.COMPLETED:  # it ran first and was stored as it is here
        return CallState(call, None, results.ended_result(call, None))
    return _read_soon(call)


def open_held_call(caller: Caller, name: str, arguments: Mapping[str, Any], session: str) -> CallState:
    """Store a call that may be held, or return an undecided call of this token and session with the same arguments.

    May take seconds for the tool's preview, or while another thread stores the same call. Raises CallBusy, and what
    `create_call` raises.
    """
    by, prepared = caller.requester(session), engine_calls.prepare_for_plan(name, arguments)
    order = CallOrder(tool=name, arguments=arguments, prepared=prepared)
    likeness = likeness_of(name, prepared.text)
    own = ApprovalRequest.objects.filter(call__token=caller.token, call__session=session, likeness=likeness)
    undecided = own.filter(call__status=CallStatus.HELD, status=RequestStatus.PENDING, is_early=False)
    try:
        # Threads of all processes: the second finds the call that the first stores.
        with exclusive(LockSpace.SAME_CALL, f"{caller.token.pk} {likeness} {session}", seconds=LOCK_SECONDS):
            unexpired = undecided.filter(expires_at__gt=clock.now()).select_related("call")
            request = unexpired.order_by("-pk").first()
            call = request.call if request is not None else create_call(order, by=by)
    except LockTimeout:
        raise CallBusy(SAME_CALL) from None
    return _read_soon(call)


def _read_soon(call: Call) -> CallState:
    return read_soon(call, lambda: state_of(call.public_id), lambda state: state.is_running)


def state_of(call_id: str) -> CallState:
    """Return the current state of a call; if its request was invalidated, that of the call that replaced it.

    Raises Call.DoesNotExist. One hand-written statement reads the call, its request and its value as text for models;
    the ORM would need 0.5 ms to build this query, for every call.
    """
    with connection.cursor() as cursor:
        cursor.execute(_call_statement(), [call_id])
        row = cursor.fetchone()
    if row is None:
        raise Call.DoesNotExist
    call = _call_reader().read(row)
    is_over = call.status in TERMINAL or call.status == CallStatus.OUTCOME_UNKNOWN
    if call.status == CallStatus.CANCELLED:
        current, goes_on = standing_in(call_id)
        if current != call_id:
            return state_of(current)
        is_over = not goes_on
    request = call.approval if hasattr(call, "approval") else None
    if is_over:
        return CallState(call, request, results.ended_result(call, request))
    is_pending = request is not None and request.status == RequestStatus.PENDING
    return CallState(call, request, None, outside=outside_sentence(call) if is_pending else "")


@cache
def _call_reader() -> JoinedReader[Call]:
    asked, text = row_reader(ApprovalRequest, "request"), row_reader(ModelText, "model_text")
    return JoinedReader(row_reader(Call, "call"), approval=asked, model_text=text)


@cache
def _call_statement() -> str:
    return (
        f"SELECT {_call_reader().columns} FROM catalog_call AS call "  # noqa: S608 - names of our columns
        "LEFT JOIN approvals_approvalrequest AS request ON request.call_id = call.id "
        "LEFT JOIN plans_modeltext AS model_text ON model_text.call_id = call.id WHERE call.public_id = %s"
    )


def check_call(caller: Caller, call_id: str) -> CallState:
    """Return the state of a call for a waiting caller. Raises TokenEnded, and NotAllowed if a right was lost."""
    now = verify_again(caller)
    check_scope(SCOPE, now.user, now.token)
    state = state_of(call_id)
    return state if state.result is not None else replace(state, progress=progress_of(state.call))


def state_of_approval(caller: Caller, approval_id: str) -> CallState | None:
    """Return the call of an approval; None unless the caller's token made the call. Raises NotAllowed.

    For calls that need no approval, `approval_id` may be the id of the call.
    """
    check_scope(SCOPE, caller.user, caller.token)
    if not PUBLIC_ID.fullmatch(approval_id):
        return None
    column = "public_id" if approval_id.startswith("call_") else "approval__public_id"
    own = Call.objects.filter(token=caller.token.pk, **{column: approval_id})
    call_id = own.values_list("public_id", flat=True).first()
    return state_of(call_id) if call_id is not None else None


def withdraw_call(caller: Caller, state: CallState) -> None:
    """Withdraw a call's request at the client's wish. Does nothing if it was decided or the call has started."""
    if state.request is None or state.call.status in TERMINAL:
        return
    try:
        withdraw(state.request, by=caller.user, reason="The client cancelled the task.")
    except Conflict:
        return
