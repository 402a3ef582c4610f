"""Standing stops: read where something starts, and compared with the facts of what would start.

A transaction that starts a call reads them with `read_until_commit`: no stop can be set between the read and the
commit. Whatever starts without a transaction reads them with `standing_stops`, and starts at the moment of the read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection
from django.db.backends.utils import CursorWrapper

from approvals.models import Stop
from catalog.core.database import execute_pipelined, on_sqlite
from catalog.core.locks import SHARE_UNTIL_COMMIT, LockSpace
from catalog.errors import Stopped

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
    held: Mapping[str, Callable[[], bool]] = {
        Stop.Kind.EVERYTHING: lambda: True,
        Stop.Kind.TOOL: lambda: stop.key == facts.tool,
        Stop.Kind.CATEGORY: lambda: stop.key in facts.categories,
        Stop.Kind.SOURCE: lambda: stop.key == facts.source,
        Stop.Kind.TOKEN: lambda: int(stop.key) in facts.tokens,
        Stop.Kind.REQUESTER: lambda: int(stop.key) in facts.people,
        Stop.Kind.AGENT: lambda: stop.key == facts.find_agent(),
    }
    return held[stop.kind]()


def find_covering(stops: Sequence[StandingStop], facts: StopFacts) -> StandingStop | None:
    """Return the first of these stops that covers the facts, or None."""
    return next((stop for stop in stops if covers(stop, facts)), None)


def standing_stops() -> list[StandingStop]:
    """Return the stops that stand at this moment, the first set first."""
    with connection.cursor() as cursor:
        cursor.execute(READ, [0])
        return [StandingStop(*row) for row in cursor.fetchall()]


def require_not_stopped(facts: StopFacts) -> None:
    """Raise Stopped if a stop that stands at this moment covers the facts."""
    stop = find_covering(standing_stops(), facts)
    if stop is not None:
        raise Stopped(stop.reason)


def read_until_commit(cursor: CursorWrapper) -> Callable[[], list[StandingStop]]:
    """Return a function that returns the standing stops, to which none is added before this transaction ends.

    On PostgreSQL both statements go with the next one. The lock comes first: a statement that waits for a lock still
    sees the rows as of its beginning.
    """
    if on_sqlite():
        cursor.execute(READ, [0])
        rows = cursor.fetchall()
        return lambda: [StandingStop(*row) for row in rows]
    execute_pipelined(cursor, SHARE_UNTIL_COMMIT, [int(LockSpace.STOPS), ""])
    left = execute_pipelined(cursor, READ, [0])
    found: list[StandingStop] | None = None

    def result() -> list[StandingStop]:
        nonlocal found
        if found is None:
            found = [StandingStop(*row) for row in left.fetchall()]
        return found

    return result
