"""Database backend for PostgreSQL with fewer round trips than Django's: locks are held during every round trip.

BEGIN is sent with the transaction's first statement, and statements deferred with `CursorWrapper.leave` with the next
one or COMMIT, in libpq's pipeline mode (https://www.postgresql.org/docs/current/libpq-pipeline-mode.html).
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
    """A cursor that sends the connection's pending statements before its own."""

    wrapper: "DatabaseWrapper | None" = None
    """The owner of the cursor; None for Django's statements on a new connection."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> "PipelineCursor":
        """Execute pending statements and this one; a query without parameters may be a script and is sent alone."""
        if self.wrapper is None or not self.wrapper.unsent:
            return super().execute(query, params, **options)
        if params is None:
            self.wrapper.send_pending_statements()
            return super().execute(query, params, **options)
        with _pipeline_after(self.connection, self.wrapper.pop_pending_statements()):
            super().execute(query, params, **self.wrapper.preparing(), **options)
        return self

    def executemany(self, *args: Any, **options: Any) -> None:
        self._send_pending()
        super().executemany(*args, **options)

    def copy(self, *args: Any, **options: Any) -> Any:
        self._send_pending()
        return super().copy(*args, **options)

    def stream(self, *args: Any, **options: Any) -> Iterator[Any]:
        self._send_pending()
        return super().stream(*args, **options)

    def _send_pending(self) -> None:
        if self.wrapper is not None:
            self.wrapper.send_pending_statements()


class DeferredStatement(psycopg.Cursor[Any]):
    """A cursor of a deferred statement. Reading its result sends all pending statements."""

    def __init__(self, wrapper: "DatabaseWrapper", sql: str, params: Sequence[Any] = ()) -> None:
        super().__init__(wrapper.connection)
        self.sql, self.params, self._wrapper = sql, params, wrapper
        wrapper.unsent.append(self)

    def send(self) -> None:
        """Execute the statement in a pipeline; it is prepared for repeated use only if it has parameters."""
        preparing = self._wrapper.preparing() if self.params else {"prepare": False}
        super().execute(self.sql, self.params, **preparing)

    def fetchone(self) -> Any:
        self._ensure_sent()
        return super().fetchone()

    def fetchall(self) -> list[Any]:
        self._ensure_sent()
        return super().fetchall()

    @property
    def rowcount(self) -> int:
        self._ensure_sent()
        return super().rowcount

    def _ensure_sent(self) -> None:
        if self in self._wrapper.unsent:
            self._wrapper.send_pending_statements()


def send_statements(connection: psycopg.Connection, statements: Sequence[DeferredStatement]) -> None:
    """Execute statements in one round trip. Raises the exception of the first statement that failed."""
    if statements:
        with _pipeline_after(connection, statements):
            pass


@contextmanager
def _pipeline_after(connection: psycopg.Connection, statements: Sequence[DeferredStatement]) -> Iterator[None]:
    """Send these statements, then the statements executed in the body; on exit, wait for all their results."""
    with connection.pipeline():
        for each in statements:
            each.send()
        yield


class DeferringMixin:
    def leave(self: Any, sql: str, params: Sequence[Any]) -> DjangoCursorWrapper:
        """Send a statement with the next one, at the latest with COMMIT; return the cursor that will have its result.

        Errors of the statement are raised at that time. Outside a transaction it is executed at once.
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
    """Django's cursor with deferred execution."""


class CursorDebugWrapper(DeferringMixin, base.CursorDebugWrapper):
    """`CursorWrapper` with logging of statements."""

    def _leave(self, sql: str, params: Sequence[Any], *_: object) -> DeferredStatement:
        with self.debug_sql(sql, params):
            return super()._leave(sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unsent: list[DeferredStatement] = []

    def get_connection_params(self) -> dict[str, Any]:
        return {**super().get_connection_params(), "cursor_factory": PipelineCursor}

    def create_cursor(self, name: str | None = None) -> Any:
        if name is not None:
            self.send_pending_statements()
            return self.connection.cursor(name, scrollable=False, withhold=self.get_autocommit())
        cursor = super().create_cursor()
        cursor.wrapper = self
        return cursor

    def make_cursor(self, cursor: Any) -> Any:
        return CursorWrapper(cursor, self)

    def make_debug_cursor(self, cursor: Any) -> Any:
        return CursorDebugWrapper(cursor, self)

    def pop_pending_statements(self) -> list[DeferredStatement]:
        left = self.unsent
        if left:
            self.unsent = []
        return left

    def send_pending_statements(self) -> None:
        send_statements(self.connection, self.pop_pending_statements())

    def preparing(self) -> dict[str, Any]:
        """Return the options of psycopg's `execute`: inside a savepoint, nothing is prepared.

        If a pipeline fails, psycopg forgets its prepared statements when the transaction is rolled back, but not when
        only a savepoint is: it would then use statements that the server does not have.
        """
        return {"prepare": False} if self.savepoint_ids else {}

    def _start_transaction_under_autocommit(self) -> None:
        with debug_transaction(self, "BEGIN"):
            self.unsent = []
            DeferredStatement(self, "BEGIN")

    def _commit(self) -> None:
        left = self.pop_pending_statements()
        if self.connection is None or (len(left) == 1 and left[0].sql == "BEGIN"):
            return  # no statement was sent in this transaction
        with debug_transaction(self, "COMMIT"), self.wrap_database_errors:
            if self.connection.pgconn.transaction_status == TransactionStatus.INERROR:
                raise InFailedSqlTransaction("An error in this transaction was ignored, so it cannot be committed.")
            if left:
                self.unsent = left
                DeferredStatement(self, "COMMIT")
                self.send_pending_statements()
            else:
                self.connection.commit()

    def _savepoint_rollback(self, sid: str) -> None:
        self.unsent = []  # its savepoint was sent after all statements pending before it
        super()._savepoint_rollback(sid)  # type: ignore[misc]

    def _rollback(self) -> None:
        self.unsent = []
        super()._rollback()  # type: ignore[misc]

    def _close(self) -> None:
        self.unsent = []
        super()._close()  # type: ignore[misc]
