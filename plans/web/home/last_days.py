"""Picture of the last days: calls by safety level, and the time to decision, as numbers for SVG attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from approvals.queue.insights import seconds_to_decision
from catalog.calls.statistics import DailyLevels, calls_by_level, usage_window_start
from catalog.core.clock import current_minute

WIDTH, HEIGHT, FLOOR = 420, 84, 2
"""Size of each of the two charts in SVG units, and the height that is kept free above the highest bar."""
MARGIN = 0.14
"""Fraction of a day's width that is kept free on both sides of its bar."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a bar; `look` names what it counts."""

    look: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class DayColumn:
    """One day: its numbers, and the bars that show them. `seconds` is None on a day without decisions."""

    day: date
    levels: DailyLevels
    seconds: float | None
    x: float
    width: float
    segments: Sequence[Segment]
    decision_top: float
    decision_height: float


@dataclass(frozen=True, slots=True)
class LastDays:
    columns: Sequence[DayColumn]
    most_calls: int
    longest: float

    @property
    def calls(self) -> int:
        return sum(column.levels.calls for column in self.columns)

    @property
    def is_empty(self) -> bool:
        return not self.calls and not self.longest


def last_days() -> LastDays:
    """Return the picture of all calls and decisions, at most a minute old; only people with a role may see it.

    A picture without calls or without decisions is not kept, so that the first of them shows at once.
    """
    days = _last_days(current_minute())
    if not days.calls:
        forget()
    elif not days.longest:
        _last_days.cache_clear()
    return days


def forget() -> None:
    """Count the calls and decisions again for the next picture."""
    _last_days.cache_clear()
    _calls_by_level.cache_clear()


@lru_cache(maxsize=1)
def _calls_by_level(_minute: int) -> Sequence[DailyLevels]:
    return calls_by_level()


@lru_cache(maxsize=1)
def _last_days(minute: int) -> LastDays:
    days, seconds = _calls_by_level(minute), seconds_to_decision(usage_window_start())
    most, longest = max(day.calls for day in days), max(seconds.values(), default=0.0)
    pitch = WIDTH / len(days)
    columns = []
    for index, day in enumerate(days):
        span = seconds.get(day.day)
        # A decision within a second still has a bar that can be seen.
        height = max(FLOOR, span / longest * (HEIGHT - FLOOR)) if span is not None and longest else 0.0
        columns.append(
            DayColumn(
                day=day.day,
                levels=day,
                seconds=span,
                x=round((index + MARGIN) * pitch, 1),
                width=round(pitch * (1 - 2 * MARGIN), 1),
                segments=_segments(day, most),
                decision_top=round(HEIGHT - height, 1),
                decision_height=round(height, 1),
            )
        )
    return LastDays(columns, most, longest)


def _segments(levels: DailyLevels, most: int) -> list[Segment]:
    """Stack the levels of one day, the most dangerous at the top."""
    unit, below, found = (HEIGHT - FLOOR) / max(1, most), 0, []
    for look, count in (("safe", levels.safe), ("cautious", levels.cautious), ("dangerous", levels.dangerous)):
        below += count
        if count:
            found.append(Segment(look, round(HEIGHT - below * unit, 1), round(count * unit, 1)))
    return found
