"""Transports of the MCP client that record where each error was seen. Importing them loads the SDK (half a second).

The SDK turns failures of the transport into JSON-RPC errors with codes that upstreams use as well. Here, every error
that reaches a connected session has a `Failure` as its data.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import RequestContext, StreamableHTTPTransport, StreamWriter
from mcp.shared._context_streams import create_context_streams
from mcp.shared._httpx_utils import stream_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from catalog.core.egress import AsyncGuardedTransport, RequestNotSent, ResponseTooLarge, retry_after
from catalog.core.lenient_json import decode_text, read_lenient_json
from catalog.errors import MalformedJSON
from catalog.sources.http_answers import is_json, response_text
from catalog.sources.mcp_failures import MAX_RESPONSE, Failure, Fault, words_of

DEEPEST_MESSAGE = 150
"""Levels of a message that are parsed; deeper parts stay JSON text. The SDK itself reads at most 200 levels."""
STREAM_SECONDS = 1.0
"""Seconds from the start of one GET to the next. GETs that wait at the same time start together."""
STATUS_FAULTS = {
    401: Fault.DENIED,
    403: Fault.DENIED,
    429: Fault.RATE_LIMITED,
    307: Fault.REDIRECTED,
    308: Fault.REDIRECTED,
}
LOST_SESSION_STATUSES = frozenset({400, 404})
"""Statuses of answers to requests in a session that has ended: 404 by the standard, 400 from some servers."""


class Channel:
    """A transport of the SDK that adds a `Failure` to the errors of its upstream after `connected` is set.

    Before that, `refusal` keeps the last error. `has_ended` is true when the upstream can send nothing more.
    """

    def __init__(self, transport: AbstractAsyncContextManager[TransportStreams]) -> None:
        self._transport = transport
        self.connected = False
        self.has_ended = False
        self.refusal: ErrorData | None = None

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._transport.__aenter__()
        return _ClassifiedStream(self, read), write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, traceback)


class _ClassifiedStream:
    def __init__(self, channel: Channel, inner: Any) -> None:
        self._channel = channel
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """Context of the last message's sender, which the SDK reads."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._channel.has_ended = True
            raise
        if isinstance(item, ValidationError):  # a line of a program that the SDK did not read
            line = item.errors(include_url=False, include_context=False)[0]["input"]
            message = read_message(line) if isinstance(line, str | bytes) else None
            item = SessionMessage(message) if message is not None else item
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCError):
            error = item.message.error
            if isinstance(error.data, Failure):
                return item
            if not self._channel.connected:
                self._channel.refusal = error
            else:
                error.data = Failure(fault=Fault.REFUSED, words=_words_of_error(error))
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class PacedTransport(AsyncGuardedTransport):
    """HTTP transport that pauses between GETs. Without it, an upstream sets the pause, which may be zero."""

    _next_stream = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            await asyncio.sleep(self._next_stream - time.monotonic())
            self._next_stream = time.monotonic() + STREAM_SECONDS
        return await super().handle_async_request(request)


