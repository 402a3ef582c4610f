"""Tests of advisory locks."""

import threading
from itertools import count

import pytest
from django.db import connection, connections, transaction

from catalog.core.locks import THREAD_LOCKS, LockSpace, LockTimeout, exclusive, try_lock_until_commit

pytestmark = pytest.mark.django_db(transaction=True)


def hold(is_locked: threading.Event, done: threading.Event) -> None:
    with transaction.atomic(), exclusive(LockSpace.SAME_CALL, "1 x", seconds=1):
        try_lock_until_commit(LockSpace.TOOL, "write_file")
        is_locked.set()
        done.wait()
    connections.close_all()


def key_beside(key: str) -> str:
    """Return a key with another lock among threads; some keys share one."""
    taken = hash((LockSpace.SAME_CALL, key)) % THREAD_LOCKS
    return next(each for each in map(str, count()) if hash((LockSpace.SAME_CALL, each)) % THREAD_LOCKS != taken)


def test_a_held_lock_is_awaited_for_a_limited_time() -> None:
    is_locked, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=[is_locked, done])
    thread.start()
    is_locked.wait()
    with pytest.raises(LockTimeout), exclusive(LockSpace.SAME_CALL, "1 x", seconds=0.05):
        pass
    with exclusive(LockSpace.SAME_CALL, key_beside("1 x"), seconds=1):
        pass
    done.set()
    thread.join()
    with exclusive(LockSpace.SAME_CALL, "1 x", seconds=1):
        pass


@pytest.mark.service
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one lock")
def test_a_lock_of_another_process_is_awaited_for_a_limited_time() -> None:
    is_locked, done = threading.Event(), threading.Event()

    def hold_elsewhere() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [LockSpace.SAME_CALL, "1 x"])
            is_locked.set()
            done.wait()
            cursor.execute("SELECT pg_advisory_unlock_all()")
        connections.close_all()

    thread = threading.Thread(target=hold_elsewhere)
    thread.start()
    is_locked.wait()
    with pytest.raises(LockTimeout), exclusive(LockSpace.SAME_CALL, "1 x", seconds=0.1):
        pass
    done.set()
    thread.join()
    with exclusive(LockSpace.SAME_CALL, "1 x", seconds=1):
        pass
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [LockSpace.SAME_CALL]
        )
        assert cursor.fetchone() == (0,)


@pytest.mark.service
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one lock")
def test_a_lock_until_commit_is_tried_without_a_wait() -> None:
    is_locked, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=[is_locked, done])
    thread.start()
    is_locked.wait()
    with transaction.atomic():
        assert not try_lock_until_commit(LockSpace.TOOL, "write_file")
        assert try_lock_until_commit(LockSpace.TOOL, "read_file")
    done.set()
    thread.join()
    with transaction.atomic():
        assert try_lock_until_commit(LockSpace.TOOL, "write_file")
