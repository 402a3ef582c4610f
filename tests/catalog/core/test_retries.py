"""Retries of transactions after deadlocks and lock timeouts."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection, transaction

from catalog.core.transactions import MAX_ATTEMPTS, is_unavailable, retry_on_deadlock, retry_on_lock, run_each

pytestmark = pytest.mark.db


class Refused(Exception):
    """Stand-in for a driver's exception."""

    def __init__(self, name: str) -> None:
        is_sqlite = name.startswith("SQLITE")
        self.sqlstate, self.sqlite_errorname = ("", name) if is_sqlite else (name, "")


def refusing(times: int, sqlstate: str, again=retry_on_deadlock) -> tuple[Callable[[], str], list[int]]:
    """Return a transaction that the database refuses so many times, and the tries that were made."""
    tries: list[int] = []

    @again
    def act() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise OperationalError from Refused(sqlstate)
        return "done"

    return act, tries


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("sqlstate", "again"),
    [
        ("40001", retry_on_deadlock),
        ("40P01", retry_on_deadlock),
        ("55P03", retry_on_lock),
        ("SQLITE_BUSY", retry_on_lock),
    ],
)
def test_transaction_is_retried_until_it_succeeds(sqlstate, again):
    """Deadlocks are always retried; lock timeouts only for results that must be stored."""
    act, tries = refusing(MAX_ATTEMPTS - 1, sqlstate, again)
    assert (act(), len(tries)) == ("done", MAX_ATTEMPTS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("times", "sqlstate", "made"),
    [(MAX_ATTEMPTS, "40P01", MAX_ATTEMPTS), (1, "55P03", 1), (1, "SQLITE_BUSY", 1), (1, "57P01", 1), (1, "", 1)],
)
def test_retries_are_limited_to_lock_errors(times, sqlstate, made):
    act, tries = refusing(times, sqlstate)
    with pytest.raises(OperationalError):
        act()
    assert len(tries) == made


@pytest.mark.django_db(transaction=True)
def test_no_retry_inside_an_outer_transaction():
    act, tries = refusing(1, "40P01")
    with pytest.raises(OperationalError), transaction.atomic():
        act()
    assert len(tries) == 1


def caused(error: Exception, sqlstate: str) -> Exception:
    """Return the error as Django raises it for a driver's."""
    error.__cause__ = Refused(sqlstate)
    return error


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OperationalError(), True),
        (InterfaceError(), True),
        (caused(OperationalError(), "55P03"), True),
        (caused(InternalError(), "25P03"), True),
        (caused(InternalError(), "25006"), True),
        (caused(InternalError(), "25P02"), False),
        (DatabaseError(), False),
        (ValueError(), False),
    ],
)
def test_unavailable_database_is_recognised(error, away):
    assert is_unavailable(error) == away


@pytest.mark.django_db
def test_missing_table_is_no_unavailable_database():
    """SQLite reports every error as an OperationalError."""
    with pytest.raises(DatabaseError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM no_such_table")
    assert not is_unavailable(raised.value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("sqlstate", "done"), [("55P03", 2), ("57P01", None)])
def test_locked_row_is_skipped(sqlstate, done):
    """One locked row is skipped; an unavailable database ends the run."""

    def act(item: int) -> bool:
        if item == 1:
            raise caused(OperationalError(), sqlstate)
        return True

    if done is None:
        with pytest.raises(OperationalError):
            run_each(act, [0, 1, 2])
    else:
        assert run_each(act, [0, 1, 2]) == done


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_short_lock_timeout_applies_inside_only():
    def waits(item: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            found.append(cursor.fetchone()[0])
        return found[-1]

    found: list[str] = []
    run_each(waits, [1])
    assert (waits(1), found) == ("5s", ["500ms", "5s"])
