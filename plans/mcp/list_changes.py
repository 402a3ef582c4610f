"""Announcements of changed tools: to subscriptions of version 2026-07-28, and to the GET streams of earlier ones."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from catalog.core.transactions import log_unexpected
from catalog.inventory import snapshot
from plans.mcp.callers import in_thread

CHECK_SECONDS = 1.0
PING_SECONDS = 15.0
MOST_STREAMS = 1_024
CHANGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, separators=(",", ":"))
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ListChanges:
    """Watches the catalog and announces each change once."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus, max_subscriptions=MOST_STREAMS)
        self._streams: set[asyncio.Event] = set()
        self._known: object = None

    @property
    def is_full(self) -> bool:
        """True when no further GET stream is accepted."""
        return len(self._streams) >= MOST_STREAMS

    async def watch(self) -> None:
        """Look at the catalog each second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Look at the catalog, and announce a change since the last look."""
        try:
            tools = await in_thread(snapshot.callable_tools)
            before, self._known = self._known, tools
            if before is not None and tools is not before:
                await self.announce()
        except Exception as error:  # noqa: BLE001 - the next look tries again
            log_unexpected(error)

    async def announce(self) -> None:
        """Tell all listeners that the list of tools has changed."""
        for stream in self._streams:
            stream.set()
        await self.bus.publish(ToolsListChanged())

    async def stream(self, send: Send) -> None:
        """Send announcements as server-sent events, until cancelled."""
        news = asyncio.Event()
        self._streams.add(news)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            while True:
                text = f"event: message\r\ndata: {CHANGED}\r\n\r\n" if news.is_set() else ": ping\r\n\r\n"
                news.clear()
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(PING_SECONDS):
                        await news.wait()
        finally:
            self._streams.discard(news)
