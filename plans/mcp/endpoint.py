"""The HTTP side of the MCP server: hosts, origins, bearer tokens and strict JSON, before the protocol sees a request.

An ASGI application for `/mcp`, outside of Django's middleware. `run` must be entered for as long as it serves.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus

from catalog.core.canonical_json import MAX_JSON_BYTES, parse_json
from catalog.core.transactions import is_unavailable, log_unexpected
from catalog.errors import MalformedJSON, TooLarge
from plans.live.long_polling import until_stopped
from plans.live.sockets import is_allowed_origin, until_one_ends
from plans.mcp import waiting
from plans.mcp.callers import CHECK_SECONDS, SCOPE_KEY, Caller, TokenEnded, in_thread, verify, verify_again
from plans.mcp.list_changes import ListChanges
from plans.mcp.server import build_server

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LISTEN = "subscriptions/listen"
BEARER_ERROR = 'Bearer error="invalid_token", error_description="This token is unknown, expired or revoked."'


class Refusal(Exception):
    """A request that is answered before the protocol sees it: with a status, a JSON-RPC code and a sentence."""

    def __init__(self, status: int, code: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class McpEndpoint:
    """The ASGI application; one of these serves one process."""

    def __init__(self) -> None:
        self._changes = ListChanges()
        self._server = build_server(self._changes.listen)
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve requests while the body runs."""
        # At the end of the process waits are answered with what is known, and not cut off.
        AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call] # it has no types
        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=MAX_JSON_BYTES)
        async with manager.run():
            await self._changes.check()
            self._manager = manager
            jobs = [asyncio.ensure_future(self._changes.watch()), asyncio.ensure_future(self._end_waits())]
            try:
                yield
            finally:
                self._manager = None
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)

    async def _end_waits(self) -> None:
        """End all waits and subscriptions when the process is told to stop."""
        with until_stopped() as stop:
            await stop.wait()
        waiting.end_waits_here()
        self._changes.listen.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._serve(scope, receive, send)
        except Refusal as refusal:
            await answer(refusal, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            raise Refusal(503, INTERNAL_ERROR, "This server starts or stops.", (b"retry-after", b"5"))
        headers = headers_of(scope)
        check_scheme(scope, headers)
        check_host(headers)
        body = await read_all(receive)
        caller = await self._caller(headers)
        scope = {**scope, SCOPE_KEY: caller}
        message = read_message(body) if scope["method"] == "POST" else None
        record_cancellation(caller, message)
        if scope["method"] == "GET" and is_of_handshake_era(headers):
            await self._stream_changes(headers, caller, receive, send)
            return
        serve = self._manager.handle_request(scope, replay(body, receive), send)
        if isinstance(message, dict) and message.get("method") == LISTEN:
            await while_token_lives(serve, caller)
        else:
            await serve

    async def _caller(self, headers: Mapping[str, str]) -> Caller:
        kind, _, text = headers.get("authorization", "").partition(" ")
        caller = None
        if kind.lower() == "bearer":
            try:
                caller = await in_thread(verify, text.strip(), headers.get("user-agent", ""))
            except Exception as error:
                if not is_unavailable(error):
                    raise
                log_unexpected(error)
                message = "The database could not be asked. Try again in a few seconds."
                raise Refusal(503, INTERNAL_ERROR, message, (b"retry-after", b"5")) from None
        if caller is None:
            message = "This server needs a bearer token that is neither expired nor revoked."
            raise Refusal(401, INVALID_REQUEST, message, (b"www-authenticate", BEARER_ERROR.encode()))
        return caller

    async def _stream_changes(self, headers: Mapping[str, str], caller: Caller, receive: Receive, send: Send) -> None:
        if "text/event-stream" not in headers.get("accept", ""):
            raise Refusal(406, INVALID_REQUEST, "A GET request must accept text/event-stream.")
        if self._changes.is_full:
            raise Refusal(503, INTERNAL_ERROR, "Too many streams are open.", (b"retry-after", b"60"))
        with until_stopped() as stop, suppress(OSError):
            await until_one_ends(
                while_token_lives(self._changes.stream(send), caller), stop.wait(), until_gone(receive)
            )
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def answer(refusal: Refusal, send: Send) -> None:
    """Send a refusal as a JSON-RPC error that answers no particular request."""
    error = {"code": refusal.code, "message": refusal.message}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by their lower-case names; of several with one name the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def check_scheme(scope: Scope, headers: Mapping[str, str]) -> None:
    """Raise Refusal for a request over plain HTTP where TOOLGATE_HTTPS says that a proxy speaks HTTPS."""
    if settings.TOOLGATE_HTTPS and "https" not in (scope.get("scheme"), headers.get("x-forwarded-proto")):
        raise Refusal(403, INVALID_REQUEST, "This server is reached over HTTPS only.")


def check_host(headers: Mapping[str, str]) -> None:
    """Raise Refusal for a host that this server is not, and for a page of another origin."""
    host = headers.get("host", "").lower()
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        raise Refusal(421, INVALID_REQUEST, "This server has another host name; see ALLOWED_HOSTS.")
    origin = headers.get("origin")
    if origin is not None and not is_allowed_origin(origin, host):
        raise Refusal(403, INVALID_REQUEST, "A page of another origin may not use this server.")


def is_of_handshake_era(headers: Mapping[str, str]) -> bool:
    """Say whether a request is of a protocol version that begins with a handshake; versions before had no header."""
    version = headers.get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def read_message(body: bytes) -> Any:
    """Return the message in a body. Raises Refusal for what is not the JSON that Toolgate takes anywhere."""
    try:
        return parse_json(body)
    except TooLarge as error:
        raise Refusal(413, INVALID_REQUEST, error.message) from None
    except MalformedJSON as error:
        raise Refusal(400, PARSE_ERROR, f"Parse error: {error.message}") from None


def record_cancellation(caller: Caller, message: Any) -> None:
    """End the wait that a client of the handshake era cancels; its notification comes as a request of its own."""
    if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
        params = message.get("params")
        if isinstance(params, dict):
            waiting.cancel(caller, params.get("requestId"))


async def read_all(receive: Receive) -> bytes:
    """Return the whole body, which an outer layer has limited."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


async def while_token_lives(work: Awaitable[None], caller: Caller) -> None:
    """Do something that lasts; end it when the token is revoked, expires or loses its owner."""
    await until_one_ends(work, _until_token_ends(caller))


async def _until_token_ends(caller: Caller) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            await in_thread(verify_again, caller)
        except TokenEnded:
            return
        except Exception as error:
            if not is_unavailable(error):
                raise
            log_unexpected(error)


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        continue
