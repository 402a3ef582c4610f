"""One consistent view of the database for the whole check, which nothing here can change and nobody waits for."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from plans.dialect import on_sqlite


@contextmanager
def one_view() -> Iterator[None]:
    """Let everything read in the body be of one moment; writing fails. A transaction that is open already is used."""
    if connection.in_atomic_block:
        yield
    elif on_sqlite():
        with _on_sqlite():
            yield
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # A check reads all of a result: the plan that yields a first row soonest is the wrong one.
            cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
            # It locks no row, so it may think for as long as it has to between two statements.
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield


@contextmanager
def _on_sqlite() -> Iterator[None]:
    """Begin a transaction that reads: one of Django's would be IMMEDIATE, and keep every writer waiting."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
        try:
            cursor.execute("BEGIN DEFERRED")
            yield
        finally:
            if connection.connection.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.execute("PRAGMA query_only = OFF")
