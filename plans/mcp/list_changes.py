"""Open streams of MCP clients, which receive announcements of changed tools.

Streams are the GET streams of the handshake era and the subscriptions of version 2026-07-28. One job checks all streams
of the process. It ends streams whose token has ended. It announces a change to a token's streams when the tools that
the token may call have changed, through the catalog, a policy, a role or a scope.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from catalog.core.asgi import Send
from catalog.core.transactions import log_unexpected
from plans.mcp.callers import Caller, Context, caller_of, in_thread, live_callers
from plans.mcp.listing import offered_list_digest

CHECK_SECONDS = 2.0
PING_SECONDS = 15.0
MAX_STREAMS = 1_024
MAX_STREAMS_PER_TOKEN = 8
CHANGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, separators=(",", ":"))
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class TooManyStreams(Exception):
    """The token, or the whole process, has as many open streams as it may have."""

    def __init__(self, *, of_token: bool) -> None:
        super().__init__(of_token)
        self.of_token = of_token


class StreamsClosed(Exception):
    """The process is shutting down."""


@dataclass(eq=False, slots=True)
class Stream:
    """One open stream. `changed` is set when its client should list the tools again, `ended` when its token ends."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class TokenStreams:
    """The open streams of one token, and the digest of the list of tools that was last announced to them."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.digest: str | None = None
        self.streams: set[Stream] = set()
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus, max_subscriptions=MAX_STREAMS_PER_TOKEN)

    async def announce(self) -> None:
        for stream in self.streams:
            stream.changed.set()
        await self._bus.publish(ToolsListChanged())

    def end(self) -> None:
        for stream in self.streams:
            stream.ended.set()


class ListChanges:
    def __init__(self) -> None:
        self._by_token: dict[int, TokenStreams] = {}
        self._is_closed = False

    @asynccontextmanager
    async def opened(self, caller: Caller) -> AsyncIterator[Stream]:
        """Count a stream as open while the body runs. Raises TooManyStreams and StreamsClosed."""
        if self._is_closed:
            raise StreamsClosed
        if sum(len(each.streams) for each in self._by_token.values()) >= MAX_STREAMS:
            raise TooManyStreams(of_token=False)
        pk = caller.token.pk
        if pk not in self._by_token:
            self._by_token[pk] = TokenStreams(caller)
        mine, stream = self._by_token[pk], Stream()
        if len(mine.streams) >= MAX_STREAMS_PER_TOKEN:
            raise TooManyStreams(of_token=True)
        mine.streams.add(stream)
        try:
            if mine.digest is None:
                mine.digest = await in_thread(offered_list_digest, caller)
            yield stream
        finally:
            mine.streams.discard(stream)
            if not mine.streams:
                del self._by_token[pk]

    async def listen(self, context: Context, params: Any) -> Any:
        """Serve a subscription of version 2026-07-28. Call it inside `opened`."""
        return await self._by_token[caller_of(context).token.pk].listen(context, params)

    async def send_events(self, stream: Stream, send: Send) -> None:
        """Send announcements as server-sent events, with pings in between, until cancelled."""
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        while True:
            text = f"event: message\r\ndata: {CHANGED}\r\n\r\n" if stream.changed.is_set() else ": ping\r\n\r\n"
            stream.changed.clear()
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    await stream.changed.wait()

    async def watch(self) -> None:
        """Check the tokens and lists of all streams every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except Exception as error:  # noqa: BLE001 - the next check tries again
                log_unexpected(error)

    async def check(self) -> None:
        """End the streams whose token has ended, and announce lists of tools that have changed."""
        checked = dict(self._by_token)
        if not checked:
            return
        digests = await in_thread(current_digests, [each.caller for each in checked.values()])
        for pk, streams in checked.items():
            digest = digests.get(pk)
            if digest is None:
                streams.end()
            elif streams.digest is not None and digest != streams.digest:
                streams.digest = digest
                await streams.announce()

    def close(self) -> None:
        """End all subscriptions and refuse later ones."""
        self._is_closed = True
        for each in self._by_token.values():
            each.listen.close()


def current_digests(callers: list[Caller]) -> dict[int, str]:
    return {pk: offered_list_digest(caller) for pk, caller in live_callers(callers).items()}
