"""Hours of the week in which a rule applies: Mon-Fri 09:00-17:00, in UTC unless a time zone follows."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS_FORMAT = "Write days and hours, such as Mon-Fri 09:00-17:00, and perhaps a time zone, such as Europe/Berlin."
_TEXT = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}(?:-[A-Za-z]{3})?(?:,[A-Za-z]{3}(?:-[A-Za-z]{3})?)*) )?"
    r"(?P<start>[0-2][0-9]:[0-5][0-9])-(?P<end>[0-2][0-9]:[0-5][0-9])(?: (?P<zone>[A-Za-z0-9_+/-]{1,40}))?"
)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Hours:
    """On which days (0 is Monday), from which minute to before which; a span over midnight is its first day's."""

    days: frozenset[int]
    start: int
    end: int
    zone: tzinfo

    def cover(self, at: datetime) -> bool:
        """Say whether a moment lies within them."""
        local = at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return local.weekday() in self.days and self.start <= minute < self.end
        is_late, is_early = minute >= self.start, minute < self.end
        return (is_late and local.weekday() in self.days) or (is_early and (local - _DAY).weekday() in self.days)


@lru_cache(maxsize=1024)
def read_hours(text: str) -> Hours:
    """Return the hours that a text says. Raises ValueError with what to write instead."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(HOURS_FORMAT)
    start, end = _minutes(found["start"]), _minutes(found["end"])
    if start == end:
        raise ValueError("The hours end when they begin; leave them empty for always.")
    return Hours(_days(found["days"]), start, end, _zone(found["zone"] or "UTC"))


def _minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if hours * 60 + minutes > 24 * 60:
        raise ValueError(f"There is no {text}; the day ends at 24:00.")
    return hours * 60 + minutes


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = _day(first), _day(last or first)
        days.update((start + step) % 7 for step in range((end - start) % 7 + 1))
    return frozenset(days)


def _day(text: str) -> int:
    try:
        return DAYS.index(text.capitalize())
    except ValueError:
        raise ValueError(f"There is no day {text}; the days are {', '.join(DAYS)}.") from None


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"There is no time zone {name}; write one such as Europe/Berlin, or UTC.") from None
