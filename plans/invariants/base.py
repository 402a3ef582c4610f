"""Registration of invariants and their check on one read-only snapshot of the database.

An invariant has an id, a sentence and a check that yields violations. Checks stream rows and never keep a table in
memory. Findings contain ids, never arguments or results; they are counted, and their number is limited.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.db import OperationalError, connection

from catalog.core import database
from catalog.core.database import bind_datetime

CHUNK, AT_ONCE = 5000, 500
"""Limits of plain rows, and of objects with related rows, in memory at a time."""


class Finding(NamedTuple):
    """One violation of an invariant: the id of the object, and a fixed sentence with the reason."""

    id: str
    why: str


class CannotCheck(Exception):
    """The check is impossible: an unreadable file or a missing database. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInput:
    """Input of a check: the current time, allowed delays, and external evidence."""

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
        """The time before which due events count as overdue, as a parameter for the database's driver."""
        return bind_datetime(self.now - timedelta(seconds=self.grace_seconds))


Check = Callable[[CheckInput], Iterator[Finding]]
Needs = Callable[[CheckInput], str]


def needs_nothing(check: CheckInput) -> str:
    """Return an empty string: the check needs only the database."""
    return ""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One invariant; `needs` returns what is missing to check it, or an empty string."""

    id: str
    sentence: str
    check: Check
    needs: Needs = needs_nothing


_invariants: dict[str, Invariant] = {}


def invariant(number: int, sentence: str, *, needs: Needs = needs_nothing) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        _invariants[f"I{number}"] = Invariant(f"I{number}", sentence, check, needs)
        return check

    return register


def known_invariants() -> list[Invariant]:
    return sorted(_invariants.values(), key=lambda each: int(each.id[1:]))


def rows(sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a SELECT, fetched in chunks."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql, parameters)
        while chunk := cursor.fetchmany(CHUNK):
            yield from chunk


def findings(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT whose first column is an id."""
    for row in rows(sql, *parameters):
        yield Finding(str(row[0]), why)


def step_findings(why: str, sql: str, *parameters: Any) -> Iterator[Finding]:
    """Yield a finding for each row of a SELECT whose columns are a plan's id and a step's number."""
    for row in rows(sql, *parameters):
        yield Finding(f"{row[0]}/{row[1]}", why)


class RowsByPlan:
    """Rows ordered by their first column, a plan's key, to be taken plan by plan in the same order."""

    def __init__(self, ordered: Iterator[tuple[Any, ...]]) -> None:
        self._rows = ordered
        self._next = next(ordered, None)

    def take(self, plan_pk: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of this plan; rows of earlier plans are skipped."""
        while self._next is not None and self._next[0] <= plan_pk:
            row, self._next = self._next, next(self._rows, None)
            if row[0] == plan_pk:
                yield row


@contextmanager
def long_read_snapshot() -> Iterator[None]:
    """Read a consistent snapshot in the body, without a time limit; writing fails."""
    is_first = not connection.in_atomic_block
    with database.read_snapshot():
        if is_first and not database.on_sqlite():
            with connection.cursor() as cursor:
                # A check reads whole results: optimise for the total time, not for the first row.
                cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
                # It locks no row, so it may be idle between two statements.
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


MOST_IDS = 100
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OperationalError)
"""Errors at rows that hold what the product never writes: SQLite stores any value in any column."""
Watcher = Callable[[Invariant], None]


@dataclass(slots=True)
class Result:
    """The result of one invariant: its findings, or the input that is `missing` to check it."""

    invariant: Invariant
    missing: str = ""
    count: int = 0
    ids: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def is_checked(self) -> bool:
        return not self.missing

    @property
    def holds(self) -> bool:
        return not self.count

    def add(self, finding: Finding) -> None:
        """Count one finding; only the first MOST_IDS ids are kept."""
        self.count += 1
        self.reasons[finding.why] += 1
        if len(self.ids) < MOST_IDS and finding.id not in self.ids:
            self.ids.append(finding.id)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all invariants, ordered by number."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True if every checked invariant holds."""
        return all(each.holds for each in self.results)

    def violations(self) -> list[Result]:
        return [each for each in self.results if not each.holds]

    def as_dict(self) -> dict[str, Any]:
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


def check_invariants(check: CheckInput, *, watcher: Watcher = lambda invariant: None) -> Report:
    """Check all invariants that can be checked; calls `watcher` before each. Raises CannotCheck for invalid input."""
    with long_read_snapshot():
        results = [Result(invariant, invariant.needs(check)) for invariant in known_invariants()]
        for result in (each for each in results if each.is_checked):
            watcher(result.invariant)
            try:
                for finding in result.invariant.check(check):
                    result.add(finding)
            except MALFORMED as error:
                if isinstance(error, OperationalError) and "UTF-8" not in str(error):
                    raise  # the database itself cannot be read
                result.add(Finding("database", f"A row that it reads is malformed ({type(error).__name__})."))
        return Report(tuple(results))
