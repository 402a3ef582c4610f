"""Transactions: run again after a deadlock, one for each of many items, and conditional moves of a status.

What is run again must have no effect outside the database; inside an outer transaction nothing is, for that one is
lost too. A status moves outside the hot path only by a conditional UPDATE that wins or raises Conflict. Here is also
what is known of a database that is away, and how an unexpected exception is logged.
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

from catalog.core.tracing import told
from catalog.errors import Conflict

log = logging.getLogger("toolgate.api")


def log_unexpected(error: BaseException) -> None:
    """Log where an exception came from. Its message is left out: it may hold arguments.

    A database that is away, or a row of it that is locked, is expected: that is a warning.
    """
    name, away = type(error).__name__, isinstance(error, Exception) and is_away(error)
    where = "".join(traceback.format_tb(error.__traceback__))
    words, level = ("The database was away: %s", logging.WARNING) if away else ("Unexpected %s", logging.ERROR)
    log.log(level, words, name, extra=told(stack=where))


ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")

TRIES = 5
FIRST_PAUSE_SECONDS = 0.01
ASKS_FOR_ANOTHER = frozenset({"40001", "40P01"})
"""SQLSTATEs: a serialization failure, a deadlock."""
LOCKED = frozenset({"55P03"})
"""A lock that was not to be had in time: someone may have frozen with it."""
BUSY = frozenset({"SQLITE_BUSY"})
"""SQLite's only lock: another program writes to the file."""
AWAY = frozenset({"25P03", "25006"})
"""What is no OperationalError and yet no fault of the statement: the server ended a transaction that said nothing for
long, or takes no writes since another took over."""
BRIEF = "500ms"


def retried(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Let a function that is one transaction run again, five times at most, after pauses that grow and differ.

    Raises OperationalError when the fifth failed too, and at once for a lock that was not to be had: whoever asked
    learns that soon, and may ask again.
    """
    return _again_after(ASKS_FOR_ANOTHER, act)


def retried_patiently(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Be `retried`, and wait for a lock longer than a frozen process can hold it: something was done that must be kept.

    Raises OperationalError when the fifth failed too.
    """
    return _again_after(ASKS_FOR_ANOTHER | LOCKED | BUSY, act)


def _again_after(states: frozenset[str], act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    @wraps(act)
    def try_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        for done in range(1, TRIES):
            try:
                return act(*args, **kwargs)
            except OperationalError as error:
                if connection.in_atomic_block or _state(error) not in states:
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**done * random.uniform(0.5, 1.5))  # noqa: S311 (jitter, not a secret)
        return act(*args, **kwargs)

    return try_it


def is_locked(error: Exception) -> bool:
    """Say whether a row was someone else's for too long, while the database itself is well."""
    return isinstance(error, DatabaseError) and _state(error) in LOCKED


def is_away(error: Exception) -> bool:
    """Say whether the database could not be asked, or not in time; the same may well succeed in a moment."""
    if isinstance(error, OperationalError):
        return getattr(error.__cause__, "sqlite_errorname", "") != "SQLITE_ERROR"  # no such table: a fault of ours
    return isinstance(error, InterfaceError) or (isinstance(error, Error) and _state(error) in AWAY)


def _state(error: Exception) -> str:
    """Return PostgreSQL's SQLSTATE, or SQLite's name of the error; empty when there is neither."""
    return getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "sqlite_errorname", None) or ""


@contextmanager
def waiting_briefly() -> Iterator[None]:
    """Let this thread's statements wait for locks half a second at most: for those that come again by themselves."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [BRIEF])
    try:
        yield
    finally:
        # One that fails has no connection left, or an outer transaction that takes it back.
        with suppress(Error), connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


ItemT = TypeVar("ItemT")


def do_each(act: Callable[[ItemT], object], items: Iterable[ItemT]) -> int:
    """Do `act` to every item, in a transaction of its own; return how often it said yes.

    One that fails is logged and left for the next time, and so is one whose lock is someone else's for half a second:
    a process may have frozen with it. Raises OperationalError and InterfaceError: a database that is gone is gone for
    all.
    """
    due = list(items)
    if not due:
        return 0
    with waiting_briefly():
        return sum(_is_done(act, item) for item in due)


def _is_done(act: Callable[[ItemT], object], item: ItemT) -> bool:
    try:
        return bool(retried(act)(item))
    except Exception as error:
        if is_away(error) and not is_locked(error):
            raise
        log_unexpected(error)
        return False


Moves = dict[str, frozenset[str]]


def sources(moves: Moves, to: str) -> list[str]:
    """Return the statuses from which `to` may be reached, in the table's order."""
    return [status for status, targets in moves.items() if to in targets]


def try_move(queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> int:
    """Move the rows of `queryset` that may move to `to`; return how many did."""
    allowed = sources(queryset.model.MOVES, to)
    return queryset.filter(status__in=allowed).update(status=to, **fields)


def move_row(row: "models.Model", queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> None:
    """Move the one row of `queryset`, which is `row`, and let `row` say so. Raises what `move` raises."""
    move(queryset, to=to, **fields)
    for name, value in {"status": to, **fields}.items():
        setattr(row, name, value)


def move(queryset: "models.QuerySet[Any]", *, to: str, otherwise: str = "", **fields: Any) -> None:
    """Move exactly one row to `to`. Raises Conflict, in the words of `otherwise`, when its status does not allow it."""
    if try_move(queryset, to=to, **fields) != 1:
        noun = queryset.model._meta.verbose_name
        raise Conflict(otherwise or f"This {noun} cannot become {to.replace('_', ' ')} now: its state has changed.")
