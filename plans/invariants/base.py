"""What an invariant is, and the check of them all over one read-only view of the database.

An invariant has an id, a sentence, and a check that yields what breaks it. A check reads rows as a stream and never
keeps a table in memory. What it yields are ids, never arguments or results; they are counted and cut.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection

from plans.store import database
from plans.store.database import bind_datetime

CHUNK, AT_ONCE = 5000, 500
"""How many bare rows, and how many objects with what belongs to them, are in memory at a time."""


class Finding(NamedTuple):
    """One thing that breaks an invariant: its id, and a fixed sentence that says how."""

    id: str
    why: str


class CannotCheck(Exception):
    """Nothing can be checked: a file that cannot be read, or a database that is not there. The text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInput:
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
        return bind_datetime(self.now - timedelta(seconds=self.grace_seconds))


Check = Callable[[CheckInput], Iterator[Finding]]
Needs = Callable[[CheckInput], str]


def needs_nothing(world: CheckInput) -> str:
    """Say that a check needs the database alone."""
    return ""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise over the whole database; `needs` says what is missing to check it, or nothing."""

    id: str
    sentence: str
    check: Check
    needs: Needs = needs_nothing


_invariants: dict[str, Invariant] = {}


def invariant(number: int, sentence: str, *, needs: Needs = needs_nothing) -> Callable[[Check], Check]:
    """Register the check below as the invariant of this number."""

    def register(check: Check) -> Check:
        _invariants[f"I{number}"] = Invariant(f"I{number}", sentence, check, needs)
        return check

    return register


def known_invariants() -> list[Invariant]:
    """Return all that are registered, by their numbers."""
    return sorted(_invariants.values(), key=lambda each: int(each.id[1:]))


def rows(sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one SELECT as the database has them, a chunk at a time."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql, parameters)
        while chunk := cursor.fetchmany(CHUNK):
            yield from chunk


def findings(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT whose first column is an id."""
    for row in rows(sql, *parameters):
        yield Finding(str(row[0]), why)


def step_findings(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT of a plan's id and a step's number."""
    for row in rows(sql, *parameters):
        yield Finding(f"{row[0]}/{row[1]}", why)


class RowsByPlan:
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


@contextmanager
def long_read_snapshot() -> Iterator[None]:
    """Let everything read in the body be of one moment, however long it takes; writing fails."""
    is_first = not connection.in_atomic_block
    with database.read_snapshot():
        if is_first and not database.on_sqlite():
            with connection.cursor() as cursor:
                # A check reads all of a result: the plan that yields a first row soonest is the wrong one.
                cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
                # It locks no row, so it may think for as long as it has to between two statements.
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


MOST_IDS = 100
Watcher = Callable[[Invariant], None]


@dataclass(slots=True)
class Result:
    """What became of one invariant: not checked for want of `missing`, or how many findings there were, and which."""

    invariant: Invariant
    missing: str = ""
    count: int = 0
    ids: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def is_checked(self) -> bool:
        """Whether there was all that the check needs."""
        return not self.missing

    @property
    def holds(self) -> bool:
        """Whether nothing was found that breaks it."""
        return not self.count

    def add(self, finding: Finding) -> None:
        """Count one finding; its id is kept while there are few."""
        self.count += 1
        self.reasons[finding.why] += 1
        if len(self.ids) < MOST_IDS and finding.id not in self.ids:
            self.ids.append(finding.id)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all invariants, by their numbers."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that could be checked holds."""
        return all(each.holds for each in self.results)

    def violations(self) -> list[Result]:
        """Return the results of what does not hold."""
        return [each for each in self.results if not each.holds]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "checked": [each.invariant.id for each in self.results if each.is_checked],
            "not_checked": [each.invariant.id for each in self.results if not each.is_checked],
            "violations": [
                {
                    "invariant": each.invariant.id,
                    "ids": each.ids,
                    "count": each.count,
                    "reasons": dict(each.reasons.most_common()),
                }
                for each in self.violations()
            ],
        }


def check_invariants(world: CheckInput, *, watcher: Watcher = lambda invariant: None) -> Report:
    """Check all that can be; `watcher` is told what is checked next. Raises CannotCheck for what was given wrong."""
    with long_read_snapshot():
        return Report(tuple(_results(world, watcher)))


def _results(world: CheckInput, watcher: Watcher) -> Iterator[Result]:
    for invariant in known_invariants():
        result = Result(invariant, invariant.needs(world))
        if result.is_checked:
            watcher(invariant)
            for finding in invariant.check(world):
                result.add(finding)
        yield result
