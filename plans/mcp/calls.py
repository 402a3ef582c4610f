"""Calls of MCP clients: created as REST calls are, joined while undecided, and read for results.

Everything here runs in a thread and uses the database; the waits are in `plans.mcp.waiting`.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from django.db import connection
from django.db.models import QuerySet
from mcp.shared.exceptions import MCPError

from approvals.models import ApprovalRequest
from approvals.requests.digests import likeness_of
from approvals.requests.lifecycle import withdraw
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.errors import Conflict
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.rest.authentication import check_scope
from catalog.states import TERMINAL, CallStatus
from plans.actions.call import CallOrder, create_call
from plans.engine import calls as engine_calls
from plans.live.feed import standing_in
from plans.live.long_polling import read_soon
from plans.llm.tools import CATEGORY
from plans.mcp import results
from plans.mcp.callers import SCOPE, Caller, verify_again
from plans.mcp.listing import may_wait
from plans.store.requesters import Requester

LOCK_CLASS = 8_044
"""The first half of the keys of PostgreSQL's advisory locks; the second is the intent of the call, hashed."""
LOCK_COUNT = 64
PUBLIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
NO_APPROVAL = "There is no approval with this id among the calls of this token."


@dataclass(frozen=True, slots=True)
class CallState:
    """A call as it is now; `result` is there once there is nothing to wait for."""

    call: Call
    request: ApprovalRequest | None
    result: types.CallToolResult | None

    @property
    def is_running(self) -> bool:
        """True for a call that runs, or will run without an approval."""
        return self.result is None and self.request is None

    @property
    def is_held(self) -> bool:
        """True for a call with an approval request, decided or not."""
        return self.request is not None

    @property
    def interim_result(self) -> types.CallToolResult:
        """The result for a client that waits no longer."""
        return results.running_result(self.call) if self.request is None else results.pending_result(self.request)

    @property
    def message(self) -> str:
        """The sentence about the wait for people who look at the client's progress display."""
        if self.request is None:
            return f"{self.call.tool_name} runs."
        if self.request.status == RequestStatus.PENDING:
            return f"Waiting for a person to approve {self.call.tool_name}: {results.page_of(self.request)}"
        return f"{self.call.tool_name} was approved and has not ended."


def open_call(caller: Caller, name: str, arguments: Mapping[str, Any], session: str) -> CallState:
    """Store a call, or join an undecided one with the same arguments, and return it after a moment.

    Raises MCPError for a tool that does not exist, NotAllowed, and what `create_call` raises.
    """
    check_scope(SCOPE, caller.user, caller.token)
    target = snapshot.callable_tool(name)
    if target is None or CATEGORY in target.tool.categories:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:64]}")
    by = caller.requester(session)
    order = CallOrder(tool=name, arguments=arguments)
    call = _open_or_join(order, by) if may_wait(target, by) else create_call(order, by=by)
    return read_soon(call, lambda: state_of(call.public_id), lambda state: state.is_running)


def _open_or_join(order: CallOrder, by: Requester) -> Call:
    text = engine_calls.prepare_call(order.tool, order.arguments, to_leave=True).text
    likeness = likeness_of(order.tool, text)
    with _serialized(f"{by.token.pk if by.token else 0} {by.session} {likeness}"):
        return _undecided_duplicate(likeness, by) or create_call(order, by=by)


def _undecided_duplicate(likeness: str, by: Requester) -> Call | None:
    """Return the call with this likeness that the same token made in the same session and nobody has decided."""
    pending = ApprovalRequest.objects.filter(
        likeness=likeness, status=RequestStatus.PENDING, expires_at__gt=clock.now(), is_early=False
    )
    own = pending.filter(call__token=by.token, call__session=by.session, call__via=by.via, call__status=CallStatus.HELD)
    request = own.select_related("call").order_by("-pk").first()
    return request.call if request is not None else None


_locks = [threading.Lock() for _ in range(LOCK_COUNT)]


@contextmanager
def _serialized(intent: str) -> Iterator[None]:
    """Let only one thread at a time, of all processes on PostgreSQL, look for a call with this intent and store it."""
    with _locks[hash(intent) % LOCK_COUNT]:
        if connection.vendor != "postgresql":
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [LOCK_CLASS, intent])
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [LOCK_CLASS, intent])


def state_of(call_id: str) -> CallState:
    """Return a call as it is now, or the one that replaces it because what was asked for has changed."""
    call = _calls().get(public_id=call_id)
    is_over = call.status in TERMINAL or call.status == CallStatus.OUTCOME_UNKNOWN
    if call.status == CallStatus.CANCELLED:
        current, goes_on = standing_in(call_id)
        if current != call_id:
            return state_of(current)
        is_over = not goes_on
    request = call.approval if hasattr(call, "approval") else None
    return CallState(call, request, results.ended_result(call, request) if is_over else None)


def _calls() -> QuerySet[Call]:
    """Return calls with their requests and the texts that models read of their values."""
    return Call.objects.select_related("approval", "model_text")


def check_call(caller: Caller, call_id: str) -> CallState:
    """Return a call as it is now to a caller who waits for it. Raises TokenEnded, and NotAllowed for a lost right."""
    now = verify_again(caller)
    check_scope(SCOPE, now.user, now.token)
    return state_of(call_id)


def state_of_approval(caller: Caller, approval_id: str) -> CallState | None:
    """Return the call that an approval is about; None unless the caller's token made it. Raises NotAllowed.

    The id of a call is taken as well, for calls that never had to be approved.
    """
    check_scope(SCOPE, caller.user, caller.token)
    if not PUBLIC_ID.fullmatch(approval_id):
        return None
    own = Call.objects.filter(token=caller.token.pk)
    named = own.filter(public_id=approval_id) if approval_id.startswith("call_") else None
    found = named if named is not None else own.filter(approval__public_id=approval_id)
    call_id = found.values_list("public_id", flat=True).first()
    return state_of(call_id) if call_id is not None else None


def withdraw_call(caller: Caller, state: CallState) -> None:
    """Withdraw the request of a call at its client's wish; nothing happens if it was decided or has started."""
    if state.request is None or state.call.status in TERMINAL:
        return
    try:
        withdraw(state.request, by=caller.user, reason="The client cancelled the task.")
    except Conflict:
        return
