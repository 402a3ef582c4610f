"""Long polling: a view answers at once, with a header that requests a wait, and the ASGI middleware here waits.

It holds back the answer without holding one of Django's threads, and afterwards sends the call's new state. If the
process stops or the database is unavailable, it sends the held answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from catalog.core.asgi import App, Message, Receive, Scope, Send
from catalog.core.transactions import log_unexpected
from catalog.rest.problems import DATABASE_UNAVAILABLE
from plans.live.waits import until_disconnected, until_one_ends, until_stopped

WAIT_HEADER = "Toolgate-Wait"
CALL, DRAFT = "call", "draft"
PATHS = {CALL: "/api/v1/calls/{}/", DRAFT: "/api/v1/plans/draft/{}/"}
"""Path to read after a wait, by the kind of wait; the braces stand for the id of the call."""
HIDDEN_STATUSES = (403, 404)
"""Statuses if the requester may not read the draft; the held answer is sent instead."""
REFUSED_STATUSES = {CALL: (401, 403), DRAFT: (401,)}
"""Statuses for clients who may no longer wait, because their account or token was disabled or lost its rights."""
POLL_SECONDS = 3.0
"""Interval in seconds for checking that the client may still wait."""
KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"traceparent", b"x-request-id"})
KEPT_HEADERS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}

SettledWaiter = Callable[[str, float], Awaitable[str]]


class WaitForCall:
    """ASGI middleware for long polling. `settled(call id, seconds)` waits until the call has ended or the time is over.

    It returns the id of the call to answer with: the same call, or the call that replaced it.
    """

    def __init__(self, app: App, settled: SettledWaiter) -> None:
        self.app = app
        self.settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; if its view requests a wait, delay the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = HeldResponse(send)
        await self.app(scope, receive, answer.take)
        if answer.wait is None:
            return
        try:
            found = await self._wait(answer.wait, scope, receive)
            later = await self._read(answer.wait, found, scope) if isinstance(found, str) else found
        except asyncio.CancelledError:  # the server's shutdown timeout has passed
            await answer.give(send, status=answer.status)
            raise
        if later is not None:
            # Any outcome of a draft is sent, unless the requester may not read it.
            if answer.wait.what == DRAFT:
                is_sent = later.status not in HIDDEN_STATUSES and later.status != DATABASE_UNAVAILABLE.status
            else:
                is_sent = later.status == 200 or later.status in REFUSED_STATUSES[CALL]
            chosen = later if is_sent else answer
            await chosen.give(send, status=answer.status if later.status == 200 else chosen.status)

    async def _wait(self, wait: "RequestedWait", scope: Scope, receive: Receive) -> "str | HeldResponse | None":
        """Wait for the call; return the id of the call to answer with, or a refusal if the client lost its access.

        None if the client has disconnected.
        """

        async def settled() -> str:
            try:
                return await self.settled(wait.call_id, wait.seconds)
            except Exception as error:  # noqa: BLE001 - the held answer is sent if the call cannot be read, either
                log_unexpected(error)
                return wait.call_id

        async def refused() -> HeldResponse:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                answer = await self._read(wait, wait.call_id, scope)
                if answer.status in REFUSED_STATUSES[wait.what]:
                    return answer

        with until_stopped() as stop:
            found = await until_one_ends(refused(), settled(), stop.wait(), until_disconnected(receive))
        return wait.call_id if found is True else found

    async def _read(self, wait: "RequestedWait", call_id: str, scope: Scope) -> "HeldResponse":
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
        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if not messages:
                await asyncio.Event().wait()  # the client stays connected
            return messages.pop()

        answer = HeldResponse(None)
        await self.app(inner, receive, answer.take)
        return answer


class HeldResponse:
    """A response that is sent on at once, or held if its view requests a wait or `send` is None."""

    def __init__(self, send: Send | None) -> None:
        self.send = send
        self.wait: RequestedWait | None = None
        self.messages: list[Message] = []

    @property
    def status(self) -> int:
        """The HTTP status; 500 if the response has not started."""
        return int(self.messages[0]["status"]) if self.messages else 500

    async def take(self, message: Message) -> None:
        """Send or keep the next ASGI message of the response, without the header that requests a wait."""
        if message["type"] == "http.response.start":
            name = WAIT_HEADER.lower().encode()
            for _, value in (each for each in message["headers"] if each[0].lower() == name):
                call_id, seconds, *what = value.decode().split(";")
                self.wait = RequestedWait(call_id, float(seconds), *what[:1])
            message["headers"] = [each for each in message["headers"] if each[0].lower() != name]
        if self.send is not None and self.wait is None:
            await self.send(message)
        else:
            self.messages.append(message)

    async def give(self, send: Send, *, status: int) -> None:
        for message in self.messages:
            await send({**message, "status": status} if message["type"] == "http.response.start" else message)


@dataclass(frozen=True, slots=True)
class RequestedWait:
    """A wait that a view requested: the call, the seconds, and whether to read a call or a draft afterwards."""

    call_id: str
    seconds: float
    what: str = CALL
