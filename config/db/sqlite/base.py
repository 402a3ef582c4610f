"""Database backend for SQLite with a fair write lock and less overhead per statement than Django's.

Converted statements are cached: replacing Django's `%s` by SQLite's `?` costs 3 µs. Django's checks for every statement
and fetch cost another microsecond, so they run only while statements are watched. Writers take turns, because SQLite
lets waiting writers sleep for growing intervals, and a thread that tried rarely never got the lock.
Risk at a new Django release: whatever its CursorWrapper does for a statement must be done here too.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.backends.utils import CursorWrapper as DjangoCursorWrapper

CACHED_STATEMENTS = 1024
WRITE_STATEMENTS = ("UPDATE", "INSERT", "DELETE", "REPLACE")

_write_lock = threading.Lock()
"""Held by the writing thread of this process; there is one database file."""


class QmarkCursor(base.SQLiteCursorWrapper):
    """A cursor with cached conversion of statements."""

    def convert_query(self, query: str, *, param_names: Iterable[str] | None = None) -> str:
        if param_names is not None:
            return str(super().convert_query(query, param_names=param_names))
        return _convert_placeholders(query)


@lru_cache(maxsize=CACHED_STATEMENTS)
def _convert_placeholders(query: str) -> str:
    return base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%")


class CursorWrapper(DjangoCursorWrapper):
    """Django's cursor without checks, which only statement wrappers and the start-up of Django need."""

    @property
    def rowcount(self) -> int:
        return int(self.cursor.rowcount)

    def execute(self, sql: Any, params: Any = None) -> Any:
        if self.db.execute_wrappers or params is None or isinstance(params, Mapping):
            return super().execute(sql, params)
        self.db.validate_no_broken_transaction()
        if not self.db.in_atomic_block and sql.startswith(WRITE_STATEMENTS):
            with self.db.turn():
                return self._execute_converted(sql, params)
        return self._execute_converted(sql, params)

    def _execute_converted(self, sql: str, params: Any) -> Any:
        try:
            return sqlite3.Cursor.execute(self.cursor, _convert_placeholders(sql), params)
        except sqlite3.Error:
            with self.db.wrap_database_errors:
                raise

    def fetchone(self) -> Any:
        try:
            return self.cursor.fetchone()
        except sqlite3.Error:
            with self.db.wrap_database_errors:
                raise

    def fetchall(self) -> Any:
        try:
            return self.cursor.fetchall()
        except sqlite3.Error:
            with self.db.wrap_database_errors:
                raise


class DatabaseWrapper(base.DatabaseWrapper):
    """SQLite with these cursors, and a fair lock for writing threads."""

    _holds_write_lock = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the write lock in the body, outside a transaction."""
        self._take_turn()
        try:
            yield
        finally:
            self._release_write_lock()

    def _take_turn(self) -> None:
        """Acquire the write lock, waiting as long as SQLite would; after that, leave the decision to SQLite."""
        if not self._holds_write_lock:
            self._holds_write_lock = _write_lock.acquire(timeout=self.settings_dict["OPTIONS"].get("timeout", 5.0))

    def _release_write_lock(self) -> None:
        if self._holds_write_lock:
            self._holds_write_lock = False
            _write_lock.release()

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=QmarkCursor)

    def make_cursor(self, cursor: Any) -> Any:
        return CursorWrapper(cursor, self)

    def _start_transaction_under_autocommit(self) -> None:
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc] # the stubs leave such methods out
        except BaseException:
            self._release_write_lock()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]
        self._release_write_lock()  # a failed commit is followed by a rollback

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
        finally:
            self._release_write_lock()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self._release_write_lock()
