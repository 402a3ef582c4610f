"""Long polling: a view answers at once, with a header that requests a wait, and the ASGI middleware here waits.

It holds back the answer without holding one of Django's threads, and afterwards sends the call's new state. If the
process stops or the database is unavailable, it sends the held answer.

A question of a client whether it may run a tool is asked again after the wait: the middleware repeats the request, and
the view finds in it which call was waited for. So is the list of deferred calls, while it is empty.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from catalog.core.asgi import App, Message, Receive, Scope, Send
from catalog.core.transactions import log_unexpected
from catalog.rest.problems import DATABASE_UNAVAILABLE
from plans.live.waits import until_disconnected, until_one_ends, until_stopped

WAIT_HEADER = "Toolgate-Wait"
CALL, DRAFT, QUESTION, DEFERRED = "call", "draft", "question", "deferred"
TOKEN_PATH = "/api/v1/tokens/current/"  # noqa: S105 - a path
PATHS = {CALL: "/api/v1/calls/{}/", DRAFT: "/api/v1/plans/draft/{}/", QUESTION: TOKEN_PATH, DEFERRED: TOKEN_PATH}
"""Path to read during and after a wait, by the kind of wait; the braces stand for the id of the call."""
REPEATED_PATHS = ("/api/v1/hooks/", "/api/v1/permissions/")
"""Beginnings of the paths whose requests may be repeated, and whose bodies are kept until they are answered."""
WAITED_KEY = "toolgate.waited_for"
"""The key in an ASGI scope of the WaitedFor of a request that is repeated."""
MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_KEPT_OF_OWNER = 16 * 1024 * 1024
"""Bytes of bodies that all waiting questions of a process keep, and those of one token or person; a question beyond
them is answered without a wait."""
DEFERRED_SECONDS = 2.0
"""Seconds between two looks for deferred calls that can be resumed."""
HIDDEN_STATUSES = (403, 404)
"""Statuses if the requester may not read the draft; the held answer is sent instead."""
REFUSED_STATUSES = {CALL: (401, 403), DRAFT: (401,), QUESTION: (401,), DEFERRED: (401,)}
"""Statuses for clients who may no longer wait, because their account or token was disabled or lost its rights."""
POLL_SECONDS = 3.0
"""Interval in seconds for checking that the client may still wait."""
KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"traceparent", b"x-request-id"})
KEPT_HEADERS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}

SettledWaiter = Callable[[str, float], Awaitable[str]]


class WaitForCall:
    """ASGI middleware for long polling. `settled(call id, seconds)` waits until the call has ended or the time is over.

    It returns the id of the call to answer with: the same call, or the call that replaced it. `decided` waits for the
    calls of questions, until people have decided them.
    """

    def __init__(self, app: App, settled: SettledWaiter, decided: SettledWaiter | None = None) -> None:
        self.app = app
        self.settled = settled
        self.decided = decided or settled
        self.kept_bytes = 0
        self.kept_by_owner: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; if its view requests a wait, delay the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer, body = HeldResponse(send), KeptBody(receive)
        may_repeat = scope["path"].startswith(REPEATED_PATHS)
        await self.app(scope, body.receive if may_repeat else receive, answer.take)
        if answer.wait is None:
            return
        if answer.wait.what in (QUESTION, DEFERRED):
            owner = answer.wait.owner
            self.kept_bytes += body.size
            self.kept_by_owner[owner] += body.size
            try:
                await self._repeat(answer, body, scope, send)
            finally:
                self.kept_bytes -= body.size
                self.kept_by_owner[owner] -= body.size
                if not self.kept_by_owner[owner]:
                    del self.kept_by_owner[owner]
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

    async def _repeat(self, response: "HeldResponse", body: "KeptBody", scope: Scope, send: Send) -> None:
        """Repeat a request after each wait until its view requests no further one, and send the last answer.

        When the time is over, the process stops, or waiting requests keep too much, the request is repeated with no
        seconds left.
        """
        first = response.wait or RequestedWait("", 0.0)
        ends = monotonic() + first.seconds
        has_room = self.kept_bytes <= MAX_KEPT_BYTES and self.kept_by_owner[first.owner] <= MAX_KEPT_OF_OWNER
        try:
            while (wait := response.wait) is not None:
                found = await self._until_news(wait, scope, body.receive) if has_room else True
                if found is None:
                    return
                if isinstance(found, HeldResponse):
                    response = found
                    break
                left = 0.0 if found is True else max(0.0, ends - monotonic())
                response = HeldResponse(None)
                inner = {**scope, WAITED_KEY: WaitedFor(wait.call_id, left)}
                await self.app(inner, body.repeated(), response.take)
                if not left:
                    break
        except asyncio.CancelledError:  # the server's shutdown timeout has passed
            await response.give(send, status=response.status)
            raise
        await response.give(send, status=response.status)

    async def _wait(self, wait: "RequestedWait", scope: Scope, receive: Receive) -> "str | HeldResponse | None":
        """Wait for the call; return the id of the call to answer with, or a refusal if the client lost its access.

        None if the client has disconnected.
        """
        found = await self._until_news(wait, scope, receive)
        return wait.call_id if found is True else found

    async def _until_news(
        self, wait: "RequestedWait", scope: Scope, receive: Receive
    ) -> "str | HeldResponse | Literal[True] | None":
        """Wait like `_wait`; return True if the process stops."""
        waiter = self.decided if wait.what == QUESTION else self.settled

        async def settled() -> str:
            if wait.what == DEFERRED:
                await asyncio.sleep(min(wait.seconds, DEFERRED_SECONDS))
                return ""
            try:
                return await waiter(wait.call_id, wait.seconds)
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
            return await until_one_ends(refused(), settled(), stop.wait(), until_disconnected(receive))

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


class KeptBody:
    """The messages of a request's body, kept so that the request can be repeated."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self.size = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._messages.append(message)
            self.size += len(message.get("body", b""))
        return message

    def repeated(self) -> Receive:
        """Return a `receive` with the body again, for a client that stays connected."""
        messages = iter(self._messages)

        async def receive() -> Message:
            message = next(messages, None)
            if message is None:
                await asyncio.Event().wait()
            return message or {}

        return receive


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
                call_id, seconds, *more = value.decode().split(";")
                self.wait = RequestedWait(call_id, float(seconds), *more[:2])
            message["headers"] = [each for each in message["headers"] if each[0].lower() != name]
        if self.send is not None and self.wait is None:
            await self.send(message)
        else:
            self.messages.append(message)

    async def give(self, send: Send, *, status: int) -> None:
        for message in self.messages:
            await send({**message, "status": status} if message["type"] == "http.response.start" else message)


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """The call for which a repeated request has waited, if it was for one, and the seconds that are left to wait."""

    call_id: str
    seconds: float


def waited_for(request: HttpRequest) -> WaitedFor | None:
    """Return the call for which a repeated request has waited; None for the first time."""
    found: WaitedFor | None = getattr(request, "scope", {}).get(WAITED_KEY)
    return found


def request_question_wait(response: HttpResponseBase, call_id: str, seconds: float, *, owner: str) -> None:
    """Set the header that makes the ASGI layer repeat this question when the call is decided or the time is over.

    `owner` is the token or person whose questions share what is kept meanwhile.
    """
    response[WAIT_HEADER] = f"{call_id};{seconds};{QUESTION};{owner}"


def request_deferred_wait(response: HttpResponseBase, seconds: float) -> None:
    """Set the header that makes the ASGI layer repeat this request every few seconds until the time is over."""
    response[WAIT_HEADER] = f";{seconds};{DEFERRED}"


@dataclass(frozen=True, slots=True)
class RequestedWait:
    """A wait that a view requested: the call, the seconds, and what to do afterwards.

    `what` is `call` or `draft`, which is then read, or `question` or `deferred`: then the request is repeated. `owner`
    is the token or person that asks a question.
    """

    call_id: str
    seconds: float
    what: str = CALL
    owner: str = ""
