"""The database backend for SQLite: what it leaves out is never an error's kind, nor what watches the statements."""

import sqlite3
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from catalog.models import Category

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
    """Whoever does transactions again asks the error's cause for its name."""
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
    """What is checked when a transaction ends: a row that names another which is not there."""
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO catalog_tool_categories (tool_id, category_id) VALUES (%s, %s)", [0, 0])
    assert not connection.in_atomic_block


def test_who_watches_the_statements_sees_a_transaction_begin_and_end() -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        Category.objects.create(name="seen")
    statements = [query["sql"] for query in captured.captured_queries]
    assert (statements[0], statements[-1]) == ("BEGIN IMMEDIATE", "COMMIT")
