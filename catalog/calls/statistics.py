"""Statistics of calls: usage of each tool, and results of its implementations. Reads no arguments or results."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.db.models.functions import TruncDate

from catalog.access.roles import can_see_all
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call, Implementation, Tool
from catalog.states import CallStatus

DAYS = 14
LEAST_DAYS, USUAL_DAYS, MOST_DAYS = 1, 30, 90
"""Bounds and default of the period of pages with statistics."""
MAX_TIMED_CALLS = 1000
LAST_CALLS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DailyCalls:
    """The number of calls made on one day, and how many of them have completed or failed."""

    day: date
    calls: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a tool: one entry for each of the last days, today last."""

    days: tuple[DailyCalls, ...]

    @property
    def calls(self) -> int:
        return sum(day.calls for day in self.days)

    @property
    def success(self) -> float | None:
        """The percentage of ended calls that succeeded; None while none has ended."""
        completed = sum(day.completed for day in self.days)
        ended = completed + sum(day.failed for day in self.days)
        return 100 * completed / ended if ended else None


class UtcDay(TruncDate):
    """Database function for the date of a timestamp. SQLite stores timestamps as text that begins with the date."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Cut the text in SQL instead of calling back into Python for each row."""
        sql, params = compiler.compile(self.lhs)
        return f"SUBSTR({sql}, 1, 10)", params


def usage_by_tool(names: Iterable[str]) -> Mapping[str, Usage]:
    """Return the usage of each of these tools, with one query answered from an index alone."""
    names, days = list(names), _last_days()
    counted: dict[str, dict[date, DailyCalls]] = defaultdict(dict)
    calls = Call.objects.filter(tool_name__in=names, created_at__gte=usage_window_start()).order_by()
    by_day = calls.values("tool_name", day=UtcDay("created_at")).annotate(
        made=Count("*"),
        completed=Count("status", filter=Q(status=CallStatus.COMPLETED)),
        failed=Count("status", filter=Q(status=CallStatus.FAILED)),
    )
    for name, day, *counts in by_day.values_list("tool_name", "day", "made", "completed", "failed"):
        counted[name][day] = DailyCalls(day, *counts)
    without = [DailyCalls(day) for day in days]
    return {name: Usage(tuple(counted[name].get(each.day, each) for each in without)) for name in names}


@dataclass(frozen=True, slots=True)
class DailyLevels:
    """The number of calls made on one day, by the current safety level of their tools."""

    day: date
    safe: int = 0
    cautious: int = 0
    dangerous: int = 0

    @property
    def calls(self) -> int:
        return self.safe + self.cautious + self.dangerous


def calls_by_level() -> list[DailyLevels]:
    """Return the calls of each of the last days, today last: one query of an index, and one for the tools called."""
    calls = Call.objects.filter(tool_name__in=Tool.objects.order_by().values("name"))
    counted = (
        calls.filter(created_at__gte=usage_window_start()).order_by().values_list("tool_name", UtcDay("created_at"))
    )
    rows = list(counted.annotate(made=Count("*")))
    levels = dict(
        Tool.objects.filter(name__in={name for name, *_ in rows}).values_list("name", "current_version__safety_level")
    )
    by_day: dict[date, Counter[str]] = {day: Counter() for day in _last_days()}
    for name, day, made in rows:
        if day in by_day:
            by_day[day][levels.get(name) or SafetyLevel.DANGEROUS] += made
    return [
        DailyLevels(day, counts[SafetyLevel.SAFE], counts[SafetyLevel.CAUTIOUS], counts[SafetyLevel.DANGEROUS])
        for day, counts in by_day.items()
    ]


def usage_window_start() -> datetime:
    return datetime.combine(_last_days()[0], time.min, tzinfo=UTC)


def _last_days() -> list[date]:
    today = clock.now().date()
    return [today - timedelta(days=back) for back in reversed(range(DAYS))]


def p95_ms(tool: Tool) -> float | None:
    """Return the 95th percentile in milliseconds of the tool's last timed calls; None if no call was timed."""
    timed = Call.objects.filter(tool_name=tool.name, status=CallStatus.COMPLETED, started_at__isnull=False)
    spans = timed.order_by("-created_at", "-pk").values_list("started_at", "finished_at")[:MAX_TIMED_CALLS]
    return percentile(sorted((end - start).total_seconds() * 1000 for start, end in spans if start and end), 0.95)


def last_calls(tool: Tool, viewer: User) -> list[Call]:
    calls = Call.objects.filter(tool_name=tool.name)
    seen = calls if can_see_all(viewer) else calls.filter(requested_by=viewer)
    return list(seen.defer("arguments", "response", "message").order_by("-created_at", "-pk")[:LAST_CALLS_SHOWN])


COMPARED_CALLS = 1000
"""The number of newest calls of a tool that are evaluated."""


@dataclass(frozen=True, slots=True)
class ImplementationStats:
    """Results of one implementation in the tool's newest calls. Times are in milliseconds, None if not measured."""

    implementation: Implementation
    share: float
    calls: int
    completed: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    last_call_at: datetime | None

    @property
    def success_rate(self) -> float | None:
        """The share of ended calls that succeeded, 0 to 1; None if none has ended."""
        ended = self.completed + self.failed
        return self.completed / ended if ended else None


def implementation_stats(tool: Tool) -> list[ImplementationStats]:
    """Return the statistics of each implementation, in two queries; `share` is the fraction of new plans it serves."""
    implementations = sorted(tool.implementations.all(), key=lambda each: each.pk)
    seen: dict[int | None, list[_CallRow]] = defaultdict(list)
    calls = Call.objects.filter(tool_name=tool.name).order_by("-created_at")
    columns: Any = ("implementation_id", "status", "created_at", "started_at", "finished_at")
    for values in calls.values_list(*columns)[:COMPARED_CALLS]:
        row = _CallRow(*values)
        seen[row.implementation].append(row)
    weights = {each.pk: each.weight if each.enabled and each.registered else 0 for each in implementations}
    total = sum(weights.values())
    found = []
    for each in implementations:
        rows = seen[each.pk]
        statuses = [row.status for row in rows]
        spans = sorted(
            (row.finished_at - row.started_at).total_seconds() * 1000
            for row in rows
            if row.status == CallStatus.COMPLETED and row.started_at and row.finished_at
        )
        found.append(
            ImplementationStats(
                implementation=each,
                share=weights[each.pk] / total if total else 0.0,
                calls=len(rows),
                completed=statuses.count(CallStatus.COMPLETED),
                failed=statuses.count(CallStatus.FAILED),
                p50_ms=percentile(spans, 0.5),
                p95_ms=percentile(spans, 0.95),
                last_call_at=rows[0].created_at if rows else None,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _CallRow:
    implementation: int | None
    status: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def percentile(ordered: list[float], part: float) -> float | None:
    """Return the smallest value that is not exceeded by the fraction `part` of the values; None for an empty list."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
