"""What lives as long as the serving process: the tools, the executor, the ticker and the feed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from django.conf import settings
from django.db import connection

from approvals.audit.restore_guard import detect_restore, refresh_status, require_restart
from catalog.inventory.sync import sync_tools
from catalog.tools.registry import initialize_tools
from plans.executor.lifecycle import executor_lifespan, tune_garbage_collector
from plans.executor.pool import ExecutorPool

log = logging.getLogger("toolgate.lifespan")
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Lifespan:
    """The ASGI lifespan protocol; with `executes` off, this process serves and others execute.

    `around` gives what else lives as long as the process.
    """

    def __init__(
        self, *, executes: bool, around: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    ) -> None:
        self._executes = executes
        self._around = around

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start, say so, and stop when told to. What start-up raises ends the server."""
        await receive()
        async with self._run_lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _run_lifespan(self) -> AsyncIterator[None]:
        """Bring the catalog up to date, then run everything."""
        executes = await asyncio.to_thread(_prepare, executes=self._executes)
        tune_garbage_collector()
        async with executor_lifespan(ExecutorPool(settings.TOOLGATE_THREADS) if executes else None), self._around():
            yield


def _prepare(*, executes: bool) -> bool:
    """Bring the catalog up to the code of this process; say whether it executes, where it was meant to.

    A database that was set back is still read, with the tools that there are: people see what happened and what to do.
    """
    try:
        if fault := refresh_status() or detect_restore():
            log.error(fault)
            initialize_tools()
            if executes:
                require_restart()
            return False
        sync_tools()
        return executes
    finally:
        connection.close()
