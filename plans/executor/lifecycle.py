"""Executing plans in a process: its executor, clock and feed for as long as it lives, and how they come to an end."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import FrameType

from django.conf import settings
from django.db import connection

from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.live.feed import current_feed
from plans.live.long_polling import end_waits

DRAIN_SECONDS = 30.0
INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 128 + signal.SIGTERM
COLLECTION_THRESHOLD = 10_000


@contextmanager
def run_executor() -> Iterator[None]:
    """Execute here, with as many threads as a server has; claims are safe between processes.

    Told to stop, it claims nothing more and leaves the body by SystemExit or KeyboardInterrupt; then, as at every
    end, what runs may end, for `DRAIN_SECONDS` at most, and what has not begun is handed back.
    """
    executor = ExecutorPool(settings.TOOLGATE_THREADS)
    ticker = Ticker(executor)
    executor.start()
    ticker.start()
    try:
        with _exit_on_signal() as stay, on_stop_signals(executor.retire):
            try:
                yield
            finally:
                stay()
                executor.stop(DRAIN_SECONDS)
    finally:
        ticker.stop()


@contextmanager
def _exit_on_signal() -> Iterator[Callable[[], None]]:
    """Let the first SIGTERM or SIGINT end the body, until it says that it stays: then it has its end before it."""
    told: list[bool] = []  # an event has a lock, which whoever is interrupted could hold

    def stay() -> None:
        told.append(True)

    if threading.current_thread() is not threading.main_thread():
        yield stay
        return

    def leave(number: int, frame: FrameType | None) -> None:
        if not told:
            stay()
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED_STATUS)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stay
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@asynccontextmanager
async def executor_lifespan(executor: ExecutorPool | None) -> AsyncIterator[None]:
    """Run clock, feed and, where there is one, the executor on the running loop.

    From the first SIGTERM or SIGINT on nothing more is claimed. At the end what runs may end, for `DRAIN_SECONDS` at
    most, and what has not begun is handed back; leases are renewed meanwhile.
    """
    ticker, feed = Ticker(executor), current_feed()
    if executor is not None:
        executor.start()
    ticker.start()
    try:
        with on_stop_signals(partial(_retire_executor, executor)):
            try:
                yield
            finally:
                if executor is not None:
                    await asyncio.to_thread(_drain_executor, executor)
    finally:
        await asyncio.to_thread(ticker.stop)
        await feed.close()


def tune_garbage_collector() -> None:
    """Let garbage collections pass over what has been loaded: it stays, and each look through it stops every thread.

    Code, models and schemas are some hundred thousand objects, 0.2 s for each full collection. A page makes tens of
    thousands that go without any collection; 700 of them, Python's own measure, are too few to look for more.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD, 10, 10)


def _retire_executor(executor: ExecutorPool | None) -> None:
    """Claim nothing more, and answer who waits for a call."""
    if executor is not None:
        executor.retire()
    end_waits()


def _drain_executor(executor: ExecutorPool) -> None:
    """Let what runs end, and hand back what has not begun."""
    try:
        executor.stop(DRAIN_SECONDS)
    finally:
        connection.close()


@contextmanager
def on_stop_signals(retire: Callable[[], None]) -> Iterator[None]:
    """Call `retire` at once when the process is told to stop, then whoever handled the signal before.

    A second SIGINT ends the process where it stands. Does nothing outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    interrupts: list[int] = []

    def react(number: int, frame: FrameType | None) -> None:
        retire()
        if number == signal.SIGINT:
            interrupts.append(number)
        if len(interrupts) > 1:
            os._exit(INTERRUPTED_STATUS)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for each in before:
        signal.signal(each, react)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