class HttpTransport(StreamableHTTPTransport):
    """The SDK's transport over HTTP with its own handling of answers to POST.

    For a failed POST, the SDK reports a code and an English sentence, which do not tell an error of the upstream from a
    lost session, a proxy's status or a broken connection. The SDK also ends the session if a request cannot be sent.
    This class overrides private methods of the SDK; if the SDK renames them, the tests with a scripted upstream fail.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, max_sse_event_size=MAX_RESPONSE)
        self.connected = False
        """Until it is set, failures to send are raised, so that connecting can name them."""
        self.answered = 0
        """HTTP status of the last answer to a POST before `connected` was set; 0 if there was none."""

    async def _handle_post_request(self, ctx: RequestContext) -> None:
        message = ctx.session_message.message
        headers = {**self._prepare_headers(), **((ctx.metadata and ctx.metadata.headers) or {})}
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        failure: Failure | None = None
        try:
            async with stream_within_origin(ctx.client, "POST", self.url, json=body, headers=headers) as response:
                if not self.connected:
                    self.answered = response.status_code
                if isinstance(message, JSONRPCRequest):
                    failure = await self._read_answer(ctx, response, message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session ends
            return
        except Exception as error:
            if not self.connected:
                raise
            if isinstance(error, RequestNotSent):
                fault = Fault.UNANSWERED if error.unsure else Fault.NOT_SENT
            elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
                fault = Fault.NOT_SENT
            else:
                fault = Fault.TOO_LARGE if isinstance(error, ResponseTooLarge) else Fault.UNANSWERED
            failure = Failure(fault=fault)
        if failure is not None and isinstance(message, JSONRPCRequest):
            await self._fail(ctx.read_stream_writer, message.id, failure)

    async def _read_answer(
        self, ctx: RequestContext, response: httpx2.Response, request: JSONRPCRequest
    ) -> Failure | None:
        """Pass on the message that answers a request; return a failure if there is no such message."""
        status = response.status_code
        if status == 202 or not 200 <= status < 300:
            body = b""
            with suppress(ResponseTooLarge):  # the status says enough
                body = await response.aread()
            message = read_message(body)
            if self.connected or not isinstance(message, JSONRPCError):
                return self._status_failure(response, message, body)
            message.id = request.id  # the SDK chooses a version of the protocol by it
            await ctx.read_stream_writer.send(SessionMessage(message))
            return None
        if self._is_initialization_request(request):
            self._maybe_extract_session_id_from_response(response)
        kind = response.headers.get("Content-Type", "").lower()
        if kind.startswith("text/event-stream"):
            await self._handle_sse_response(response, ctx)
            return None
        message = read_message(await response.aread()) if is_json(kind) else None
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return Failure(fault=Fault.NOT_MCP, status=status)
        message.id = request.id
        await ctx.read_stream_writer.send(SessionMessage(message))
        return None

    def _status_failure(self, response: httpx2.Response, message: JSONRPCMessage | None, body: bytes) -> Failure:
        """Return the failure for a status other than 2xx, and for the JSON-RPC message in its body, if any."""
        status = response.status_code
        words = _words_of_error(message.error) if isinstance(message, JSONRPCError) else _plain_words(response, body)
        if self.session_id is not None and status in LOST_SESSION_STATUSES:
            fault = Fault.SESSION_LOST
        elif status in STATUS_FAULTS:
            fault = STATUS_FAULTS[status]
        elif isinstance(message, JSONRPCError) or 400 <= status < 500:
            fault = Fault.REFUSED
        else:
            fault = Fault.NO_MESSAGE
        return Failure(
            fault=fault, words=words, status=status, retry_after=retry_after(response.headers.get("Retry-After", ""))
        )

    async def _handle_sse_response(self, response: httpx2.Response, ctx: RequestContext) -> None:
        """Read events until the request is answered. A stream that ends before is resumed if its events have ids."""
        request: Any = ctx.session_message.message  # a request: a notification has no answer
        last_id: str | None = None
        pause: int | None = None
        try:
            async for event in httpx2.EventSource(response, max_event_size=self.max_sse_event_size):
                last_id = event.id or last_id
                pause = event.retry if event.retry is not None else pause
                notify = ctx.metadata.on_resumption_token_update if ctx.metadata else None
                if await self._handle_sse_event(event, ctx.read_stream_writer, request.id, notify):
                    await response.aclose()
                    return
        except (httpx2.SSEError, ResponseTooLarge):
            await self._fail(ctx.read_stream_writer, request.id, Failure(fault=Fault.TOO_LARGE))
            return
        except httpx2.TransportError:
            pass
        if last_id is not None:
            await self._handle_reconnection(ctx, last_id, pause)
        else:
            await self._resolve_abandoned_request(ctx.read_stream_writer, request.id, "")

    async def _handle_sse_event(
        self,
        sse: httpx2.ServerSentEvent,
        read_stream_writer: StreamWriter,
        original_request_id: RequestId | None = None,
        resumption_callback: Callable[[str], Awaitable[None]] | None = None,
    ) -> bool:
        """Pass on the message of an event; return whether it answers the request of this stream."""
        if sse.event != "message":
            return False
        message = read_message(sse.data) if sse.data else None
        is_answer = isinstance(message, JSONRPCResponse | JSONRPCError)
        if message is not None:
            if isinstance(message, JSONRPCResponse | JSONRPCError) and original_request_id is not None:
                message.id = original_request_id
            await read_stream_writer.send(SessionMessage(message))
        elif sse.data and original_request_id is not None:
            await self._fail(read_stream_writer, original_request_id, Failure(fault=Fault.NOT_MCP))
            return True
        if sse.id and resumption_callback:
            await resumption_callback(sse.id)
        return is_answer

    async def _resolve_abandoned_request(
        self, read_stream_writer: StreamWriter, request_id: RequestId, message: str, *, code: int = CONNECTION_CLOSED
    ) -> None:
        """Report a failure for a request whose answer cannot arrive any more."""
        await self._fail(read_stream_writer, request_id, Failure(fault=Fault.UNANSWERED))

    async def _fail(self, writer: StreamWriter, request_id: RequestId, failure: Failure) -> None:
        error = ErrorData(code=CONNECTION_CLOSED, message=failure.fault, data=failure)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session ends
            await writer.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))


@asynccontextmanager
async def http_streams(transport: HttpTransport, client: httpx2.AsyncClient) -> AsyncIterator[TransportStreams]:
    """Run a transport and yield its streams, like `streamable_http_client` of the SDK."""
    writer, read_stream = create_context_streams[SessionMessage | Exception](0)
    write_stream, reader = create_context_streams[SessionMessage](0)
    async with writer, read_stream, write_stream, reader, anyio.create_task_group() as tasks:

        def start_get_stream() -> None:
            tasks.start_soon(transport.handle_get_stream, client, writer)

        tasks.start_soon(transport.post_writer, client, reader, writer, write_stream, start_get_stream, tasks)
        try:
            yield read_stream, write_stream
        finally:
            if transport.session_id:
                await transport.terminate_session(client)
            tasks.cancel_scope.cancel()


def read_message(text: str | bytes) -> JSONRPCMessage | None:
    """Return a JSON-RPC message, or None. JSON that the SDK refuses is read leniently."""
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        pass
    try:
        plain = text if isinstance(text, str) else decode_text(text, is_json=True)
        value = read_lenient_json(plain, keep_below=DEEPEST_MESSAGE)
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, MalformedJSON):
        return None


def _words_of_error(error: ErrorData) -> str:
    data = words_of(error.data) if isinstance(error.data, dict) else error.data
    extra = data if isinstance(data, str) and data not in error.message else ""
    words = " ".join(each for each in (error.message.strip(), extra.strip()) if each)
    return words or f"error {error.code}"


def _plain_words(response: httpx2.Response, body: bytes) -> str:
    """Return the text of an HTTP answer without a JSON-RPC message; empty for an HTML page."""
    kind = response.headers.get("Content-Type", "").lower()
    if kind.startswith("text/plain"):
        return response_text(response) if body else ""
    if not is_json(kind):
        return ""
    try:
        value = read_lenient_json(decode_text(body, is_json=True))
    except MalformedJSON:
        return ""
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"]
    return words_of(value) if isinstance(value, dict) else ""
