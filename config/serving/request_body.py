"""Request bodies: read into memory, limited in size and time, before any other processing."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted

from plans.coding_agents.hooks import MAX_HOOK_BYTES

READ_TIMEOUT_SECONDS = 60.0
"""Maximum time for a client to send its entire body."""

HOOK_PATH = "/api/v1/hooks/"

Receive = Callable[[], Awaitable[dict[str, Any]]]


class BodyRefused(Exception):
    """The body is too large (413) or arrived too slowly (408); the rest of it is not read."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def read_body(scope: dict[str, Any], receive: Receive) -> BytesIO:
    """Return the entire body. Raises RequestAborted if the client disconnects.

    Raises BodyRefused above DATA_UPLOAD_MAX_MEMORY_SIZE bytes, announced or received, and after READ_TIMEOUT_SECONDS.
    For hooks of coding agents with a bearer token the limit is MAX_HOOK_BYTES.
    """
    limit: int = MAX_HOOK_BYTES if is_hook(scope) else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    text = dict(scope["headers"]).get(b"content-length", b"")
    if (int(text) if text.isdigit() else 0) > limit:
        raise BodyRefused(413)
    body = BytesIO()
    try:
        async with asyncio.timeout(READ_TIMEOUT_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                if body.tell() > limit:
                    raise BodyRefused(413)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyRefused(408) from None
    body.seek(0)
    return body


def is_hook(scope: dict[str, Any]) -> bool:
    """Return whether a request may be a coding agent's hook; anybody else gets the usual limit."""
    is_bearer = dict(scope["headers"]).get(b"authorization", b"")[:7].lower() == b"bearer "
    return is_bearer and str(scope.get("path", "")).startswith(HOOK_PATH)
