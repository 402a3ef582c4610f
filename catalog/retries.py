"""Doing a whole transaction again when the database asks for that: a deadlock, or a serialization that failed.

What is done again must have no effect outside the database; inside an outer transaction nothing is, for that one is
lost too. Here is also what is known of a database that could not be asked at all.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import DatabaseError, Error, InterfaceError, OperationalError, connection

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
