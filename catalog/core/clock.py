"""Current time of the database's clock, for comparison with times that other processes wrote.

On PostgreSQL a process measures the database's clock regularly and extrapolates with a monotonic clock, so that a wrong
clock of its own expires nothing early and keeps no lease too long. This time is slightly behind the database's, never
ahead.

The demo and the tests may set the clock: see `settable` and `at`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils import timezone

REFRESH_SECONDS = 10.0
SLOW_SECONDS = 0.5
"""A measurement that took longer is discarded, and the previous one is kept."""
_MONOTONIC_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The database's time at one moment of this process's monotonic clock, in seconds."""

    moment: datetime
    counted: float


_last_measurement: _Measurement | None = None
_set_to: datetime | None = None
"""The time that `at` has set."""
_is_settable = False


def now() -> datetime:
    """Return the current time of the database's clock (UTC)."""
    if _set_to is not None:
        return _set_to
    measured = _last_measurement
    if measured is None:
        return datetime.now(UTC)
    return measured.moment + timedelta(seconds=_monotonic_seconds() - measured.counted)


def current_minute() -> int:
    """Return the number of whole minutes since 1970, for values that are kept for up to a minute."""
    return int(now().timestamp() // 60)


@contextmanager
def settable() -> Iterator[None]:
    """Allow `at` inside the block. Only for the demo and tests: with a wrong time, leases and approvals would expire.

    No executor and no ticker may run meanwhile, in this process or another.
    """
    global _is_settable
    before, _is_settable = _is_settable, True
    try:
        yield
    finally:
        _is_settable = before


@contextmanager
def at(moment: datetime) -> Iterator[None]:
    """Stop the clock of all threads at `moment` for the block. Raises RuntimeError unless settable.

    `plans.store.transactions` then takes the time of a lock from here too, instead of PostgreSQL's clock.
    """
    global _set_to
    if not _is_settable:
        raise RuntimeError("Only the demo and tests may set the clock, inside `settable()`.")
    before, _set_to = _set_to, moment
    try:
        yield
    finally:
        _set_to = before


def is_set() -> bool:
    """Return whether `at` has set the clock."""
    return _set_to is not None


def offset_seconds() -> float:
    """Return how far the database's clock is ahead of this process's, in seconds; 0 if they are the same."""
    return (now() - timezone.now()).total_seconds() if _last_measurement is not None else 0.0


def refresh() -> None:
    """Measure PostgreSQL's clock again, in one round trip. On SQLite, which uses this machine's clock, do nothing."""
    _measure(connection)


def is_stale() -> bool:
    return _last_measurement is not None and _monotonic_seconds() - _last_measurement.counted >= REFRESH_SECONDS


def _monotonic_seconds() -> float:
    return time.clock_gettime(_MONOTONIC_CLOCK)


def _measure(database: BaseDatabaseWrapper) -> None:
    global _last_measurement
    if database.vendor != "postgresql":
        return
    with database.cursor() as cursor:
        started = _monotonic_seconds()
        cursor.execute("SELECT clock_timestamp()")
        [moment] = cursor.fetchone()
    answered = _monotonic_seconds()
    if _last_measurement is None or answered - started < SLOW_SECONDS:
        _last_measurement = _Measurement(moment, answered)


def measure_on_connect(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Measure the database's clock when this process first connects, before it compares any times."""
    if _last_measurement is None:
        _measure(connection)


connection_created.connect(measure_on_connect, dispatch_uid="toolgate.clock")
