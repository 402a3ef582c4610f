"""The time that stops stood: deadlines of what they held up are later by it, at most by MAX_SECONDS.

It is computed from the stops themselves, so that it may be counted late and more than once. A deadline that is reached
under a stop is moved by all of MAX_SECONDS at once, and to its right place after the stop was lifted. Other time that
was given is not taken back, although what the stop held up may have changed since.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from approvals.models import Stop
from approvals.stops.standing import StandingStop, StopFacts, covers, find_covering, standing_stops
from catalog.core.transactions import run_each
from catalog.models import Call

RowT = TypeVar("RowT", bound=Model)

MAX_SECONDS = 86_400.0
LEAST_CHANGE = 0.001
"""Seconds below which a difference comes from rounding."""
FindCallFacts = Callable[[Collection[Call]], Mapping[int, StopFacts]]
_finders: list[FindCallFacts] = []


def register_call_facts(find: FindCallFacts) -> None:
    """Register the function that returns the facts of stored calls by their keys, replacing an earlier one."""
    _finders[:] = [find]


def facts_of_calls(calls: Collection[Call]) -> Mapping[int, StopFacts]:
    """Return the facts of stored calls by their keys, with the same number of queries for any number of calls."""
    return _finders[0](calls)


def find_stop_of(call: Call) -> StandingStop | None:
    """Return the first stop that covers a stored call at this moment, or None."""
    stops = standing_stops()
    return find_covering(stops, facts_of_calls([call])[call.pk]) if stops else None


def stops_since(moment: datetime) -> list[Stop]:
    """Return the stops that stood at any time after a moment, the first set first."""
    return list(Stop.objects.filter(Q(lifted_at=None) | Q(lifted_at__gt=moment)).order_by("since"))


@dataclass(frozen=True, slots=True)
class StoppableWork:
    """Facts of a call or step; a stop holds it up until `ended_at`, which is None if it has not ended."""

    facts: StopFacts
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoppableDeadline:
    """A deadline that began at `began` and was moved by `moved_seconds` for stops so far."""

    at: datetime
    began: datetime
    moved_seconds: float

    def counted(self, find_work: Callable[[datetime], Collection[StoppableWork]], now: datetime) -> "StoppableDeadline":
        """Return the deadline as it is now; `find_work` returns the work for it that had not ended at a moment."""
        stops = stops_since(self.began)
        return self.counted_for(find_work(stops[0].since), stops, now) if stops else self.counted_for((), (), now)

    def counted_for(self, work: Collection[StoppableWork], stops: Sequence[Stop], now: datetime) -> "StoppableDeadline":
        """Return the deadline as it is now for work that may have ended, and all stops that stood after it began."""
        seconds, stands = _stopped_seconds(work, stops, self.began, now)
        if stands and seconds < MAX_SECONDS:
            if self.at > now:
                return self
            seconds = MAX_SECONDS
        elif self.moved_seconds < MAX_SECONDS:
            seconds = max(seconds, self.moved_seconds)
        if abs(seconds - self.moved_seconds) < LEAST_CHANGE:
            return self
        return StoppableDeadline(self.at + timedelta(seconds=seconds - self.moved_seconds), self.began, seconds)


def _stopped_seconds(
    work: Collection[StoppableWork], stops: Sequence[Stop], since: datetime, until: datetime
) -> tuple[float, bool]:
    """Return for how many seconds stops that cover any of the work held it up, and whether one still does."""
    total, counted_to, stands = timedelta(0), since, False
    for stop in (each for each in stops if each.since < until):
        lifted_at = min(stop.lifted_at or until, until)
        ends = [min(each.ended_at or lifted_at, lifted_at) for each in work if covers(stop, each.facts)]
        end = max(ends, default=counted_to)
        total += max(timedelta(0), end - max(stop.since, counted_to))
        counted_to = max(counted_to, end)
        stands = stands or (bool(ends) and stop.lifted_at is None and end == until)
    return min(total.total_seconds(), MAX_SECONDS), stands


def move_deadlines(
    rows: QuerySet[RowT],
    at_once: int,
    limit: int,
    find_due: Callable[[list[RowT]], list[RowT]],
    move: Callable[[RowT], bool],
) -> tuple[int, bool]:
    """Move the deadlines of about `limit` of these rows; return their number, and whether none is left.

    The rows are compared `at_once` with the stops by `find_due`, so that only those that it returns are locked.
    """
    moved, after, is_complete = 0, 0, True
    while found := list(rows.filter(pk__gt=after).order_by("pk")[:at_once]):
        if moved >= limit:
            return moved, False
        due = find_due(found)
        counted = run_each(move, due)
        moved, after, is_complete = moved + counted, found[-1].pk, is_complete and counted == len(due)
    return moved, is_complete
