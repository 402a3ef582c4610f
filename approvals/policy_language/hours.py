"""Weekly hours in which a rule applies, such as Mon-Fri 09:00-17:00, in UTC unless a time zone follows."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS_FORMAT = "Enter days and hours, such as Mon-Fri 09:00-17:00, optionally with a time zone such as Europe/Berlin."
_TEXT = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}(?:-[A-Za-z]{3})?(?:,[A-Za-z]{3}(?:-[A-Za-z]{3})?)*) )?"
    r"(?P<start>[0-2][0-9]:[0-5][0-9])-(?P<end>[0-2][0-9]:[0-5][0-9])(?: (?P<zone>[A-Za-z0-9_+/-]{1,40}))?"
)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Hours:
    """Days (0 is Monday), and minutes from `start` until before `end`. Time past midnight belongs to the day before."""

    days: frozenset[int]
    start: int
    end: int
    zone: tzinfo

    def cover(self, at: datetime) -> bool:
        local = at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return local.weekday() in self.days and self.start <= minute < self.end
        is_late, is_early = minute >= self.start, minute < self.end
        return (is_late and local.weekday() in self.days) or (is_early and (local - _DAY).weekday() in self.days)


@lru_cache(maxsize=1024)
def read_hours(text: str) -> Hours:
    """Parse hours. Raises ValueError with a message that explains the format."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(HOURS_FORMAT)
    start, end = _minutes(found["start"]), _minutes(found["end"])
    if start == end:
        raise ValueError("Start and end are equal. Leave the hours empty for always.")
    days, name = _days(found["days"]), found["zone"] or "UTC"
    try:
        return Hours(days, start, end, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name} is not a time zone. Use one such as Europe/Berlin, or UTC.") from None


def _minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if hours * 60 + minutes > 24 * 60:
        raise ValueError(f"{text} is not a time of day. The day ends at 24:00.")
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
        raise ValueError(f"{text} is not a day. The days are {', '.join(DAYS)}.") from None
