"""The database backend: PostgreSQL as Django ships it, with fewer ways to the server and back.

A way costs more than most statements do, and whoever holds a lock makes others wait for each of its ways. BEGIN goes
with the transaction's first statement; what was left with `CursorWrapper.leave` goes with the next one, at the latest
with COMMIT (libpq's pipeline mode: https://www.postgresql.org/docs/current/libpq-pipeline-mode.html).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.utils import CursorWrapper as DjangoCursorWrapper
from django.db.backends.utils import debug_transaction

PostgresCursor = psycopg.Cursor[Any]


class Left(PostgresCursor):
    """A cursor whose statement was left to the next one; who reads its result before sends what was left until then."""

    def __init__(self, wrapper: "DatabaseWrapper", sql: str, params: Sequence[Any] = ()) -> None:
        """Leave a statement of the open transaction."""
        super().__init__(wrapper.connection)
        self.sql, self.params, self._wrapper = sql, params, wrapper
        wrapper.unsent.append(self)

    def send(self) -> None:
        """Execute the statement, in a pipeline; the text of one without parameters goes with it each time."""
        super().execute(self.sql, self.params, prepare=None if self.params else False)

    def fetchone(self) -> Any:
        """Return the next row of the result; None when there is none."""
        if self in self._wrapper.unsent:
            self._wrapper.send_unsent()
        return super().fetchone()


class Cursor(PostgresCursor):
    """A cursor before whose statements goes what was left unsent on its connection."""

    wrapper: "DatabaseWrapper | None" = None
    """Whose cursor it is; what Django does with a new connection it does without."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> "Cursor":
        """Execute what was left, and the statement; without parameters it may be a script, which goes alone."""
        left = self.wrapper.take_unsent() if self.wrapper else []
        if not left:
            return super().execute(query, params, **options)
        if params is None:
            send(self.connection, left)
            return super().execute(query, params, **options)
        with _pipeline_after(self.connection, left):
            super().execute(query, params, **options)
        return self

    def executemany(self, *args: Any, **options: Any) -> None:
        """Execute what was left, then the statement many times."""
        if self.wrapper:
            self.wrapper.send_unsent()
        super().executemany(*args, **options)


def send(connection: psycopg.Connection, left: Sequence[Left]) -> None:
    """Execute statements in one way to the server. Raises what the first of them that failed raises."""
    if left:
        with _pipeline_after(connection, left):
            pass


@contextmanager
def _pipeline_after(connection: psycopg.Connection, left: Sequence[Left]) -> Iterator[None]:
    """Send statements, then what the body executes; whoever leaves the body waits for all their results."""
    with connection.pipeline():
        for each in left:
            each.send()
        yield


class Leaving:
    """What our cursors can do that Django's cannot."""

    def leave(self: Any, sql: str, params: Sequence[Any]) -> DjangoCursorWrapper:
        """Leave a statement to the next one, at the latest to COMMIT; return the cursor that will have its result.

        What it raises is raised there. Outside of a transaction it is executed at once.
        """
        if not self.db.in_atomic_block:
            self.execute(sql, params)
            return self  # type: ignore[no-any-return]
        self.db.validate_no_broken_transaction()
        left: Left = self._execute_with_wrappers(sql, params, many=False, executor=self._leave)
        return CursorWrapper(left, self.db)

    def _leave(self: Any, sql: str, params: Sequence[Any], *_: object) -> Left:
        return Left(self.db, sql, params)


class CursorWrapper(Leaving, DjangoCursorWrapper):
    """Django's cursor, which can leave a statement to the next one."""


class CursorDebugWrapper(Leaving, base.CursorDebugWrapper):
    """The same where statements are logged."""

    def _leave(self, sql: str, params: Sequence[Any], *_: object) -> Left:
        with self.debug_sql(sql, params):
            return super()._leave(sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL with such cursors and transactions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin with nothing left unsent."""
        super().__init__(*args, **kwargs)
        self.unsent: list[Left] = []

    def get_connection_params(self) -> dict[str, Any]:
        """Return what Django connects with, and our cursors."""
        return {**super().get_connection_params(), "cursor_factory": Cursor}

    def create_cursor(self, name: str | None = None) -> Any:
        """Open a cursor on the connection; one with a name is the server's, which begins with what was left."""
        cursor = super().create_cursor(name)
        if name is None:
            cursor.wrapper = self
        else:
            self.send_unsent()
        return cursor

    def make_cursor(self, cursor: Any) -> Any:
        """Wrap a cursor."""
        return CursorWrapper(cursor, self)

    def make_debug_cursor(self, cursor: Any) -> Any:
        """Wrap a cursor whose statements are logged."""
        return CursorDebugWrapper(cursor, self)

    def take_unsent(self) -> list[Left]:
        """Return what was left, for who sends it."""
        left = self.unsent
        if left:
            self.unsent = []
        return left

    def send_unsent(self) -> None:
        """Send what was left by itself."""
        send(self.connection, self.take_unsent())

    def _start_transaction_under_autocommit(self) -> None:
        with debug_transaction(self, "BEGIN"):
            self.unsent = []
            Left(self, "BEGIN")

    def _commit(self) -> None:
        left = self.take_unsent()
        if not left:
            super()._commit()  # type: ignore[misc] # the stubs leave out what backends are made of
        elif len(left) > 1 or left[0].sql != "BEGIN":  # else nothing was said in this transaction
            self.unsent = left
            Left(self, "COMMIT")
            with debug_transaction(self, "COMMIT"), self.wrap_database_errors:
                self.send_unsent()

    def _rollback(self) -> None:
        self.unsent = []
        super()._rollback()  # type: ignore[misc]

    def _close(self) -> None:
        self.unsent = []
        super()._close()  # type: ignore[misc]
