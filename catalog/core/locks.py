"""Advisory locks: locks of PostgreSQL that are named by a key and belong to no row.

SQLite needs no lock until the end of the transaction: its BEGIN IMMEDIATE excludes all other writers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from threading import Lock
from time import monotonic, sleep

from django.db import connection

from catalog.core.database import on_sqlite

THREAD_LOCKS = 64
POLL_SECONDS = 0.05


class LockSpace(IntEnum):
    """First half of a lock's number: the kind of object that is locked. The hash of its key is the second half."""

    CATALOG = 8_040
    TOOL = 8_041
    REQUESTER = 8_042
    SESSION = 8_043
    SAME_CALL = 8_044
    PEOPLE = 8_045
    RECENT_CALLS = 8_047
    STOPS = 8_046


class LockTimeout(Exception):
    """Another thread or process held the lock for too long."""


def lock_until_commit(space: LockSpace, key: str) -> None:
    if not on_sqlite():
        _execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", space, key)


SHARE_UNTIL_COMMIT = "SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s))"
"""Statement that waits while `lock_until_commit` holds the lock, and makes that wait until this transaction ends."""


def try_lock_until_commit(space: LockSpace, key: str) -> bool:
    """Take the lock until the transaction ends; return False at once if another transaction holds it."""
    return on_sqlite() or _execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", space, key)


_thread_locks = [Lock() for _ in range(THREAD_LOCKS)]
"""Locks between the threads of this process; a key uses the one that its hash chooses."""


LOCK_IN_ORDER = (
    "SELECT bool_and({lock}) FROM "
    "(SELECT DISTINCT hashtext(key) AS hash FROM unnest(%s::text[]) AS key ORDER BY hash) AS hashes"
)


def lock_all_until_commit(space: LockSpace, keys: Sequence[str], *, waits: bool) -> bool:
    """Take the locks of several keys until the transaction ends, in one statement and one order for all callers.

    Unless it `waits`, it returns False if another transaction holds one of them; some may then be taken.
    """
    if on_sqlite() or not keys:
        return True
    lock = "pg_advisory_xact_lock(%s, hash) IS NOT NULL" if waits else "pg_try_advisory_xact_lock(%s, hash)"
    with connection.cursor() as cursor:
        cursor.execute(LOCK_IN_ORDER.format(lock=lock), [int(space), list(keys)])
        return bool(cursor.fetchone()[0])


@contextmanager
def exclusive(space: LockSpace, key: str, *, seconds: float) -> Iterator[None]:
    """Hold the lock in the body, which may contain several transactions. Raises LockTimeout after `seconds`."""
    ends, thread_lock = monotonic() + seconds, _thread_locks[hash((space, key)) % THREAD_LOCKS]
    if not thread_lock.acquire(timeout=seconds):
        raise LockTimeout
    try:
        if on_sqlite():
            yield
            return
        while not _execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", space, key):
            if monotonic() > ends:
                raise LockTimeout
            sleep(POLL_SECONDS)
        try:
            yield
        finally:
            _execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", space, key)
    finally:
        thread_lock.release()


def _execute(statement: str, space: LockSpace, key: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, [int(space), key])
        return bool(cursor.fetchone()[0])
