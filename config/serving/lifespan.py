"""Lifespan of the serving process: tools, executor, ticker and feed."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from django.conf import settings
from django.db import connection

from approvals.audit.restore_guard import detect_restore, refresh_status, require_restart
from catalog.inventory.sync import sync_tools
from catalog.tools.registry import initialize_tools
from plans.demo.bar import recognise_demo
from plans.executor.lifecycle import executor_lifespan, tune_garbage_collector
from plans.executor.pool import ExecutorPool

log = logging.getLogger("toolgate.lifespan")
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Lifespan:
    """The ASGI lifespan protocol. Without `executes`, this process leaves the execution of plans to others.

    `around` returns a context manager that is entered at start-up and left at shutdown, for other parts.
    """

    def __init__(
        self, *, executes: bool, around: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    ) -> None:
        self._executes = executes
        self._around = around

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start up, report it, and shut down on request. An exception at start-up ends the server."""
        await receive()
        async with self._run_lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _run_lifespan(self) -> AsyncIterator[None]:
        stop_with_supervisor()
        executes = await asyncio.to_thread(_prepare, executes=self._executes)
        tune_garbage_collector()
        async with executor_lifespan(ExecutorPool(settings.TOOLGATE_THREADS) if executes else None), self._around():
            yield


def stop_with_supervisor() -> None:
    """Watch the supervisor of `serve --workers`, and shut down this worker when it dies: nothing else would stop it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def wait_and_stop() -> None:
        supervisor.join()
        log.error("The supervisor of this worker has died, so the worker shuts down.")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_and_stop, name="supervisor", daemon=True).start()


def _prepare(*, executes: bool) -> bool:
    """Synchronise the catalog with the code; return whether to execute plans, which a restored database forbids."""
    try:
        if fault := refresh_status() or detect_restore():
            log.error(fault)
            initialize_tools()
            if executes:
                require_restart()
            return False
        sync_tools()
        recognise_demo()
        return executes
    finally:
        connection.close()
