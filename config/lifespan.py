"""What lives as long as the serving process: the tools, the executor, the ticker and the feed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from catalog.sync import sync_tools
from plans.executor import Executor
from plans.feed import feed_here
from plans.ticker import Ticker

DRAIN_SECONDS = 30.0

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Lifespan:
    """The ASGI lifespan protocol; with `executes` off, this process serves and others execute."""

    def __init__(self, *, executes: bool) -> None:
        self._executes = executes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start, say so, and stop when told to. What start-up raises ends the server."""
        await receive()
        async with self._living():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        """Run everything; at the end claim nothing more, let what runs end, then hang up."""
        await asyncio.to_thread(_sync)
        executor = Executor(settings.TOOLGATE_THREADS) if self._executes else None
        ticker, feed = Ticker(executor), feed_here()
        if executor is not None:
            executor.start()
        ticker.start()
        yield
        if executor is not None:
            await asyncio.to_thread(_stop, executor)
        await asyncio.to_thread(ticker.stop)
        feed.stop()


def _stop(executor: Executor) -> None:
    """Let what runs end, and hand back what has not begun."""
    try:
        executor.stop(DRAIN_SECONDS)
    finally:
        connection.close()


def _sync() -> None:
    """Bring the catalog up to the code of this process."""
    try:
        sync_tools()
    finally:
        connection.close()
