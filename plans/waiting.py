"""Requests that wait for a call: coroutines out here, so that no thread of Django's is held while people think.

A view names the wait in a header and answers at once; this layer keeps that answer back, waits, and sends the
call as it is then.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

WAIT_HEADER = "Toolgate-Wait"
CALL, DRAFT = "call", "draft"
PATHS = {CALL: "/api/v1/calls/{}/", DRAFT: "/api/v1/plans/draft/{}/"}
"""What may be waited for, and where it is read then; each is addressed by its call."""
UNSHOWN = (401, 403, 404)
"""What is answered to who asked for a draft and may not read it: they keep the first answer."""
KEPT_HEADERS = frozenset({b"authorization", b"cookie", b"host", b"traceparent", b"x-request-id"})
KEPT_HEADERS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Settled = Callable[[str, float], Awaitable[str]]


class WaitForCall:
    """Wraps an ASGI application; `settled(call id, seconds)` returns when the call has ended or time is over.

    It returns the id of the call to be answered with: the same, or the one that took its place meanwhile.
    """

    def __init__(self, app: App, settled: Settled) -> None:
        self.app = app
        self.settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, later where its view asks for it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = Answer(send)
        await self.app(scope, receive, answer.take)
        if answer.wait is None:
            return
        found = await self._wait(answer.wait, receive)
        if found is not None:
            later = await self._read(PATHS[answer.wait.what].format(found), scope)
            if answer.wait.what == DRAFT and later.status not in UNSHOWN:  # else it came to nothing, and says why
                await later.give(send, status=answer.status if later.status == 200 else later.status)
            else:
                await (later if later.status == 200 else answer).give(send, status=answer.status)

    async def _wait(self, wait: "Wait", receive: Receive) -> str | None:
        """Wait for the call; return which one to answer with, None when the client has left."""
        waiting = asyncio.ensure_future(self.settled(wait.call_id, wait.seconds))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            leaving.cancel()

    async def _read(self, path: str, scope: Scope) -> "Answer":
        """Read what was waited for as the same caller would."""
        path = scope.get("root_path", "") + path
        headers = [(name, value) for name, value in scope["headers"] if name.lower() in KEPT_HEADERS]
        inner = {
            **scope,
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
        }
        answer = Answer(None)
        await self.app(inner, _silent(), answer.take)
        return answer


class Answer:
    """A response on its way: passed on as it comes, unless its view asks to wait or nobody is to get it."""

    def __init__(self, send: Send | None) -> None:
        self.send = send
        self.wait: Wait | None = None
        self.messages: list[Message] = []

    @property
    def status(self) -> int:
        """The status, 500 while there is none."""
        return int(self.messages[0]["status"]) if self.messages else 500

    async def take(self, message: Message) -> None:
        """Take the next message of the response."""
        if message["type"] == "http.response.start":
            self.wait = _wait_of(message)
        if self.send is not None and self.wait is None:
            await self.send(message)
        else:
            self.messages.append(message)

    async def give(self, send: Send, *, status: int) -> None:
        """Send what was kept back, under this status."""
        for message in self.messages:
            await send({**message, "status": status} if message["type"] == "http.response.start" else message)


@dataclass(frozen=True, slots=True)
class Wait:
    """What a view asks this layer to wait for: a call, for how many seconds, and what is read when it has ended."""

    call_id: str
    seconds: float
    what: str = CALL


def _wait_of(start: Message) -> Wait | None:
    """Take the wait out of a response's headers."""
    name = WAIT_HEADER.lower().encode()
    found = [value for key, value in start["headers"] if key.lower() == name]
    if not found:
        return None
    start["headers"] = [(key, value) for key, value in start["headers"] if key.lower() != name]
    call_id, seconds, *what = found[0].decode().split(";")
    return Wait(call_id, float(seconds), *what[:1])


async def _left(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue


def _silent() -> Receive:
    """Return the input of a request without a body, whose client stays."""
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive
