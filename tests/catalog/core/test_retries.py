"""Transactions that the database asks to do again: a few times, and only as a whole."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection, transaction

from catalog.core.transactions import MAX_ATTEMPTS, is_unavailable, retry_on_deadlock, retry_on_lock, run_each

pytestmark = pytest.mark.db


class Refused(Exception):
    """What a driver raises."""

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
def test_it_is_done_again_until_it_is_done(sqlstate, again):
    """A deadlock is nobody's fault; a lock that was not to be had is waited for by those who have something to keep."""
    act, tries = refusing(MAX_ATTEMPTS - 1, sqlstate, again)
    assert (act(), len(tries)) == ("done", MAX_ATTEMPTS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("times", "sqlstate", "made"),
    [(MAX_ATTEMPTS, "40P01", MAX_ATTEMPTS), (1, "55P03", 1), (1, "SQLITE_BUSY", 1), (1, "57P01", 1), (1, "", 1)],
)
def test_it_is_not_done_for_ever_nor_for_other_reasons(times, sqlstate, made):
    """A database that goes away is another matter, and so is a row that someone has for long."""
    act, tries = refusing(times, sqlstate)
    with pytest.raises(OperationalError):
        act()
    assert len(tries) == made


@pytest.mark.django_db(transaction=True)
def test_inside_another_transaction_it_is_not_done_again():
    """That one is lost too."""
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
def test_what_is_said_of_a_database_that_is_away(error, away):
    """The same may succeed in a moment, or it never will."""
    assert is_unavailable(error) == away


@pytest.mark.django_db
def test_a_table_that_is_missing_does_not_come_back():
    """SQLite calls everything an operational error."""
    with pytest.raises(DatabaseError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM no_such_table")
    assert not is_unavailable(raised.value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("sqlstate", "done"), [("55P03", 2), ("57P01", None)])
def test_one_row_that_is_taken_keeps_no_other_waiting(sqlstate, done):
    """Of many that are due; when the database is away, all are left."""

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
def test_what_comes_again_by_itself_waits_for_a_lock_briefly():
    """Half a second, and as long as before when it is done."""

    def waits(item: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            found.append(cursor.fetchone()[0])
        return found[-1]

    found: list[str] = []
    run_each(waits, [1])
    assert (waits(1), found) == ("5s", ["500ms", "5s"])
