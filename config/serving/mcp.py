"""The door of the MCP server: its path, request bodies of a limited size, one log line and one measurement each.

Requests of MCP pass neither Django's middleware nor its threads.
"""

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from io import BytesIO
from time import perf_counter
from typing import Any

from django.core.exceptions import RequestAborted

from catalog.core.tracing import log_extra
from config.operations import metrics
from config.operations.request_log import METHODS
from config.serving.request_body import BodyRefused, read_body

PATHS = frozenset({"/mcp", "/mcp/"})
REASONS = {408: "The request body came too slowly.", 413: "The request body is too large."}

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

log = logging.getLogger("toolgate.http")


class McpDoor:
    """Passes requests for the MCP server to `mcp`, and all others to `others`."""

    def __init__(self, mcp: App, others: App) -> None:
        self._mcp = mcp
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] not in PATHS:
            await self._others(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def send_and_look(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, send_and_look)
        finally:
            seconds = perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.observe_request("mcp", method, status, seconds)
            level = logging.ERROR if status >= 500 else logging.INFO
            facts = {"method": method, "view": "mcp", "path": scope["path"], "status": status}
            log.log(level, "request", extra=log_extra(**facts, duration_ms=round(seconds * 1000, 1)))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(dict(scope), receive)  # type: ignore[arg-type] # its messages are such mappings
        except RequestAborted:
            return
        except BodyRefused as refusal:
            await _refuse(refusal.status, send)
            return
        await self._mcp(scope, _replay(body, receive), send)


def _replay(body: BytesIO, receive: Receive) -> Receive:
    """Return a `receive` that begins with the whole body."""
    first: list[Message] = [{"type": "http.request", "body": body.getvalue(), "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


async def _refuse(status: int, send: Send) -> None:
    """Answer a request whose body was not read to its end, and close the connection."""
    error = {"code": -32600, "message": REASONS[status]}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
