"""Refusal of repeated headers that may occur only once: a proxy could understand the same request differently."""

import json
import logging
from typing import Any

from catalog.core.asgi import App, Receive, Scope, Send
from catalog.core.tracing import log_extra
from config.operations import metrics
from config.operations.request_log import METHODS

SINGLE_HEADERS = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"origin",
        b"referer",
        b"sec-fetch-site",
        b"x-csrftoken",
        b"x-forwarded-proto",
    }
)
"""Headers that Toolgate reads and that have one value. Cookies may be divided into several headers (RFC 9113)."""
MALFORMED = 4400
"""Code with which a socket is closed, as for a malformed query."""

log = logging.getLogger("toolgate.http")


class SingleHeaders:
    """Passes requests on to `app` unless one of SINGLE_HEADERS is repeated: 400, or a socket closed with 4400."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = repeated_header(scope.get("headers", ()))
        if name is None:
            await self._app(scope, receive, send)
            return
        reason = f"The header {name} appears more than once."
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": MALFORMED, "reason": reason})
        else:
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.observe_request("none", method, 400, 0.0)
            log.info("request", extra=log_extra(method=method, view="none", path=scope["path"], status=400))
            await refuse(reason, send)


def repeated_header(headers: Any) -> str | None:
    """Return the name of the first repeated header of SINGLE_HEADERS; None if none of them is repeated."""
    found = set()
    for name, _ in headers:
        if name in SINGLE_HEADERS:
            if name in found:
                return str(name.decode())
            found.add(name)
    return None


async def refuse(reason: str, send: Send) -> None:
    """Answer with 400, and close the connection, because the body is not read."""
    problem = {"type": "urn:toolgate:repeated_header", "title": "Bad Request", "status": 400, "detail": reason}
    body = json.dumps(problem).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
