"""Routing of requests to the MCP server, past Django's middleware: body limits, a log line and a metric for each."""

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from io import BytesIO
from time import perf_counter

from django.core.exceptions import RequestAborted

from catalog.core.asgi import MEASURE_KEY, App, Message, Receive, Scope, Send
from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from config.operations import metrics
from config.operations.request_log import METHODS, request_ids
from config.serving.request_body import BodyRefused, read_body

ENDPOINT = "plans.mcp.endpoint"
PATHS = frozenset({b"/mcp", b"/mcp/"})
"""Paths as sent: with percent-encoded letters they are other paths, as for rules of a proxy that name `/mcp`."""
REASONS = {
    408: "The request body was not received in time.",
    413: "The request body is too large.",
    500: "Something went wrong here; it has been logged.",
    503: "The MCP server is starting or stopping, or could not start. Try again in a few seconds.",
}
RETRY_AFTER_SECONDS = 5
CLIENT_CLOSED = 499
INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603

log = logging.getLogger("toolgate.http")


class McpServer:
    """The MCP server of this process, imported and started by the first request for it.

    The MCP SDK takes 18 MiB and half a second, which a process without MCP clients saves. `run` must be entered for as
    long as the process serves. After a failure the next request starts the server again.
    """

    def __init__(self) -> None:
        self._started: asyncio.Future[App] | None = None
        self._needed = asyncio.Event()
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept requests while the body runs."""
        self._started = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(self._serve_when_needed())
        try:
            yield
        finally:
            self._stop.set()
            self._needed.set()
            await serving

    async def _serve_when_needed(self) -> None:
        while True:
            await self._needed.wait()
            if not self._stop.is_set():
                try:
                    assert self._started is not None  # noqa: S101 (`run` sets it first)
                    endpoint = (await asyncio.to_thread(import_module, ENDPOINT)).McpEndpoint()
                    gc.freeze()  # keep collections from traversing what was imported
                    async with endpoint.run():
                        self._started.set_result(endpoint)
                        await self._stop.wait()
                except Exception as error:  # noqa: BLE001 - logged; the next request tries again
                    log_unexpected(error)
            started, self._started = self._started, asyncio.get_running_loop().create_future()
            if started is not None and not started.done():
                started.set_exception(NotServing())
                started.exception()
            if self._stop.is_set():
                return
            self._needed.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._started is None or self._stop.is_set():
            raise NotServing
        self._needed.set()
        endpoint = await asyncio.shield(self._started)
        await endpoint(scope, receive, send)


class NotServing(Exception):
    """The process is starting or stopping, or the MCP server could not start."""


class McpRouter:
    """Passes requests for the MCP server to `mcp`, and all others to `others`."""

    def __init__(self, mcp: App, others: App) -> None:
        self._mcp = mcp
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("raw_path", scope["path"].encode()) not in PATHS:
            await self._others(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        with request_ids(headers.get(b"x-request-id", ""), headers.get(b"traceparent", "")) as request_id:
            began, answer = perf_counter(), _Answer(send, request_id)
            try:
                await self._answer({**scope, MEASURE_KEY: answer.measure_as}, receive, answer)
            finally:
                seconds = perf_counter() - began
                method = scope["method"] if scope["method"] in METHODS else "other"
                metrics.observe_request(answer.kind, method, answer.code, seconds)
                level = logging.ERROR if answer.code >= 500 else logging.INFO
                facts = {"method": method, "view": answer.kind, "path": scope["path"], "status": answer.code}
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
    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.has_begun = False
        self.code = CLIENT_CLOSED
        """The status that is logged; nginx's 499 for a client that closed the connection before there was one."""
        self.kind = "mcp"

    def measure_as(self, kind: str) -> None:
        self.kind = kind

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun, self.code = True, message["status"]
            message = {**message, "headers": [*message["headers"], (b"x-request-id", self._request_id.encode())]}
        await self._send(message)

    async def refuse(self, status: int) -> None:
        """Answer with an error, and close the connection: the request body may not have been read completely."""
        error = {"code": INVALID_REQUEST if status < 500 else INTERNAL_ERROR, "message": REASONS[status]}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers.append((b"connection", b"close"))
        if status == 503:
            headers.append((b"retry-after", str(RETRY_AFTER_SECONDS).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _replay(body: BytesIO, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body.getvalue(), "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again
