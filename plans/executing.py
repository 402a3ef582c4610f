"""Executing plans in a process that is no server: for as long as a block lasts, an executor with its ticker."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from plans.executor import Executor
from plans.ticker import Ticker


@contextmanager
def executing() -> Iterator[None]:
    """Execute here, with as many threads as a server has; claims are safe between processes."""
    executor = Executor(settings.TOOLGATE_THREADS)
    ticker = Ticker(executor)
    executor.start()
    ticker.start()
    try:
        yield
    finally:
        executor.stop()
        ticker.stop()
