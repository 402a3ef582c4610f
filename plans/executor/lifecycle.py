"""Start and shutdown of the executor, ticker and feed of a process."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from django.conf import settings
from django.db import connection

from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.live.feed import current_feed
from plans.live.waits import end_waits

DRAIN_SECONDS = 30.0
INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 128 + signal.SIGTERM
COLLECTION_THRESHOLD = 10_000


@contextmanager
def run_executor() -> Iterator[None]:
    """Run an executor with TOOLGATE_THREADS threads while the body runs; several processes may do so.

    On SIGTERM or SIGINT, no further step is claimed and the body ends with SystemExit or KeyboardInterrupt. At the end
    running calls get up to `DRAIN_SECONDS` to finish, and calls that have not begun are released.
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
    """End the body on the first SIGTERM or SIGINT. Once the body calls the yielded function, signals do not end it."""
    finishing: list[bool] = []  # not an Event, whose lock the interrupted thread could hold

    def stay() -> None:
        finishing.append(True)

    if threading.current_thread() is not threading.main_thread():
        yield stay
        return

    def leave(number: int, frame: FrameType | None) -> None:
        if not finishing:
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
    """Run the ticker, the feed and, if given, the executor while the server runs.

    From the first SIGTERM or SIGINT on, no further step is claimed. At the end running calls get up to `DRAIN_SECONDS`
    to finish, with their leases renewed, and calls that have not begun are released.
    """
    ticker, feed = Ticker(executor), current_feed()

    def retire() -> None:
        if executor is not None:
            executor.retire()
        end_waits()

    def drain(executor: ExecutorPool) -> None:
        try:
            executor.stop(DRAIN_SECONDS)
        finally:
            connection.close()

    if executor is not None:
        executor.start()
    ticker.start()
    try:
        with on_stop_signals(retire):
            try:
                yield
            finally:
                if executor is not None:
                    await asyncio.to_thread(drain, executor)
    finally:
        await asyncio.to_thread(ticker.stop)
        await feed.close()


def tune_garbage_collector() -> None:
    """Exclude loaded objects from garbage collection and raise its threshold, because a collection stops every thread.

    Code, models and schemas are some hundred thousand permanent objects, which cost 0.2 s per full collection. A page
    creates tens of thousands of objects that are freed without it; Python's default threshold of 700 is far too low.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD, 10, 10)


@contextmanager
def on_stop_signals(retire: Callable[[], None]) -> Iterator[None]:
    """On SIGTERM or SIGINT, call `retire` and then the previous signal handler.

    A second SIGINT exits the process immediately. Does nothing outside of the main thread.
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
