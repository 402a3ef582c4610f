"""Request bodies, read into memory before anything else happens: limited in size and in time, nothing on disk."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted

READ_TIMEOUT_SECONDS = 60.0
"""Time that a client has to send its whole body."""

Receive = Callable[[], Awaitable[dict[str, Any]]]


class BodyRefused(Exception):
    """The body is too large (413) or came too slowly (408); the rest of it is not read."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def read_body(scope: dict[str, Any], receive: Receive) -> BytesIO:
    """Return the whole body.

    Raises BodyRefused as soon as the announced or the received size exceeds DATA_UPLOAD_MAX_MEMORY_SIZE bytes, or after
    SECONDS; RequestAborted when the client has gone.
    """
    limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if _declared_length(scope) > limit:
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


def _declared_length(scope: dict[str, Any]) -> int:
    """Return the length in the request's headers; 0 where there is none, or none that can be read."""
    text = dict(scope["headers"]).get(b"content-length", b"")
    return int(text) if text.isdigit() else 0
