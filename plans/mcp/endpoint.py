"""The HTTP side of the MCP server: hosts, origins, bearer tokens and strict JSON, before the protocol sees a request.

An ASGI application for `/mcp`, outside of Django's middleware. It serves only while `run` is entered. An outer layer
limits the body and passes it on as one message.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus

from catalog.connections.addresses import MCP_PATH, RESOURCE_METADATA_PATH, offers_oauth
from catalog.connections.scopes import OFFERED_SCOPES
from catalog.core.asgi import Message, Receive, Scope, Send, measure_as
from catalog.core.canonical_json import MAX_JSON_BYTES
from catalog.core.transactions import is_unavailable, log_unexpected
from plans.live.sockets import is_allowed_origin
from plans.live.waits import until_disconnected, until_one_ends, until_stopped
from plans.mcp import operations, waiting
from plans.mcp.callers import (
    FAULT_KEY,
    OPENED_KEY,
    SCOPE_KEY,
    SESSION_ID_HEADER,
    in_call_thread,
    in_thread,
    session_id_for,
    verify,
)
from plans.mcp.list_changes import MAX_STREAMS_PER_TOKEN, ListChanges, Stream, StreamsClosed, TooManyStreams
from plans.mcp.messages import Refusal, RequestId, read_message
from plans.mcp.operations import CALL, LISTEN, OPERATION_KEY
from plans.mcp.plain_calls import make_plain_call, read_plain_call
from plans.mcp.server import build_server

INITIALIZE = "initialize"


class McpEndpoint:
    """The ASGI application; one instance serves one process."""

    def __init__(self) -> None:
        self._changes = ListChanges()
        self._server = build_server(self._changes.listen)
        self._manager: StreamableHTTPSessionManager | None = None
        self._cancellations: waiting.Cancellations | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        # At shutdown, waits are answered with the current state of their calls instead of being cut off.
        AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call] # it has no types
        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=MAX_JSON_BYTES)
        async with manager.run():
            self._manager, self._cancellations = manager, waiting.Cancellations()
            jobs = [asyncio.ensure_future(self._changes.watch()), asyncio.ensure_future(self._end_waits())]
            try:
                yield
            finally:
                self._manager = None
                self._cancellations.stop()
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)

    async def _end_waits(self) -> None:
        with until_stopped() as stop:
            await stop.wait()
        waiting.end_waits_here()
        self._changes.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except Refusal as refusal:
            error = {"code": refusal.code, "message": refusal.message}
            body = json.dumps({"jsonrpc": "2.0", "id": refusal.request_id, "error": error}).encode()
            length = (b"content-length", str(len(body)).encode())
            headers = [(b"content-type", b"application/json"), length, *refusal.headers]
            await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            raise unavailable("This server is starting or stopping.")
        headers = headers_of(scope)
        check_scheme(scope, headers)
        check_host(headers)
        first_message = await receive()
        if first_message["type"] != "http.request":
            return
        # Of a repeated header the SDK reads the first, or refuses the request.
        may_be_plain = scope["method"] == "POST" and len(headers) == len(scope["headers"])
        plain = read_plain_call(headers, first_message.get("body", b"")) if may_be_plain else None
        if plain is None:
            caller = await self._authenticate(scope, headers, in_thread, verify)
            await self._serve_message({**scope, SCOPE_KEY: caller}, headers, first_message, receive, send)
            return
        with operations.traced(scope, headers, plain.message):
            make = partial(make_plain_call, call=plain, server_info=self._server.server_info_stamp)
            answer = await self._authenticate(scope, headers, in_call_thread, make)
            if not answer.body:
                scope = {**scope, SCOPE_KEY: answer.caller, OPENED_KEY: answer.opened}
                await self._serve_message(scope, headers, first_message, receive, send)
                return
            operations.record_result(scope.get(OPERATION_KEY), is_error=answer.is_error)
            length = (b"content-length", str(len(answer.body)).encode())
            start = {"status": 200, "headers": [length, (b"content-type", b"application/json")]}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": answer.body})

    async def _serve_message(
        self, scope: Scope, headers: Mapping[str, str], first_message: Message, receive: Receive, send: Send
    ) -> None:
        """Pass a request on to the SDK; `scope` has its caller, and `first_message` its body."""
        caller, manager, cancellations = scope[SCOPE_KEY], self._manager, self._cancellations
        if manager is None or cancellations is None:
            raise unavailable("This server is stopping.")
        if scope["method"] == "GET" and is_of_handshake_era(headers):
            await self._stream_changes(scope, headers, receive, send)
            return
        message: dict[str, Any] = {}
        if scope["method"] == "POST":
            # The SDK parses the body again; it takes no parsed messages, and its own parser accepts more than we do.
            received = read_message(first_message.get("body", b""))
            message, scope[FAULT_KEY], first_message["body"] = received.content, received.fault, received.body
        params = message.get("params")
        with operations.traced(scope, headers, message):
            if message.get("method") == CALL and caller.may_step_up:
                raise insufficient_scope(scope, headers, caller.token.scopes, request_id=message.get("id"))
            if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
                # A client of the handshake era cancels a request by a notification, which is a request of its own.
                cancellations.cancel(caller, params.get("requestId"))
            if message.get("method") == INITIALIZE:
                send = with_session_id(send, message)
            serve = partial(manager.handle_request, scope, replay(first_message, receive), send)
            if message.get("method") == LISTEN:
                async with self._open_stream(scope) as stream:
                    await until_one_ends(serve(), stream.ended.wait())
            else:
                await serve()

    async def _authenticate(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        run: Callable[..., Awaitable[Any]],
        verify: Callable[[str, str], Any],
    ) -> Any:
        """Return what `verify` returns for the bearer token and the User-Agent. Raises Refusal if that is None."""
        kind, _, text = headers.get("authorization", "").partition(" ")
        found = None
        if kind.lower() == "bearer":
            try:
                found = await run(verify, text.strip(), headers.get("user-agent", ""))
            except Exception as error:
                if not is_unavailable(error):
                    raise
                log_unexpected(error)
                raise unavailable("The database did not answer. Try again in a few seconds.") from None
        if found is None:
            raise unauthorized(scope, headers, is_bearer=kind.lower() == "bearer" and text.strip() != "")
        return found

    async def _stream_changes(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        if "text/event-stream" not in headers.get("accept", ""):
            raise Refusal(406, INVALID_REQUEST, "A GET request must accept text/event-stream.")
        async with self._open_stream(scope) as stream:
            with until_stopped() as stop, suppress(OSError):
                sent = self._changes.send_events(stream, send)
                await until_one_ends(sent, stream.ended.wait(), stop.wait(), until_disconnected(receive))
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def _open_stream(self, scope: Scope) -> AsyncIterator[Stream]:
        measure_as(scope, "mcp-stream")
        try:
            async with self._changes.opened(scope[SCOPE_KEY]) as stream:
                yield stream
        except TooManyStreams as error:
            retry = (b"retry-after", b"60")
            if not error.of_token:
                raise Refusal(503, INTERNAL_ERROR, "Too many streams are open on this server.", retry) from None
            message = f"This token has {MAX_STREAMS_PER_TOKEN} open streams. Close one before you open another."
            raise Refusal(429, INVALID_REQUEST, message, retry) from None
        except StreamsClosed:
            raise unavailable("This server is stopping.") from None


def unavailable(message: str) -> Refusal:
    """Return a refusal that tells the client to try again in a few seconds."""
    return Refusal(503, INTERNAL_ERROR, message, (b"retry-after", b"5"))


def unauthorized(scope: Scope, headers: Mapping[str, str], *, is_bearer: bool) -> Refusal:
    """Return the refusal of a request without a valid token; `is_bearer` if it has an invalid one.

    Unless OAuth is off, it names the metadata from which a client learns where a person can sign in.
    """
    reason, facts = "This server needs a bearer token.", []
    if is_bearer:
        reason = "This token is unknown, expired or revoked."
        facts = ['error="invalid_token"', f'error_description="{reason}"']
    remedy = f"Make one on {settings.TOOLGATE_URL}/connect/ and send it in the header Authorization: Bearer TOKEN."
    if offers_oauth():
        facts += [f'resource_metadata="{metadata_url(scope, headers)}"', f'scope="{" ".join(OFFERED_SCOPES)}"']
        remedy = f"Sign in from your client, if it can. Otherwise: {remedy}"
    challenge = f"Bearer {', '.join(facts)}".strip()
    return Refusal(401, INVALID_REQUEST, f"{reason} {remedy}", (b"www-authenticate", challenge.encode()))


def insufficient_scope(
    scope: Scope, headers: Mapping[str, str], held: Iterable[str], *, request_id: RequestId | None
) -> Refusal:
    """Return the refusal after which a client connects again with more scopes (RFC 6750, section 3.1).

    The scopes `held` are named too: the client asks for exactly those that the refusal names, and would lose others.
    """
    reason = "This connection may not call tools. Connect again with the scope calls:create."
    facts = [
        'error="insufficient_scope"',
        f'error_description="{reason}"',
        f'resource_metadata="{metadata_url(scope, headers)}"',
        f'scope="{" ".join(dict.fromkeys((*OFFERED_SCOPES, *held)))}"',
    ]
    header = (b"www-authenticate", f"Bearer {', '.join(facts)}".encode())
    return Refusal(403, INVALID_REQUEST, reason, header, request_id=request_id)


def metadata_url(scope: Scope, headers: Mapping[str, str]) -> str:
    """Return the address of the metadata of `/mcp`, on the host that the client uses; that has been checked."""
    return f"{scheme_of(scope, headers)}://{headers['host']}{RESOURCE_METADATA_PATH}{MCP_PATH}"


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name. Repeated headers are joined by commas, as Django reads them."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def check_scheme(scope: Scope, headers: Mapping[str, str]) -> None:
    """Raise Refusal for a request over plain HTTP if TOOLGATE_HTTPS is on."""
    if settings.TOOLGATE_HTTPS and scheme_of(scope, headers) != "https":
        raise Refusal(403, INVALID_REQUEST, "This server accepts HTTPS only.")


def scheme_of(scope: Scope, headers: Mapping[str, str]) -> str:
    """Return the scheme of a request. As in Django, behind a proxy it is the first in X-Forwarded-Proto."""
    forwarded = headers.get("x-forwarded-proto") if settings.TOOLGATE_HTTPS else None
    return str(scope.get("scheme", "http")) if forwarded is None else forwarded.partition(",")[0].strip()


def check_host(headers: Mapping[str, str]) -> None:
    """Raise Refusal for a host name outside ALLOWED_HOSTS, and for a request from a page of another origin."""
    host = headers.get("host", "").lower()
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        raise Refusal(421, INVALID_REQUEST, "This host name is not in ALLOWED_HOSTS.")
    origin = headers.get("origin")
    if origin is not None and not is_allowed_origin(origin, host):
        raise Refusal(403, INVALID_REQUEST, "A page of another origin may not use this server.")


def with_session_id(send: Send, introduction: Mapping[str, Any]) -> Send:
    """Return a `send` that answers a client's introduction with a session id, if it needs one to be known later."""
    info = (introduction.get("params") or {}).get("clientInfo")
    name = info.get("name") if isinstance(info, dict) else None
    session_id = session_id_for(name) if isinstance(name, str) else None
    if session_id is None:
        return send

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (SESSION_ID_HEADER, session_id)]}
        await send(message)

    return send_with_id


def is_of_handshake_era(headers: Mapping[str, str]) -> bool:
    """Return whether a request's protocol version begins with a handshake. The oldest versions send no header."""
    version = headers.get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def replay(message: Message, receive: Receive) -> Receive:
    """Return a `receive` that returns a message again that was already received, and then the next ones."""
    messages = [message]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
