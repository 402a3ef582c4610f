"""Runner of Python handlers: sync ones in the calling thread, async ones on an event loop in a background thread."""

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from catalog.context import CancelToken, Deadline
from catalog.core import clock
from catalog.errors import DeadlineExceededError

GRACE_SECONDS = 0.5
SHORT_WAIT_SECONDS = 0.02
"""Seconds a thread waits for an async handler before it enters its wait context, which costs as much as a quick one."""
WaitContext = Callable[[], AbstractContextManager[None]]


class _BackgroundLoop:
    """The process's background event loop, started on first use and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._owner != os.getpid():
                self._loop, self._owner = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="toolgate-async-tools", daemon=True).start()
            return self._loop


_background_loop = _BackgroundLoop()


def background_loop() -> asyncio.AbstractEventLoop:
    return _background_loop.running()


class _ThreadWaitContext(threading.local):
    """Context manager that each thread enters while it waits for a slow async handler."""

    aside: WaitContext = nullcontext


_thread_wait_context = _ThreadWaitContext()


def set_wait_context(aside: WaitContext) -> None:
    """Make this thread enter `aside()` while it waits for async handlers, so that other work can use its slot."""
    _thread_wait_context.aside = aside


def await_result(returned: object, deadline: Deadline) -> object:
    """Return a handler's value, awaited if necessary. Raises DeadlineExceededError when time runs out.

    If the call is cancelled, the handler is cancelled on its event loop and awaited until it has ended.
    """
    if not inspect.isawaitable(returned):
        return returned
    seconds = max(0.0, (deadline.expires_at - clock.now()).total_seconds())
    future = asyncio.run_coroutine_threadsafe(
        _run_with_timeout(returned, seconds, deadline.stop), _background_loop.running()
    )
    try:
        # First directly, then inside the thread's wait context.
        done, _ = concurrent.futures.wait([future], SHORT_WAIT_SECONDS)
        if done:
            return future.result()
        with _thread_wait_context.aside():
            return future.result(seconds + GRACE_SECONDS - SHORT_WAIT_SECONDS)
    except concurrent.futures.CancelledError:
        if deadline.stopped:
            raise DeadlineExceededError from None
        raise
    except concurrent.futures.TimeoutError:
        if future.done():
            raise  # the handler's own TimeoutError
        future.cancel()
        raise DeadlineExceededError from None


async def _run_with_timeout(awaitable: Awaitable[object], seconds: float, token: CancelToken | None) -> object:
    task = asyncio.current_task()
    if token is not None and task is not None:
        token.listen(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceededError from None
        raise
    except (KeyboardInterrupt, SystemExit) as end:  # they would end the loop and every other async tool
        raise RuntimeError(f"{type(end).__name__}: {end}") from end
