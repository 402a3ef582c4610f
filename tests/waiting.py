"""Wait for a condition that another thread or process brings about."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from django.db import connection

ValueT = TypeVar("ValueT")


def eventually(condition: Callable[[], ValueT | None], seconds: float = 60.0, what: str = "it") -> ValueT:
    """Return the first true value of `condition`.

    Fail after `seconds`, which is a limit for hanging tests and must be far longer than the condition takes.
    """
    ends = monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert monotonic() < ends, f"{what} did not happen within {seconds:g} s"
        sleep(0.02)


def blocks_someone() -> bool:
    """Say whether another connection waits for a lock that this thread's connection holds (PostgreSQL only)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
        )
        return bool(cursor.fetchone()[0])
