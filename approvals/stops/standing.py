"""Standing stops: read where something starts, and compared with the facts of what would start.

A transaction that starts a call shares the lock of stops (`SHARE_UNTIL_COMMIT`) before it reads them, so that none is
set between the read and the commit. The read is another statement than the lock: one that waits for a lock sees the
rows as of its beginning. Whatever starts without a transaction reads them with `standing_stops`, and starts at that
moment.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection
from django.db.backends.utils import CursorWrapper

from approvals.models import Stop
from catalog.core.database import execute_pipelined, on_sqlite

# PostgreSQL prepares only statements with parameters; the key is always above 0.
READ = (
    "SELECT id, public_id, kind, key, reason, cancel_running FROM approvals_stop "
    "WHERE lifted_at IS NULL AND id > %s ORDER BY id"
)


class StandingStop(NamedTuple):
    pk: int
    public_id: str
    kind: str
    key: str
    reason: str
    cancel_running: bool


@dataclass(frozen=True, slots=True)
class StopFacts:
    """Facts by which stops cover a call, or a step without a tool.

    `people` and `tokens` have the keys of all that the call is made for. `find_agent` returns the name of the agent
    that makes it, or an empty text; it is called only if an agent is stopped.
    """

    people: Collection[int]
    tokens: Collection[int] = ()
    tool: str = ""
    categories: Collection[str] = ()
    source: str = ""
    find_agent: Callable[[], str] = str


def covers(stop: StandingStop | Stop, facts: StopFacts) -> bool:
    match stop.kind:
        case Stop.Kind.EVERYTHING:
            return True
        case Stop.Kind.CATEGORY:
            return stop.key in facts.categories
        case Stop.Kind.TOKEN:
            return int(stop.key) in facts.tokens
        case Stop.Kind.REQUESTER:
            return int(stop.key) in facts.people
        case Stop.Kind.TOOL:
            name = facts.tool
        case Stop.Kind.SOURCE:
            name = facts.source
        case Stop.Kind.AGENT:
            name = facts.find_agent()
        case _:
            raise ValueError(stop.kind)
    return stop.key == name


def find_covering(stops: Sequence[StandingStop], facts: StopFacts) -> StandingStop | None:
    """Return the first of these stops that covers the facts, or None."""
    return next((stop for stop in stops if covers(stop, facts)), None)


def standing_stops() -> list[StandingStop]:
    """Return the stops that stand at this moment, the first set first."""
    with connection.cursor() as cursor:
        cursor.execute(READ, [0])
        return _fetched(cursor)


def read_stops(cursor: CursorWrapper) -> Callable[[], list[StandingStop]]:
    """Return a function that returns the standing stops; the open transaction has the lock of stops.

    On PostgreSQL they are read with the next statement.
    """
    left = execute_pipelined(cursor, READ, [0])
    found = _fetched(left) if on_sqlite() else None

    def result() -> list[StandingStop]:
        nonlocal found
        if found is None:
            found = _fetched(left)
        return found

    return result


def _fetched(cursor: CursorWrapper) -> list[StandingStop]:
    return [StandingStop(*row) for row in cursor.fetchall()]
