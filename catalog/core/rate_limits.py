"""Rate limits such as "5/min,20/h" on groups of tools, counted for each caller; "1/30s" is a pause between two uses.

A window begins with the first use after the previous window. A use counts in all windows or in none.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from django.db import connection, transaction

from catalog.core.database import bind_datetime, read_datetime
from catalog.errors import RateLimited, ToolDefinitionError

UNIT_SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400}
RATE_PATTERN = re.compile(rf"([1-9][0-9]{{0,8}})/([1-9][0-9]?)?({'|'.join(UNIT_SECONDS)})")
LONGEST_WINDOW = max(UNIT_SECONDS.values())
GROUP_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,60}")
MAX_CLEARED_ROWS = 1000
ACQUIRE_SQL = (
    'INSERT INTO catalog_ratebucket ("group", owner, window_started_at, used) VALUES (%s, %s, %s, 1) '
    'ON CONFLICT ("group", owner) DO UPDATE SET '
    "used = CASE WHEN catalog_ratebucket.window_started_at <= %s THEN 1 ELSE catalog_ratebucket.used + 1 END, "
    "window_started_at = CASE WHEN catalog_ratebucket.window_started_at <= %s THEN excluded.window_started_at "
    "ELSE catalog_ratebucket.window_started_at END "
    "WHERE catalog_ratebucket.window_started_at <= %s OR catalog_ratebucket.used < %s RETURNING used"
)
RELEASE_SQL = (
    'UPDATE catalog_ratebucket SET used = used - 1 WHERE "group" = %s AND owner = %s AND used > 0 '
    "AND window_started_at <= %s"
)
CLEAR_SQL = (
    "DELETE FROM catalog_ratebucket WHERE id IN "
    "(SELECT id FROM catalog_ratebucket WHERE window_started_at < %s ORDER BY id LIMIT %s)"
)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `limit` uses in a window of `length` units."""

    limit: int
    unit: str
    units: int = 1

    @property
    def window(self) -> timedelta:
        return timedelta(seconds=self.units * UNIT_SECONDS[self.unit])

    @property
    def window_name(self) -> str:
        """The window in at most three characters: min, 30s, 10m."""
        return self.unit if self.units == 1 else f"{self.units}{self.unit[0]}"

    def __str__(self) -> str:
        return f"{self.limit}/{self.units if self.units > 1 else ''}{self.unit}"


@dataclass(frozen=True, slots=True)
class RateLimitKey:
    """A group of tools and one of its callers; `owner` is `user:ID` or `token:ID`."""

    group: str
    rates: tuple[RateLimit, ...]
    owner: str


def parse_rate_limits(text: object, tool_name: str) -> tuple[RateLimit, ...]:
    """Parse limits such as "5/min,20/h", shortest window first. Raises ToolDefinitionError."""
    found = [RATE_PATTERN.fullmatch(part.strip()) for part in text.split(",")] if isinstance(text, str) else [None]
    rates = [RateLimit(int(match[1]), match[3], int(match[2] or 1)) for match in found if match is not None]
    windows = {rate.window for rate in rates}
    if len(rates) < len(found) or len(windows) < len(rates) or max(windows).total_seconds() > LONGEST_WINDOW:
        raise ToolDefinitionError(
            f'The rate_limit of {tool_name} must look like "5/min" or "1/30s,5/min,20/h": numbers of uses in '
            f"different windows of {', '.join(UNIT_SECONDS)}, none longer than a day, not {text!r}."
        )
    return tuple(sorted(rates, key=lambda rate: rate.window))


def check_rate_limit_group(group: object, tool_name: str) -> None:
    if not isinstance(group, str) or not GROUP_PATTERN.fullmatch(group):
        raise ToolDefinitionError(
            f"The rate_limit_key of {tool_name} must be 1 to 60 letters, digits, '_', '.' or '-', not {group!r}."
        )


def acquire_use(key: RateLimitKey, *, now: datetime) -> None:
    """Count one use in every window, or raise RateLimited. Callers wait here: call it outside a plan's transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        full = []
        for rate in key.rates:
            bucket, ended = [_bucket_columns(key, rate), key.owner], bind_datetime(now - rate.window)
            cursor.execute(ACQUIRE_SQL, [*bucket, bind_datetime(now), ended, ended, ended, rate.limit])
            if cursor.fetchone() is None:
                query = 'SELECT window_started_at FROM catalog_ratebucket WHERE "group" = %s AND owner = %s'
                cursor.execute(query, bucket)
                ends = read_datetime(cursor.fetchone()[0]) + rate.window
                full.append((max(1, ceil((ends - now).total_seconds())), rate))
        if not full:
            return
        seconds = max(each for each, _ in full)
        size, unit = next(
            ((size, unit) for unit, size in reversed(UNIT_SECONDS.items()) if seconds >= 2 * size), (1, "s")
        )
        rates = " and ".join(str(rate) for _, rate in full)
        message = f"The rate limit of {key.group} is reached ({rates} per caller)."
        message = f"{message} Try again in {ceil(seconds / size)} {unit}."
        raise RateLimited(message, seconds)


def release_use(key: RateLimitKey, *, counted_at: datetime) -> None:
    """Uncount one use that was counted at `counted_at`, in those windows of that time that are still open."""
    with transaction.atomic(), connection.cursor() as cursor:
        for rate in key.rates:
            cursor.execute(RELEASE_SQL, [_bucket_columns(key, rate), key.owner, bind_datetime(counted_at)])


def _bucket_columns(key: RateLimitKey, rate: RateLimit) -> str:
    return f"{key.group}:{rate.window_name}"


def clear_rate_buckets(*, now: datetime) -> int:
    """Delete a batch of counts that are too old for even the longest window; return the number deleted."""
    with connection.cursor() as cursor:
        cursor.execute(CLEAR_SQL, [bind_datetime(now - timedelta(seconds=LONGEST_WINDOW)), MAX_CLEARED_ROWS])
        return int(cursor.rowcount)
