"""Long polling: requests wait briefly on their own thread, or longer as a coroutine without a thread of Django's.

For a longer wait a view answers at once, with a header that names the wait; the ASGI middleware here holds the answer
back, waits, and sends the call's state afterwards. If the process stops or the database is unavailable, it sends the
held answer.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from catalog.core.asgi import App, Message, Receive, Scope, Send
from catalog.core.transactions import log_unexpected
from catalog.models import Call
from catalog.rest.problems import DATABASE_UNAVAILABLE
from catalog.states import PUBLIC_STATUS
from plans.store.transactions import latest_transaction

BRIEF_WAIT_SECONDS = 0.05
PLANS_REMEMBERED = 1024
ResultT = TypeVar("ResultT")
_waiters: dict[str, set[threading.Event]] = {}
_last_seqs: dict[str, int] = {}
"""The numbers of the last events that this process committed, of the plans it did so for last."""
_lock = threading.Lock()


def read_soon(call: Call, read: Callable[[], ResultT], is_running: Callable[[ResultT], bool]) -> ResultT:
    """Return the result of `read` once the call no longer runs, or after 50 ms; saves a second request for fast tools.

    It reads after each commit for the plan and at the end, never in between: a read would only compete with the thread
    that runs the call. It must be called in the thread that stored the call.
    """
    if PUBLIC_STATUS[call.status] != "running":
        return read()
    ends = monotonic() + BRIEF_WAIT_SECONDS
    with _wait_event(call.plan_ref, _stored_seq(call.plan_ref)) as bell:
        while True:
            bell.wait(max(0.0, ends - monotonic()))
            bell.clear()
            found = read()
            if not is_running(found) or monotonic() >= ends:
                return found


def _stored_seq(plan_ref: str) -> int:
    """Return the number of the last event that this thread committed for the plan, 0 if it committed another since."""
    tx = latest_transaction()
    return tx.last_seq if tx is not None and tx.plan_ref == plan_ref else 0


def wait_briefly(call: Call) -> None:
    """Return when the call no longer runs, or after 50 ms."""
    status = Call.objects.filter(pk=call.pk).values_list("status", flat=True)
    read_soon(call, status.get, lambda found: PUBLIC_STATUS[found] == "running")


@contextmanager
def _wait_event(plan_ref: str, seen: int) -> Iterator[threading.Event]:
    """Yield an event that is set by each commit for the plan from now on, and at once if there was one after `seen`."""
    bell = threading.Event()
    with _lock:
        _waiters.setdefault(plan_ref, set()).add(bell)
        if _last_seqs.get(plan_ref, 0) > seen:
            bell.set()
    try:
        yield bell
    finally:
        with _lock:
            _waiters[plan_ref].discard(bell)
            if not _waiters[plan_ref]:
                del _waiters[plan_ref]


def wake_waiters(plan_ref: str, last_seq: int) -> None:
    """Wake the threads that wait for this plan; called after each commit, mostly without waiters."""
    with _lock:
        _last_seqs[plan_ref] = max(last_seq, _last_seqs.pop(plan_ref, 0))
        if len(_last_seqs) > PLANS_REMEMBERED:
            del _last_seqs[next(iter(_last_seqs))]
        for bell in _waiters.get(plan_ref, ()):
            bell.set()


WAIT_HEADER = "Toolgate-Wait"
CALL, DRAFT = "call", "draft"
PATHS = {CALL: "/api/v1/calls/{}/", DRAFT: "/api/v1/plans/draft/{}/"}
"""Kinds of waits and the paths to read afterwards, by the call's id."""
HIDDEN_STATUSES = (403, 404)
"""Statuses for a requester who may not read the draft and therefore gets the held answer."""
REFUSED_STATUSES = {CALL: (401, 403), DRAFT: (401,)}
"""Statuses for clients who may no longer wait, because their account or token was disabled or lost its rights."""
POLL_SECONDS = 5.0
"""Interval in seconds for checking that the client may still wait."""
KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"traceparent", b"x-request-id"})
KEPT_HEADERS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}

SettledWaiter = Callable[[str, float], Awaitable[str]]


_stop_events: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()


def end_waits() -> None:
    """End all waits because the process stops; may be called in any thread."""
    for loop, stop in list(_stop_events):
        loop.call_soon_threadsafe(stop.set)


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    """Yield an event that is set when the process stops."""
    mine = asyncio.get_running_loop(), asyncio.Event()
    _stop_events.add(mine)
    try:
        yield mine[1]
    finally:
        _stop_events.discard(mine)


