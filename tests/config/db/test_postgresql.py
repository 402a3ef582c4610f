"""PostgreSQL backend: order and errors of deferred statements."""

from contextlib import suppress

import pytest
from django.db import IntegrityError, InternalError, OperationalError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.pq import TransactionStatus

from catalog.models import Category

pytestmark = [
    pytest.mark.service,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="This backend is PostgreSQL's."),
]

INSERT = "INSERT INTO catalog_category (name) VALUES (%s)"


def leave(name: str) -> None:
    """Leave the insertion of a category to the next statement."""
    with connection.cursor() as cursor:
        cursor.leave(INSERT, [name])


def names() -> list[str]:
    """Return the names of all categories."""
    return sorted(Category.objects.values_list("name", flat=True))


def status() -> TransactionStatus:
    """Return where the server's transaction stands, as far as the driver was told."""
    return TransactionStatus(connection.connection.pgconn.transaction_status)


def test_a_transaction_begins_with_its_first_statement():
    names()
    with transaction.atomic():
        assert status() == TransactionStatus.IDLE
        names()
        assert status() == TransactionStatus.INTRANS
    assert status() == TransactionStatus.IDLE


def test_what_is_left_is_there_for_the_next_statement():
    with transaction.atomic():
        leave("left")
        assert status() == TransactionStatus.IDLE
        assert names() == ["left"]


def test_what_is_left_is_committed():
    with transaction.atomic():
        leave("first")
        leave("second")
    assert names() == ["first", "second"]


@pytest.mark.parametrize("sent", [False, True])
def test_what_is_left_is_rolled_back(sent):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        leave("left")
        names() if sent else None
        raise ZeroDivisionError
    assert names() == []


def test_outside_of_a_transaction_nothing_is_left():
    leave("at once")
    with connection.connection.cursor() as beside:
        assert beside.execute("SELECT name FROM catalog_category").fetchall() == [("at once",)]


def test_deferred_error_is_raised_at_the_next_statement():
    with pytest.raises(IntegrityError), transaction.atomic():
        Category.objects.create(name="twice")
        leave("twice")
        Category.objects.create(name="later")
    assert names() == []
    Category.objects.create(name="after")
    assert names() == ["after"]


def test_deferred_error_is_raised_at_commit():
    told: list[str] = []
    with pytest.raises(IntegrityError), transaction.atomic():
        transaction.on_commit(lambda: told.append("committed"))
        leave("twice")
        leave("twice")
    assert (names(), told) == ([], [])


def test_error_of_the_commit_is_raised():
    """A deferred foreign key fails at COMMIT."""
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.leave("INSERT INTO catalog_tool_categories (tool_id, category_id) VALUES (%s, %s)", [0, 0])
    assert status() == TransactionStatus.IDLE


def test_a_broken_transaction_takes_nothing_more():
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
        with pytest.raises(ProgrammingError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere", [])
        transaction.set_rollback(True)
        leave("left")


def test_savepoint_rollback_undoes_deferred_statements():
    with transaction.atomic():
        leave("outside")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            leave("inside")
            raise ZeroDivisionError
    assert names() == ["outside"]


def test_savepoint_rollback_recovers_from_an_error():
    """Both if it was sent and not, and whatever the connection had prepared."""
    for turn in range(4):
        with transaction.atomic():
            leave(f"outside {turn}")
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                leave("twice")
                leave("twice")
                raise ZeroDivisionError
            with pytest.raises(IntegrityError), transaction.atomic():
                leave("twice")
                leave("twice")
                Category.objects.filter(name="twice").exists()
            assert not Category.objects.filter(name="twice").exists()
    assert len(names()) == 4


def test_ignored_error_is_raised_at_commit():
    """PostgreSQL would silently roll back."""
    with pytest.raises(InternalError), transaction.atomic():
        leave("twice")
        leave("twice")
        with suppress(IntegrityError):
            names()
    assert names() == []


def test_what_is_left_is_sent_by_who_reads_its_result():
    with transaction.atomic(), connection.cursor() as cursor:
        assert cursor.leave("SELECT %s::int", [1]).fetchone() == (1,)
        assert cursor.leave("SELECT %s::int", [2]).fetchall() == [(2,)]
        assert cursor.leave(INSERT, ["one"]).rowcount == 1


def test_rows_may_be_locked_through_a_cursor_of_the_server():
    Category.objects.create(name="locked")
    with transaction.atomic():
        [found] = Category.objects.select_for_update().iterator()
    assert found.name == "locked"


def test_copies_and_streams_are_part_of_the_transaction():
    with pytest.raises(ZeroDivisionError), transaction.atomic(), connection.cursor() as cursor:
        with cursor.copy("COPY catalog_category (name) FROM STDIN") as copy:
            copy.write_row(("copied",))
        leave("left")
        assert sorted(cursor.stream("SELECT name FROM catalog_category")) == [("copied",), ("left",)]
        raise ZeroDivisionError
    assert names() == []


def test_a_cursor_of_the_server_sees_what_was_left():
    with transaction.atomic():
        leave("left")
        assert [each.name for each in Category.objects.iterator(chunk_size=1)] == ["left"]


def test_a_script_goes_alone():
    with transaction.atomic(), connection.cursor() as cursor:
        leave("left")
        cursor.execute("INSERT INTO catalog_category (name) VALUES ('one'); SELECT 1")
        leave("between")
        cursor.executemany(INSERT, [("two",), ("three",)])
    assert names() == ["between", "left", "one", "three", "two"]


def test_closed_connection_leaves_no_pending_statement():
    with pytest.raises(OperationalError), transaction.atomic():
        leave("left")
        connection.close()
        raise OperationalError
    assert (names(), status()) == ([], TransactionStatus.IDLE)


def test_watched_deferred_statements_keep_their_order():
    seen: list[str] = []

    def watch(execute, sql, *more):
        seen.append(sql)
        return execute(sql, *more)

    with CaptureQueriesContext(connection) as captured, connection.execute_wrapper(watch), transaction.atomic():
        leave("left")
        names()
    statements = [query["sql"] for query in captured.captured_queries]
    assert (statements[0], statements[1], statements[-1]) == ("BEGIN", INSERT, "COMMIT")
    assert (seen[0], len(seen)) == (INSERT, 2)
