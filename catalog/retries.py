"""Doing a whole transaction again when the database asks for that: a deadlock, or a serialization that failed.

What is done again must have no effect outside the database; inside an outer transaction nothing is, for that one is
lost too.
"""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection

ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")

TRIES = 5
FIRST_PAUSE_SECONDS = 0.01
ASKS_FOR_ANOTHER = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATEs: a serialization failure, a deadlock, a lock that was not to be had in time."""


def retried(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Let a function that is one transaction run again, five times at most, after pauses that grow and differ.

    Raises OperationalError when the fifth failed too.
    """

    @wraps(act)
    def try_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        for done in range(1, TRIES):
            try:
                return act(*args, **kwargs)
            except OperationalError as error:
                if connection.in_atomic_block or not asks_for_another(error):
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**done * random.uniform(0.5, 1.5))  # noqa: S311 (jitter, not a secret)
        return act(*args, **kwargs)

    return try_it


def asks_for_another(error: OperationalError) -> bool:
    """Say whether the same transaction may well succeed when it is done again."""
    return getattr(error.__cause__, "sqlstate", None) in ASKS_FOR_ANOTHER
