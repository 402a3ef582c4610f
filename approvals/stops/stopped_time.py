"""The time that stops stood: deadlines of what they held up are later by it, at most by MAX_SECONDS.

It is computed from the stops themselves, so that it may be counted late and more than once. A deadline that is reached
under a stop is moved by all of MAX_SECONDS at once, and to its right place after the stop was lifted.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from approvals.models import Stop
from approvals.stops.standing import StandingStop, StopFacts, covers, find_covering, standing_stops
from catalog.models import Call

MAX_SECONDS = 86_400.0
LEAST_CHANGE = 0.001
"""Seconds below which a difference comes from rounding."""
_finders: list[Callable[[Call], StopFacts]] = []


def register_call_facts(find: Callable[[Call], StopFacts]) -> None:
    """Register the function that returns the facts of a stored call, replacing an earlier one."""
    _finders[:] = [find]


def facts_of(call: Call) -> StopFacts:
    return _finders[0](call)


def find_stop_of(call: Call) -> StandingStop | None:
    """Return the first stop that covers a stored call at this moment, or None."""
    stops = standing_stops()
    return find_covering(stops, facts_of(call)) if stops else None


@dataclass(frozen=True, slots=True)
class StoppableDeadline:
    """A deadline that began at `began` and was moved by `moved_seconds` for stops so far."""

    at: datetime
    began: datetime
    moved_seconds: float

    def counted(self, find_facts: Callable[[], Collection[StopFacts]], now: datetime) -> "StoppableDeadline":
        """Return the deadline as it is now; `find_facts` returns the facts of all that it is for."""
        seconds, stands = _stopped_seconds(find_facts, self.began, now)
        if stands and seconds < MAX_SECONDS:
            if self.at > now:
                return self
            seconds = MAX_SECONDS
        if abs(seconds - self.moved_seconds) < LEAST_CHANGE:
            return self
        return StoppableDeadline(self.at + timedelta(seconds=seconds - self.moved_seconds), self.began, seconds)


def _stopped_seconds(
    find_facts: Callable[[], Collection[StopFacts]], since: datetime, until: datetime
) -> tuple[float, bool]:
    """Return for how many seconds stops that cover any of the facts stood, and whether one stands."""
    rows = list(Stop.objects.filter(Q(lifted_at=None) | Q(lifted_at__gt=since), since__lt=until).order_by("since"))
    if not rows:
        return 0.0, False
    facts = find_facts()
    total, counted_to, stands = timedelta(0), since, False
    for stop in rows:
        if any(covers(stop, each) for each in facts):
            end = min(stop.lifted_at or until, until)
            total += max(timedelta(0), end - max(stop.since, counted_to))
            counted_to = max(counted_to, end)
            stands = stands or stop.lifted_at is None
    return min(total.total_seconds(), MAX_SECONDS), stands
