"""Requests that wait for news: a moment on their own thread, or longer as a coroutine that holds no thread of Django's.

A view names the longer wait in a header and answers at once; the ASGI layer here keeps that answer back, waits, and
sends the call as it is then. A process that is told to stop, or cannot ask the database, sends the answer that was kept
back.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from catalog.core.transactions import log_unexpected
from catalog.models import Call
from catalog.rest.problems import DATABASE_UNAVAILABLE
from catalog.states import PUBLIC_STATUS

BRIEF_WAIT_SECONDS = 0.05
FIRST_READ_SECONDS = 0.003
ResultT = TypeVar("ResultT")
_waiters: dict[str, set[threading.Event]] = {}
_lock = threading.Lock()


def read_soon(call: Call, read: Callable[[], ResultT], is_running: Callable[[ResultT], bool]) -> ResultT:
    """Return what `read` returns once the call no longer runs, or after 50 ms: quick tools need no second request.

    The first read waits until the plan has news, but 3 ms at most: a quick tool has ended by then, and a read before
    that would only compete with the thread that runs it.
    """
    if PUBLIC_STATUS[call.status] != "running":
        return read()
    ends = monotonic() + BRIEF_WAIT_SECONDS
    with _wait_event(call.plan_ref) as bell:
        bell.wait(FIRST_READ_SECONDS)
        bell.clear()
        found = read()
        while is_running(found) and (left := ends - monotonic()) > 0:
            bell.wait(left)
            bell.clear()
            found = read()
    return found


def wait_briefly(call: Call) -> None:
    """Return when the call no longer runs, or after 50 ms."""
    status = Call.objects.filter(pk=call.pk).values_list("status", flat=True)
    read_soon(call, status.get, lambda found: PUBLIC_STATUS[found] == "running")


@contextmanager
def _wait_event(plan_ref: str) -> Iterator[threading.Event]:
    bell = threading.Event()
    with _lock:
        _waiters.setdefault(plan_ref, set()).add(bell)
    try:
        yield bell
    finally:
        with _lock:
            _waiters[plan_ref].discard(bell)
            if not _waiters[plan_ref]:
                del _waiters[plan_ref]


def wake_waiters(plan_ref: str, last_seq: int) -> None:
    """Wake whoever waits for this plan; called after each commit, most often for nobody."""
    if plan_ref in _waiters:
        with _lock:
            for bell in _waiters.get(plan_ref, ()):
                bell.set()


WAIT_HEADER = "Toolgate-Wait"
CALL, DRAFT = "call", "draft"
PATHS = {CALL: "/api/v1/calls/{}/", DRAFT: "/api/v1/plans/draft/{}/"}
"""What may be waited for, and where it is read then; each is addressed by its call."""
HIDDEN_STATUSES = (403, 404)
"""What is answered to who asked for a draft and may not read it: they keep the first answer."""
REFUSED_STATUSES = {CALL: (401, 403), DRAFT: (401,)}
"""What is answered to who may wait no more: their account or token was switched off, or lost its rights."""
POLL_SECONDS = 5.0
"""How often it is looked whether who waits may still."""
KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"traceparent", b"x-request-id"})
KEPT_HEADERS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
SettledWaiter = Callable[[str, float], Awaitable[str]]


_stop_events: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()


def end_waits() -> None:
    """Answer all that wait with what is known now, in any thread: the process was told to stop."""
    for loop, stop in list(_stop_events):
        loop.call_soon_threadsafe(stop.set)


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    """Give an event that is set when the process is told to stop."""
    mine = asyncio.get_running_loop(), asyncio.Event()
    _stop_events.add(mine)
    try:
        yield mine[1]
    finally:
        _stop_events.discard(mine)


class WaitForCall:
    """Wraps an ASGI application; `settled(call id, seconds)` returns when the call has ended or time is over.

    It returns the id of the call to be answered with: the same, or the one that took its place meanwhile.
    """

    def __init__(self, app: App, settled: SettledWaiter) -> None:
        self.app = app
        self.settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, later where its view asks for it."""
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
        except asyncio.CancelledError:  # the server's patience at its end is over
            await answer.give(send, status=answer.status)
            raise
        if later is not None:
            chosen = later if _is_final(answer.wait, later.status) else answer
            await chosen.give(send, status=answer.status if later.status == 200 else chosen.status)

    async def _wait(self, wait: "RequestedWait", scope: Scope, receive: Receive) -> "str | HeldResponse | None":
        """Wait for the call; return which one to answer with, or the answer to who may wait no more.

        None when the client has left.
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
        """Return the answer to who may wait no more, once that is so."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            answer = await self._read(wait, wait.call_id, scope)
            if answer.status in REFUSED_STATUSES[wait.what]:
                return answer

    async def _read(self, wait: "RequestedWait", call_id: str, scope: Scope) -> "HeldResponse":
        """Read what was waited for as the same caller would."""
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
    """Say whether what was read after the wait is the answer, and not the one that was kept back.

    What came of a draft is told whatever it is, to who may read it.
    """
    if wait.what == DRAFT:
        return status not in HIDDEN_STATUSES and status != DATABASE_UNAVAILABLE.status
    return status == 200 or status in REFUSED_STATUSES[CALL]


class HeldResponse:
    """A response on its way: passed on as it comes, unless its view asks to wait or nobody is to get it."""

    def __init__(self, send: Send | None) -> None:
        self.send = send
        self.wait: RequestedWait | None = None
        self.messages: list[Message] = []

    @property
    def status(self) -> int:
        """The status, 500 while there is none."""
        return int(self.messages[0]["status"]) if self.messages else 500

    async def take(self, message: Message) -> None:
        """Take the next message of the response."""
        if message["type"] == "http.response.start":
            self.wait = _take_requested_wait(message)
        if self.send is not None and self.wait is None:
            await self.send(message)
        else:
            self.messages.append(message)

    async def give(self, send: Send, *, status: int) -> None:
        """Send what was kept back, under this status."""
        for message in self.messages:
            await send({**message, "status": status} if message["type"] == "http.response.start" else message)


@dataclass(frozen=True, slots=True)
class RequestedWait:
    """What a view asks this layer to wait for: a call, for how many seconds, and what is read when it has ended."""

    call_id: str
    seconds: float
    what: str = CALL


def _take_requested_wait(start: Message) -> RequestedWait | None:
    """Take the wait out of a response's headers."""
    name = WAIT_HEADER.lower().encode()
    found = [value for key, value in start["headers"] if key.lower() == name]
    if not found:
        return None
    start["headers"] = [(key, value) for key, value in start["headers"] if key.lower() != name]
    call_id, seconds, *what = found[0].decode().split(";")
    return RequestedWait(call_id, float(seconds), *what[:1])


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue


def _empty_receive() -> Receive:
    """Return the input of a request without a body, whose client stays."""
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive
