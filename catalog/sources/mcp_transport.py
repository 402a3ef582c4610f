"""HTTP transport of the MCP client, in which a request that fails leaves the other requests of its session alone.

The SDK sends each request in a task of the session, and an exception of the transport ends the session with every call
in flight. So failures become answers: JSON-RPC errors with codes of our own, which only the failed request receives.
An upstream that sends these codes itself is classified in the same way, which says no more than its other errors.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx2

from catalog.core.egress import AsyncGuardedTransport, RequestNotSent, ResponseTooLarge

NOT_SENT, BROKEN, TOO_LARGE = -32901, -32902, -32903
"""JSON-RPC error codes: the request was not sent, the connection broke before the answer, the answer is too large."""
STREAM_SECONDS = 1.0
"""Seconds from the start of one GET to the next. GETs that wait at the same time start together."""


class McpTransport(AsyncGuardedTransport):
    """Transport of one session. Until `connected` is set, failures are raised, so that connecting can name them."""

    connected = False
    answered = 0
    """HTTP status of the last answer to a POST before `connected` was set; 0 if there was none."""
    _next_stream = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, a GET after a pause if needed.

        Raises as AsyncGuardedTransport, for a POST only until `connected` is set.
        """
        if request.method == "GET":
            await self._pause()
        if request.method != "POST":
            return await super().handle_async_request(request)
        if not self.connected:
            response = await super().handle_async_request(request)
            self.answered = response.status_code
            return response
        try:
            return await self._answer(request)
        except RequestNotSent as error:
            code = BROKEN if error.unsure else NOT_SENT
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            code = NOT_SENT
        except ResponseTooLarge:
            code = TOO_LARGE
        except httpx2.TransportError:
            code = BROKEN
        return _failure(request, code)

    async def _pause(self) -> None:
        """Wait before a stream is opened again: without this, an upstream sets the SDK's pause, which may be zero."""
        await asyncio.sleep(self._next_stream - time.monotonic())
        self._next_stream = time.monotonic() + STREAM_SECONDS

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and read its response, unless it is a stream of events."""
        response = await super().handle_async_request(request)
        if response.headers.get("Content-Type", "").lower().startswith("text/event-stream"):
            response.stream = _EventStream(response.stream)  # type: ignore[arg-type]
            return response
        try:
            await response.aread()
        finally:
            await response.aclose()
        return response


class _EventStream(httpx2.AsyncByteStream):
    """A stream of events that fails with SSEError, which the SDK gives to its request alone, when it is too large."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except ResponseTooLarge as error:
            raise httpx2.SSEError(str(error)) from None

    async def aclose(self) -> None:
        """Close the connection's side of the stream."""
        await self._inner.aclose()


def _failure(request: httpx2.Request, code: int) -> httpx2.Response:
    """Return the answer of a request that failed."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "The request failed."}}
    headers = {"Content-Type": "application/json"}
    return httpx2.Response(502, headers=headers, content=json.dumps(error), request=request)
