"""The view of the database that the whole check has: nothing here can change it, and nobody waits for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from plans.store import database


@contextmanager
def long_view() -> Iterator[None]:
    """Let everything read in the body be of one moment, however long it takes; writing fails."""
    is_first = not connection.in_atomic_block
    with database.one_view():
        if is_first and not database.on_sqlite():
            with connection.cursor() as cursor:
                # A check reads all of a result: the plan that yields a first row soonest is the wrong one.
                cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
                # It locks no row, so it may think for as long as it has to between two statements.
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield
