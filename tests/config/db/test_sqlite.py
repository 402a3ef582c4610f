"""SQLite backend: errors as in Django, watched statements, fair write lock."""

import sqlite3
import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from catalog.models import Category
from config.db.sqlite import base

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="This backend is SQLite's."),
]


@pytest.fixture
def writer() -> Iterator[sqlite3.Connection]:
    """Another program that writes, while nobody waits for it."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()
    connection.close()


def test_a_transaction_that_cannot_begin_fails_as_in_django(writer: sqlite3.Connection) -> None:
    """Retries look at the SQLite name of the error's cause."""
    with pytest.raises(OperationalError) as failed, transaction.atomic():
        pytest.fail("The other program has the lock.")
    assert getattr(failed.value.__cause__, "sqlite_errorname", "") == "SQLITE_BUSY"

    writer.execute("ROLLBACK")
    with transaction.atomic():
        Category.objects.create(name="kept")
    assert Category.objects.filter(name="kept").exists()


def test_a_fetch_that_fails_does_so_as_in_django() -> None:
    rows = "SELECT CASE column1 WHEN 3 THEN abs(-9223372036854775808) END FROM (VALUES (1), (2), (3))"
    with connection.cursor() as cursor:
        cursor.execute(rows, [])
        with pytest.raises(OperationalError):
            cursor.fetchall()
        cursor.execute(rows, [])
        with pytest.raises(OperationalError):
            [cursor.fetchone() for _ in range(3)]


def test_a_commit_that_fails_does_so_as_in_django_and_leaves_nothing() -> None:
    """A deferred foreign key fails at COMMIT."""
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO catalog_tool_categories (tool_id, category_id) VALUES (%s, %s)", [0, 0])
    assert not connection.in_atomic_block


def test_who_watches_the_statements_sees_a_transaction_begin_and_end() -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        Category.objects.create(name="seen")
    statements = [query["sql"] for query in captured.captured_queries]
    assert (statements[0], statements[-1]) == ("BEGIN IMMEDIATE", "COMMIT")


class WatchedLock:
    """A lock that tells when somebody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_waited_for = threading.Event()

    def acquire(self, timeout: float) -> bool:
        """Acquire the lock."""
        if self._lock.acquire(blocking=False):
            return True
        self.is_waited_for.set()
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> WatchedLock:
    """The lock by which the threads take turns at writing."""
    lock = WatchedLock()
    monkeypatch.setattr(base, "_write_lock", lock)
    return lock


def write_in_a_thread(write: Callable[[], object], turns: WatchedLock) -> None:
    """Write in a thread without SQLite's busy timeout, while this one is inside a transaction."""
    failures: list[OperationalError] = []

    def live() -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 0")
        try:
            write()
        except OperationalError as failure:
            failures.append(failure)
        finally:
            connection.close()

    other = threading.Thread(target=live)
    with transaction.atomic():
        Category.objects.create(name="first")
        other.start()
        assert turns.is_waited_for.wait(60)
    other.join()
    assert not failures, failures


def create_in_a_transaction() -> None:
    with transaction.atomic():
        Category.objects.create(name="second")


@pytest.mark.parametrize("write", [create_in_a_transaction, lambda: Category.objects.create(name="second")])
def test_a_thread_that_writes_waits_for_its_turn(write: Callable[[], object], turns: WatchedLock) -> None:
    """It does not poll SQLite's lock."""
    write_in_a_thread(write, turns)
    assert [each.name for each in Category.objects.order_by("pk")][-2:] == ["first", "second"]


def test_a_transaction_that_fails_gives_its_turn_back(turns: WatchedLock) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Category.objects.create(name="twice")
        Category.objects.create(name="twice")
    write_in_a_thread(create_in_a_transaction, turns)
    assert Category.objects.filter(name="second").exists()
