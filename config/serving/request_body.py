"""Request bodies: read into memory, limited in size and time, before any other processing."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.db import DatabaseError, close_old_connections

from catalog.access.tokens import ASK_SCOPE, authenticate_token
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


async def read_body(
    scope: dict[str, Any], receive: Receive, may_send_hook: Callable[[], Awaitable[bool]] | None = None
) -> BytesIO:
    """Return the entire body. Raises RequestAborted if the client disconnects.

    Raises BodyRefused above DATA_UPLOAD_MAX_MEMORY_SIZE bytes, announced or received, and after READ_TIMEOUT_SECONDS.
    For hooks of coding agents the limit is MAX_HOOK_BYTES: `may_send_hook` is asked before more than usual is read.
    """
    limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    async def check_size(size: int) -> None:
        nonlocal limit
        if limit < size <= MAX_HOOK_BYTES and may_send_hook is not None and is_hook(scope) and await may_send_hook():
            limit = MAX_HOOK_BYTES
        if size > limit:
            raise BodyRefused(413)

    text = dict(scope["headers"]).get(b"content-length", b"")
    body = BytesIO()
    try:
        async with asyncio.timeout(READ_TIMEOUT_SECONDS):
            await check_size(int(text) if text.isdigit() else 0)
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                await check_size(body.tell())
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyRefused(408) from None
    body.seek(0)
    return body


def with_length(scope: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the scope with the length of the body that was read.

    A chunked body announces none: Django would take a form for empty, and would refuse a hook larger than other bodies.
    """
    length, headers = str(size).encode(), scope["headers"]
    announced = dict(headers).get(b"content-length", b"" if size else length)
    if announced == length:
        return scope
    others = [(name, value) for name, value in headers if name != b"content-length"]
    return {**scope, "headers": [*others, (b"content-length", length)]}


def is_hook(scope: dict[str, Any]) -> bool:
    """Return whether a request goes to a coding agent's hook, with a bearer token of whatever worth."""
    return bool(_bearer_text(scope)) and str(scope.get("path", "")).startswith(HOOK_PATH)


def has_asking_token(scope: dict[str, Any]) -> bool:
    """Return whether a request has a valid token of a client that asks before it runs its own tools.

    False if the database cannot be read. Closes the thread's connection.
    """
    try:
        token = authenticate_token(_bearer_text(scope))
    except DatabaseError:
        return False
    finally:
        close_old_connections()
    return token is not None and ASK_SCOPE in token.scopes


def _bearer_text(scope: dict[str, Any]) -> str:
    scheme, _, text = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