class WaitForCall:
    """ASGI middleware for long polling; `settled(call id, seconds)` returns when the call has ended or time is up.

    It returns the id of the call to answer with: the same call, or its replacement.
    """

    def __init__(self, app: App, settled: SettledWaiter) -> None:
        self.app = app
        self.settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; delay the answer if its view requests a wait."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = HeldResponse(send)
        await self.app(scope, receive, answer.take)
        if answer.wait is None:
            return
        try:
            found = await self._wait(answer.wait, scope, receive)
            later = (
                found
                if found is None or isinstance(found, HeldResponse)
                else await self._read(answer.wait, found, scope)
            )
        except asyncio.CancelledError:  # the server's shutdown timeout has passed
            await answer.give(send, status=answer.status)
            raise
        if later is not None:
            chosen = later if _is_final(answer.wait, later.status) else answer
            await chosen.give(send, status=answer.status if later.status == 200 else chosen.status)

    async def _wait(self, wait: "RequestedWait", scope: Scope, receive: Receive) -> "str | HeldResponse | None":
        """Wait for the call; return the id of the call to answer with, or the refusal if the client may no longer wait.

        None if the client has disconnected.
        """
        with until_stopped() as stop:
            settled = asyncio.ensure_future(self.settled(wait.call_id, wait.seconds))
            refused = asyncio.ensure_future(self._refused(wait, scope))
            left, stopped = asyncio.ensure_future(_wait_for_disconnect(receive)), asyncio.ensure_future(stop.wait())
            waits = settled, refused, left, stopped
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if refused.done():
                    return refused.result()
                if settled.done() and (error := settled.exception()) is not None:
                    log_unexpected(error)
                    return wait.call_id
                return settled.result() if settled.done() else wait.call_id if stopped.done() else None
            finally:
                for each in waits:
                    each.cancel()

    async def _refused(self, wait: "RequestedWait", scope: Scope) -> "HeldResponse":
        """Poll until the client may no longer wait; return the refusal."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            answer = await self._read(wait, wait.call_id, scope)
            if answer.status in REFUSED_STATUSES[wait.what]:
                return answer

    async def _read(self, wait: "RequestedWait", call_id: str, scope: Scope) -> "HeldResponse":
        """Read the awaited resource on behalf of the same caller."""
        path = scope.get("root_path", "") + PATHS[wait.what].format(call_id)
        headers = [(name, value) for name, value in scope["headers"] if name.lower() in KEPT_HEADERS]
        inner = {
            **scope,
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
        }
        answer = HeldResponse(None)
        await self.app(inner, _empty_receive(), answer.take)
        return answer


def _is_final(wait: "RequestedWait", status: int) -> bool:
    """Return whether to send the answer read after the wait instead of the held one.

    For a draft any outcome is sent, unless the requester may not read it.
    """
    if wait.what == DRAFT:
        return status not in HIDDEN_STATUSES and status != DATABASE_UNAVAILABLE.status
    return status == 200 or status in REFUSED_STATUSES[CALL]


class HeldResponse:
    """A response that is passed on as it comes, or held if its view requests a wait or `send` is None."""

    def __init__(self, send: Send | None) -> None:
        self.send = send
        self.wait: RequestedWait | None = None
        self.messages: list[Message] = []

    @property
    def status(self) -> int:
        """The HTTP status, 500 if the response has not started."""
        return int(self.messages[0]["status"]) if self.messages else 500

    async def take(self, message: Message) -> None:
        """Process the next ASGI message of the response."""
        if message["type"] == "http.response.start":
            self.wait = _take_requested_wait(message)
        if self.send is not None and self.wait is None:
            await self.send(message)
        else:
            self.messages.append(message)

    async def give(self, send: Send, *, status: int) -> None:
        """Send the held response with this status."""
        for message in self.messages:
            await send({**message, "status": status} if message["type"] == "http.response.start" else message)


@dataclass(frozen=True, slots=True)
class RequestedWait:
    """A wait requested by a view: the call, the seconds, and the kind of resource to read afterwards."""

    call_id: str
    seconds: float
    what: str = CALL


def _take_requested_wait(start: Message) -> RequestedWait | None:
    """Remove the wait header from a response and return its content, or None."""
    name = WAIT_HEADER.lower().encode()
    found = [value for key, value in start["headers"] if key.lower() == name]
    if not found:
        return None
    start["headers"] = [(key, value) for key, value in start["headers"] if key.lower() != name]
    call_id, seconds, *what = found[0].decode().split(";")
    return RequestedWait(call_id, float(seconds), *what[:1])


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        continue


def _empty_receive() -> Receive:
    """Return the `receive` of a request without a body whose client stays connected."""
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive
