"""What differs between the two databases for statements written by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from django.db import connection
from django.db.backends.utils import CursorWrapper


@cache
def on_sqlite() -> bool:
    """Say whether this process works on SQLite; a process never changes its database."""
    return connection.vendor == "sqlite"


def stamp(moment: datetime) -> Any:
    """Return `moment` as the database's driver wants it bound."""
    return _stamp(moment) if on_sqlite() else moment


@lru_cache(maxsize=256)
def _stamp(moment: datetime) -> Any:
    """Adapt a moment once: one transaction binds the same one many times."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))


def leave(cursor: CursorWrapper, statement: str, parameters: Sequence[Any]) -> CursorWrapper:
    """Execute a statement whose result is not read at once; return the cursor that will have it.

    Where the database is another process it goes with the next statement, at the latest with COMMIT
    (`config.postgresql`), and raises there what it raises.
    """
    if on_sqlite():
        cursor.execute(statement, parameters)
        return cursor
    left: CursorWrapper = cursor.leave(statement, parameters)
    return left
