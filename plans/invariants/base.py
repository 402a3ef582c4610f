"""What an invariant is: an id, a sentence, and a check that yields what breaks it. Checks only read.

A check reads rows as a stream and never keeps a table in memory. What it yields are ids, never arguments or results.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection

from plans.store.database import stamp

CHUNK, AT_ONCE = 5000, 500
"""How many bare rows, and how many objects with what belongs to them, are in memory at a time."""


class Finding(NamedTuple):
    """One thing that breaks an invariant: its id, and a fixed sentence that says how."""

    id: str
    why: str


class CannotCheck(Exception):
    """Nothing can be checked: a file that cannot be read, or a database that is not there. The text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is checked: the moment that counts as now, how long things may take, and what was given from outside."""

    now: datetime
    lease_seconds: float
    grace_seconds: float = 60.0
    effects: Path | None = None
    history: Path | None = None
    captures: Sequence[Path] = ()
    canaries: Sequence[str] = field(default=(), repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)

    @property
    def overdue(self) -> Any:
        """The moment before which what was due should have happened, as the database's driver wants it bound."""
        return stamp(self.now - timedelta(seconds=self.grace_seconds))


Check = Callable[[World], Iterator[Finding]]
Needs = Callable[[World], str]


def nothing(world: World) -> str:
    """Say that a check needs the database alone."""
    return ""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise over the whole database; `needs` says what is missing to check it, or nothing."""

    id: str
    sentence: str
    check: Check
    needs: Needs = nothing


_known: dict[str, Invariant] = {}


def invariant(number: int, sentence: str, *, needs: Needs = nothing) -> Callable[[Check], Check]:
    """Register the check below as the invariant of this number."""

    def register(check: Check) -> Check:
        _known[f"I{number}"] = Invariant(f"I{number}", sentence, check, needs)
        return check

    return register


def known_invariants() -> list[Invariant]:
    """Return all that are registered, by their numbers."""
    return sorted(_known.values(), key=lambda each: int(each.id[1:]))


def rows(sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one SELECT as the database has them, a chunk at a time."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql, parameters)
        while chunk := cursor.fetchmany(CHUNK):
            yield from chunk


def each(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT whose first column is an id."""
    for row in rows(sql, *parameters):
        yield Finding(str(row[0]), why)


def steps(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT of a plan's id and a step's number."""
    for row in rows(sql, *parameters):
        yield Finding(f"{row[0]}/{row[1]}", why)


class Shelf:
    """Rows in the order of their first column, a plan's key; they are taken plan by plan, in the same order."""

    def __init__(self, ordered: Iterator[tuple[Any, ...]]) -> None:
        self._rows = ordered
        self._next = next(ordered, None)

    def take(self, plan_pk: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of this plan; those of plans before it are passed over."""
        while self._next is not None and self._next[0] <= plan_pk:
            row, self._next = self._next, next(self._rows, None)
            if row[0] == plan_pk:
                yield row
