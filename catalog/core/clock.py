"""What time it is, for everything that is compared with what other processes wrote: the database's time.

On SQLite every process shares one machine and its clock. On PostgreSQL a process measures the database's clock now and
then, and counts on from there by a clock of its own that nobody sets. So a process whose clock is wrong, or is set
while it runs, expires nothing early and keeps no lease too long. Measured times lie a little behind the database's,
never ahead: what is due here is due there.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils import timezone

REFRESH_SECONDS = 10.0
SLOW_SECONDS = 0.5
"""An answer that took this long says too little about now; the measurement before it is kept."""
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The database's time at one moment of this process's own counter, in seconds."""

    moment: datetime
    counted: float


_measured: _Measured | None = None


def now() -> datetime:
    """Return the present moment by the database's clock (UTC)."""
    measured = _measured
    if measured is None:
        return datetime.now(UTC)
    return measured.moment + timedelta(seconds=_count() - measured.counted)


def offset_seconds() -> float:
    """Return how far the database's clock is ahead of this process's, in seconds; 0 where they are one."""
    return (now() - timezone.now()).total_seconds() if _measured is not None else 0.0


def refresh() -> None:
    """Measure the database's clock anew where it is another than this process's; one round trip."""
    _measure(connection)


def is_stale() -> bool:
    """Say whether the last measurement is old enough for another."""
    return _measured is not None and _count() - _measured.counted >= REFRESH_SECONDS


def _count() -> float:
    return time.clock_gettime(_COUNTER)


def _measure(database: BaseDatabaseWrapper) -> None:
    global _measured
    if database.vendor != "postgresql":
        return
    with database.cursor() as cursor:
        asked = _count()
        cursor.execute("SELECT clock_timestamp()")
        [moment] = cursor.fetchone()
    answered = _count()
    if _measured is None or answered - asked < SLOW_SECONDS:
        _measured = _Measured(moment, answered)


def measure_first(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Measure when this process first reaches the database: nothing is compared before."""
    if _measured is None:
        _measure(connection)


connection_created.connect(measure_first, dispatch_uid="toolgate.clock")
