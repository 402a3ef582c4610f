"""Picture of the last days: calls by safety level, and the time to decision, as charts and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from approvals.queue.insights import MAX_DECISIONS_TIMED, seconds_to_decision
from catalog.calls.statistics import DailyLevels, calls_by_level, usage_window_start
from catalog.core.clock import current_minute
from catalog.text.formats import format_day, format_number
from catalog.ui.charts import ChartPart, DayChart, FigureRow, FigureTable, day_chart
from catalog.ui.labels import format_seconds

LEVELS = (
    ChartPart("safe", gettext_lazy("safe")),
    ChartPart("cautious", gettext_lazy("cautious"), is_hatched=True),
    ChartPart("dangerous", gettext_lazy("dangerous")),
)
DECIDED_IN = ChartPart("plain", gettext_lazy("decided in"))


@dataclass(frozen=True, slots=True)
class LastDays:
    """Calls of each day, and the median seconds to decision of the days with decisions.

    `is_cut` is True if only the newest decisions are counted.
    """

    days: Sequence[DailyLevels]
    seconds: Mapping[date, float]
    is_cut: bool

    @property
    def is_empty(self) -> bool:
        return not self.seconds and not any(day.calls for day in self.days)

    @property
    def note(self) -> str:
        """A sentence about decisions that are not counted; empty if all are."""
        count = {"count": format_number(MAX_DECISIONS_TIMED)}
        return _("Only the newest %(count)s reviews are timed.") % count if self.is_cut else ""

    @property
    def charts(self) -> list[DayChart]:
        """The chart of the calls, and that of the decisions if there are any."""
        levels = {day.day: (day.safe, day.cautious, day.dangerous) for day in self.days}
        calls = format_number(sum(day.calls for day in self.days))
        charts = [day_chart("levels", gettext_lazy("Calls by safety level"), levels, LEVELS, summary=calls)]
        if self.seconds:
            waits = {day.day: (self.seconds.get(day.day, 0),) for day in self.days}
            longest = _("up to %(time)s") % {"time": format_seconds(max(self.seconds.values()))}
            title = gettext_lazy("Time to decision, median")
            charts.append(day_chart("decided", title, waits, [DECIDED_IN], summary=longest))
        return charts

    @property
    def table(self) -> FigureTable:
        rows = [
            FigureRow(
                format_day(day.day),
                [
                    *(format_number(count) for count in (day.safe, day.cautious, day.dangerous)),
                    format_seconds(self.seconds.get(day.day)),
                ],
            )
            for day in self.days
        ]
        title = gettext_lazy("Calls by safety level and median time to decision, by day")
        columns = [
            gettext_lazy("Safe"),
            gettext_lazy("Cautious"),
            gettext_lazy("Dangerous"),
            gettext_lazy("Decided in"),
        ]
        return FigureTable("last-days", title, gettext_lazy("Day"), columns, rows)


def last_days() -> LastDays:
    """Return the picture of all calls and decisions, at most a minute old; only people with a role may see it.

    A picture without calls or without decisions is not kept, so that the first of them shows at once.
    """
    days = _last_days(current_minute())
    if not any(day.calls for day in days.days):
        forget()
    elif not days.seconds:
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
    return LastDays(_calls_by_level(minute), *seconds_to_decision(usage_window_start()))
