"""Waiting for what other threads and processes do: for a condition, never for a time."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

ValueT = TypeVar("ValueT")


def eventually(condition: Callable[[], ValueT], seconds: float = 60.0, what: str = "it") -> ValueT:
    """Return the first true value of `condition`; fail when there is none for so long that something hangs."""
    ends = monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert monotonic() < ends, f"{what} did not happen within {seconds:g} s"
        sleep(0.02)
