"""What lives as long as the serving process: the tools, the executor, the ticker and the feed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from catalog.sync import sync_tools
from plans.executing import living
from plans.executor import Executor

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
        """Bring the catalog up to date, then run everything."""
        await asyncio.to_thread(_sync)
        async with living(Executor(settings.TOOLGATE_THREADS) if self._executes else None):
            yield


def _sync() -> None:
    """Bring the catalog up to the code of this process."""
    try:
        sync_tools()
    finally:
        connection.close()
