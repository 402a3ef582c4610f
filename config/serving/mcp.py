"""The door of the MCP server: its path, request bodies of a limited size, one log line and one measurement each.

Requests of MCP pass neither Django's middleware nor its threads.
"""

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from importlib import import_module
from io import BytesIO
from time import perf_counter
from typing import Any

from django.core.exceptions import RequestAborted

from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from config.operations import metrics
from config.operations.request_log import METHODS, request_ids
from config.serving.request_body import BodyRefused, read_body

ENDPOINT = "plans.mcp.endpoint"
PATHS = frozenset({"/mcp", "/mcp/"})
REASONS = {
    408: "The request body came too slowly.",
    413: "The request body is too large.",
    500: "Something went wrong here; it has been logged.",
    503: "This server starts or stops. Try again in a few seconds.",
}
LEFT = 499
INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

log = logging.getLogger("toolgate.http")


class McpServer:
    """The MCP server of this process, imported and started by the first request for it.

    Its SDK takes 18 MiB and about half a second, which a server without MCP clients does not pay. `run` must be entered
    for as long as the process serves.
    """

    def __init__(self) -> None:
        self._started: asyncio.Future[App] | None = None
        self._wanted = asyncio.Event()
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept requests while the body runs."""
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        living = loop.create_task(self._live(self._started))
        try:
            yield
        finally:
            self._stop.set()
            self._wanted.set()
            await living

    async def _live(self, started: "asyncio.Future[App]") -> None:
        """Start the server when it is wanted, and keep it until the end: one task must enter and leave it."""
        await self._wanted.wait()
        if self._stop.is_set():
            return
        try:
            endpoint = (await asyncio.to_thread(import_module, ENDPOINT)).McpEndpoint()
            gc.freeze()  # what was imported stays, and need not be looked through by collections
            async with endpoint.run():
                started.set_result(endpoint)
                await self._stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises what kept the server from starting."""
        if self._started is None or self._stop.is_set():
            raise NotServing
        self._wanted.set()
        endpoint = await asyncio.shield(self._started)
        await endpoint(scope, receive, send)


class NotServing(Exception):
    """The process starts or stops."""


class McpRouter:
    """Passes requests for the MCP server to `mcp`, and all others to `others`."""

    def __init__(self, mcp: App, others: App) -> None:
        self._mcp = mcp
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] not in PATHS:
            await self._others(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        with request_ids(headers.get(b"x-request-id", ""), headers.get(b"traceparent", "")) as request_id:
            began, answer = perf_counter(), _Answer(send, request_id)
            try:
                await self._answer(scope, receive, answer)
            finally:
                seconds = perf_counter() - began
                method = scope["method"] if scope["method"] in METHODS else "other"
                metrics.observe_request("mcp", method, answer.code, seconds)
                level = logging.ERROR if answer.code >= 500 else logging.INFO
                facts = {"method": method, "view": "mcp", "path": scope["path"], "status": answer.code}
                log.log(level, "request", extra=log_extra(**facts, duration_ms=round(seconds * 1000, 1)))

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            body = await read_body(dict(scope), receive)  # type: ignore[arg-type] # its messages are such mappings
            await self._mcp(scope, _replay(body, receive), answer.send)
        except RequestAborted:
            return
        except BodyRefused as refusal:
            await answer.refuse(refusal.status)
        except NotServing:
            await answer.refuse(503)
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log_unexpected(error)
            if not answer.has_begun:
                await answer.refuse(500)


class _Answer:
    """The answer to one request on its way, with the request's id among its headers."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.has_begun = False
        self.code = LEFT
        """The status that is logged: of a client that left before there was one, as it is customary."""

    async def send(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.has_begun, self.code = True, message["status"]
            message = {**message, "headers": [*message["headers"], (b"x-request-id", self._request_id.encode())]}
        await self._send(message)

    async def refuse(self, status: int) -> None:
        """Answer with an error, and close the connection: the request's body may not have been read to its end."""
        error = {"code": INVALID_REQUEST if status < 500 else INTERNAL_ERROR, "message": REASONS[status]}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _replay(body: BytesIO, receive: Receive) -> Receive:
    """Return a `receive` that begins with the whole body."""
    first: list[Message] = [{"type": "http.request", "body": body.getvalue(), "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again
