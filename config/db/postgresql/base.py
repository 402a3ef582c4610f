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
from psycopg.errors import InFailedSqlTransaction
from psycopg.pq import TransactionStatus


class PipelineCursor(base.ServerBindingCursor, psycopg.Cursor[Any]):
    """A cursor before whose statements goes what was left unsent on its connection."""

    wrapper: "DatabaseWrapper | None" = None
    """Whose cursor it is; what Django does with a new connection it does without."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> "PipelineCursor":
        """Execute what was left, and the statement; without parameters it may be a script, which goes alone."""
        if self.wrapper is None or not self.wrapper.unsent:
            return super().execute(query, params, **options)
        if params is None:
            self.wrapper.send_pending_statements()
            return super().execute(query, params, **options)
        with _pipeline_after(self.connection, self.wrapper.pop_pending_statements()):
            super().execute(query, params, **self.wrapper.preparing(), **options)
        return self

    def executemany(self, *args: Any, **options: Any) -> None:
        """Execute what was left, then the statement many times."""
        self._send_pending()
        super().executemany(*args, **options)

    def copy(self, *args: Any, **options: Any) -> Any:
        """Execute what was left, then COPY."""
        self._send_pending()
        return super().copy(*args, **options)

    def stream(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Execute what was left, then the statement, row by row."""
        self._send_pending()
        return super().stream(*args, **options)

    def _send_pending(self) -> None:
        if self.wrapper is not None:
            self.wrapper.send_pending_statements()


class DeferredStatement(psycopg.Cursor[Any]):
    """A cursor whose statement was left to the next one. Reading its result early sends everything left so far."""

    def __init__(self, wrapper: "DatabaseWrapper", sql: str, params: Sequence[Any] = ()) -> None:
        """Leave a statement of the open transaction."""
        super().__init__(wrapper.connection)
        self.sql, self.params, self._wrapper = sql, params, wrapper
        wrapper.unsent.append(self)

    def send(self) -> None:
        """Execute the statement, in a pipeline; the text of one without parameters goes with it each time."""
        preparing = self._wrapper.preparing() if self.params else {"prepare": False}
        super().execute(self.sql, self.params, **preparing)

    def fetchone(self) -> Any:
        """Return the next row of the result; None when there is none."""
        self._ensure_sent()
        return super().fetchone()

    def fetchall(self) -> list[Any]:
        """Return the rows that are left of the result."""
        self._ensure_sent()
        return super().fetchall()

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed, or its result has."""
        self._ensure_sent()
        return super().rowcount

    def _ensure_sent(self) -> None:
        if self in self._wrapper.unsent:
            self._wrapper.send_pending_statements()


def send_statements(connection: psycopg.Connection, left: Sequence[DeferredStatement]) -> None:
    """Execute statements in one way to the server. Raises what the first of them that failed raises."""
    if left:
        with _pipeline_after(connection, left):
            pass


@contextmanager
def _pipeline_after(connection: psycopg.Connection, left: Sequence[DeferredStatement]) -> Iterator[None]:
    """Send statements, then what the body executes; whoever leaves the body waits for all their results."""
    with connection.pipeline():
        for each in left:
            each.send()
        yield


class DeferringMixin:
    """What our cursors can do that Django's cannot."""

    def leave(self: Any, sql: str, params: Sequence[Any]) -> DjangoCursorWrapper:
        """Leave a statement to the next one, at the latest to COMMIT; return the cursor that will have its result.

        What it raises is raised there. Outside of a transaction it is executed at once.
        """
        if not self.db.in_atomic_block:
            self.execute(sql, params)
            return self  # type: ignore[no-any-return]
        self.db.validate_no_broken_transaction()
        left: DeferredStatement = self._execute_with_wrappers(sql, params, many=False, executor=self._leave)
        return CursorWrapper(left, self.db)

    def _leave(self: Any, sql: str, params: Sequence[Any], *_: object) -> DeferredStatement:
        return DeferredStatement(self.db, sql, params)


class CursorWrapper(DeferringMixin, DjangoCursorWrapper):
    """Django's cursor, which can leave a statement to the next one."""


class CursorDebugWrapper(DeferringMixin, base.CursorDebugWrapper):
    """The same where statements are logged."""

    def _leave(self, sql: str, params: Sequence[Any], *_: object) -> DeferredStatement:
        with self.debug_sql(sql, params):
            return super()._leave(sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL with such cursors and transactions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin with nothing left unsent."""
        super().__init__(*args, **kwargs)
        self.unsent: list[DeferredStatement] = []

    def get_connection_params(self) -> dict[str, Any]:
        """Return what Django connects with, and our cursors."""
        return {**super().get_connection_params(), "cursor_factory": PipelineCursor}

    def create_cursor(self, name: str | None = None) -> Any:
        """Open a cursor on the connection; one with a name is the server's, which begins with what was left."""
        if name is not None:
            self.send_pending_statements()
            return self.connection.cursor(name, scrollable=False, withhold=self.get_autocommit())
        cursor = super().create_cursor()
        cursor.wrapper = self
        return cursor

    def make_cursor(self, cursor: Any) -> Any:
        """Wrap a cursor."""
        return CursorWrapper(cursor, self)

    def make_debug_cursor(self, cursor: Any) -> Any:
        """Wrap a cursor whose statements are logged."""
        return CursorDebugWrapper(cursor, self)

    def pop_pending_statements(self) -> list[DeferredStatement]:
        """Return what was left, for who sends it."""
        left = self.unsent
        if left:
            self.unsent = []
        return left

    def send_pending_statements(self) -> None:
        """Send what was left by itself."""
        send_statements(self.connection, self.pop_pending_statements())

    def preparing(self) -> dict[str, Any]:
        """Return how what goes in a pipeline is prepared: by its use, but not inside of a savepoint.

        psycopg forgets with a rollback what it had meant to prepare in a pipeline that failed; with one to a savepoint
        it may not.
        """
        return {"prepare": False} if self.savepoint_ids else {}

    def _start_transaction_under_autocommit(self) -> None:
        with debug_transaction(self, "BEGIN"):
            self.unsent = []
            DeferredStatement(self, "BEGIN")

    def _commit(self) -> None:
        left = self.pop_pending_statements()
        if self.connection is None or (len(left) == 1 and left[0].sql == "BEGIN"):
            return  # nothing was said in this transaction
        with debug_transaction(self, "COMMIT"), self.wrap_database_errors:
            if self.connection.pgconn.transaction_status == TransactionStatus.INERROR:
                raise InFailedSqlTransaction("An error in this transaction was passed over: it cannot be committed.")
            if left:
                self.unsent = left
                DeferredStatement(self, "COMMIT")
                self.send_pending_statements()
            else:
                self.connection.commit()

    def _savepoint_rollback(self, sid: str) -> None:
        self.unsent = []  # its savepoint was sent after all that was left before it
        super()._savepoint_rollback(sid)  # type: ignore[misc]

    def _rollback(self) -> None:
        self.unsent = []
        super()._rollback()  # type: ignore[misc]

    def _close(self) -> None:
        self.unsent = []
        super()._close()  # type: ignore[misc]
