"""Transactions: retries after deadlocks, one transaction per item, conditional status changes, error classification.

A retried function must have no effect outside the database. Nothing is retried inside an outer transaction.
"""

import logging
import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.db import DatabaseError, Error, InterfaceError, OperationalError, connection, models

from catalog.core.database import on_sqlite
from catalog.core.tracing import log_extra
from catalog.errors import Conflict

log = logging.getLogger("toolgate.api")


def log_unexpected(error: BaseException) -> None:
    """Log an exception without its message, which may contain arguments. Failing databases and locks are warnings."""
    name, away = type(error).__name__, isinstance(error, Exception) and is_unavailable(error)
    where = "".join(traceback.format_tb(error.__traceback__))
    words, level = ("The database was away: %s", logging.WARNING) if away else ("Unexpected %s", logging.ERROR)
    log.log(level, words, name, extra=log_extra(stack=where))


ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")

MAX_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.01
RETRYABLE_STATES = frozenset({"40001", "40P01"})
"""SQLSTATEs of a serialization failure and of a deadlock."""
LOCK_TIMEOUT_STATES = frozenset({"55P03"})
"""SQLSTATE of a lock timeout: another process may have frozen while it held the lock."""
SQLITE_BUSY_STATES = frozenset({"SQLITE_BUSY"})
"""SQLite's error while another process writes to the file."""
UNAVAILABLE_STATES = frozenset({"25P03", "25006"})
"""SQLSTATEs of an ended idle transaction and of a server that became read-only; not OperationalError in Django."""
SHORT_LOCK_TIMEOUT = "500ms"


def retry_on_deadlock(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Decorate a function that is one transaction, to run it up to five times with growing random pauses.

    Raises OperationalError if the fifth attempt fails, and at once on a lock timeout.
    """
    return _retry_on(RETRYABLE_STATES, act)


def retry_on_lock(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Decorate like `retry_on_deadlock`, but wait for locks longer than a frozen process can hold them.

    Use it where a result must be stored. Raises OperationalError if the fifth attempt fails.
    """
    return _retry_on(RETRYABLE_STATES | LOCK_TIMEOUT_STATES | SQLITE_BUSY_STATES, act)


def _retry_on(states: frozenset[str], act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    @wraps(act)
    def try_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        for done in range(1, MAX_ATTEMPTS):
            try:
                return act(*args, **kwargs)
            except OperationalError as error:
                if connection.in_atomic_block or _sql_state(error) not in states:
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**done * random.uniform(0.5, 1.5))  # noqa: S311 (jitter, not a secret)
        return act(*args, **kwargs)

    return try_it


def is_lock_timeout(error: Exception) -> bool:
    """Return whether a row was locked for too long while the database itself is available."""
    return isinstance(error, DatabaseError) and _sql_state(error) in LOCK_TIMEOUT_STATES


def is_unavailable(error: Exception) -> bool:
    """Return whether the database was unreachable or too slow; the same statement may succeed later."""
    if isinstance(error, OperationalError):
        return getattr(error.__cause__, "sqlite_errorname", "") != "SQLITE_ERROR"  # such as a missing table
    return isinstance(error, InterfaceError) or (isinstance(error, Error) and _sql_state(error) in UNAVAILABLE_STATES)


def _sql_state(error: Exception) -> str:
    """Return PostgreSQL's SQLSTATE, or SQLite's name of the error; empty if there is neither."""
    return getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "sqlite_errorname", None) or ""


@contextmanager
def short_lock_timeout() -> Iterator[None]:
    """Limit lock waits of this thread's statements to half a second, for work that is repeated anyway."""
    if on_sqlite():
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [SHORT_LOCK_TIMEOUT])
    try:
        yield
    finally:
        # If this fails, the connection is lost, or the outer transaction's rollback resets the setting.
        with suppress(Error), connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


ItemT = TypeVar("ItemT")


def run_each(act: Callable[[ItemT], object], items: Iterable[ItemT]) -> int:
    """Call `act` for every item, each in its own transaction; return how often it returned a true value.

    A failing item is logged and left for the next run. So is an item whose row stays locked for half a second, because
    a frozen process may hold the lock. Raises OperationalError and InterfaceError if the database is unavailable.
    """
    due = list(items)
    if not due:
        return 0
    count = 0
    with short_lock_timeout():
        for item in due:
            try:
                count += bool(retry_on_deadlock(act)(item))
            except Exception as error:
                if is_unavailable(error) and not is_lock_timeout(error):
                    raise
                log_unexpected(error)
    return count


StatusMoves = dict[str, frozenset[str]]


def allowed_sources(moves: StatusMoves, to: str) -> list[str]:
    """Return the statuses from which a row may move to `to`, in the order of `moves`."""
    return [status for status, targets in moves.items() if to in targets]


def try_move(queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> int:
    """Set the status `to` on those rows of `queryset` that may move to it; return the number of moved rows."""
    allowed = allowed_sources(queryset.model.MOVES, to)
    return queryset.filter(status__in=allowed).update(status=to, **fields)


def move_row(row: "models.Model", queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> None:
    """Move `row`, the only row of `queryset`, and update its attributes. Raises Conflict like `move`."""
    move(queryset, to=to, **fields)
    for name, value in {"status": to, **fields}.items():
        setattr(row, name, value)


def move(queryset: "models.QuerySet[Any]", *, to: str, otherwise: str = "", **fields: Any) -> None:
    """Move exactly one row to `to`. Raises Conflict (message `otherwise`) if its status does not allow that."""
    if try_move(queryset, to=to, **fields) != 1:
        noun = queryset.model._meta.verbose_name
        raise Conflict(otherwise or f"This {noun} cannot become {to.replace('_', ' ')} now: its state has changed.")
