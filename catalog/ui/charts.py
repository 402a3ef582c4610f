"""Charts and tables of statistics: numbers for SVG attributes, texts of cells. Pure functions.

The templates are in `templates/charts/`, the colours and patterns of the parts of a bar in components/charts.css.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from catalog.calls.statistics import Usage
from catalog.text.formats import format_day

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

SPARK_WIDTH, SPARK_HEIGHT = 72, 22
CHART_WIDTH, CHART_HEIGHT = 600, 90
ROW_BAR_WIDTH = 160
PADDING = 2
"""SVG units that stay free above the highest point or bar, and below the lowest point of a line."""
MIN_BAR_HEIGHT = 2
"""Height, in SVG units, of the smallest part of a bar that is not empty."""
DAY_MARGIN = 0.1
"""Fraction of a day's width that is kept free on both sides of its bar."""


def spark_path(usage: Usage) -> str:
    """Return an SVG path for the calls of each day."""
    counts = [day.calls for day in usage.days]
    step, unit = SPARK_WIDTH / max(1, len(counts) - 1), (SPARK_HEIGHT - 2 * PADDING) / max(1, *counts)
    points = (f"{index * step:.1f} {SPARK_HEIGHT - PADDING - count * unit:.1f}" for index, count in enumerate(counts))
    return "M" + " L".join(points)


@dataclass(frozen=True, slots=True)
class ChartPart:
    """A part of every bar: `look` names its colour or pattern, `label` what it counts. A hatched part has a pattern."""

    look: str
    label: "StrOrPromise"
    is_hatched: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a bar."""

    part: ChartPart
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartColumn:
    x: float
    width: float
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart with a bar for each day, today last. Lengths are SVG units in CHART_WIDTH by CHART_HEIGHT.

    `key` is unique in its page, `summary` is a number of the whole chart.
    """

    key: str
    title: "StrOrPromise"
    summary: str
    since: str
    parts: Sequence[ChartPart]
    columns: Sequence[ChartColumn]

    @property
    def is_empty(self) -> bool:
        return not any(column.segments for column in self.columns)


def day_chart(
    key: str,
    title: "StrOrPromise",
    days: Mapping[date, Sequence[float]],
    parts: Sequence[ChartPart],
    *,
    summary: str = "",
) -> DayChart:
    """Return a chart of the values of each day, one for each of the parts, which lie on each other from below."""
    pitch = CHART_WIDTH / max(1, len(days))
    most = max((sum(values) for values in days.values()), default=0)
    unit = (CHART_HEIGHT - PADDING) / most if most else 0
    columns = [
        ChartColumn(
            x=round((index + DAY_MARGIN) * pitch, 1),
            width=round(pitch * (1 - 2 * DAY_MARGIN), 1),
            segments=_segments(values, parts, unit),
        )
        for index, values in enumerate(days.values())
    ]
    return DayChart(key, title, summary, format_day(min(days)), parts, columns)


def _segments(values: Sequence[float], parts: Sequence[ChartPart], unit: float) -> list[Segment]:
    below, segments = 0.0, []
    for value, part in zip(values, parts, strict=True):
        if not value:
            continue
        height = max(MIN_BAR_HEIGHT, value * unit)
        below += height
        segments.append(Segment(part, round(max(0.0, CHART_HEIGHT - below), 1), round(height, 1)))
    return segments


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of a table: a name, with an address if it has a page, and the texts of its cells.

    `bar` is the length of the row's bar in SVG units, `remark` a warning about the row.
    """

    name: str
    cells: Sequence[str]
    address: str = ""
    is_code: bool = False
    bar: float | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of numbers. `key` is unique in its page, and the name of its CSV if it has one; `first` heads the names.

    `look` is that of the bars of the rows, `note` a sentence about the table.
    """

    key: str
    title: "StrOrPromise"
    first: "StrOrPromise"
    columns: "Sequence[StrOrPromise]"
    rows: Sequence[FigureRow]
    look: str = ""
    note: "StrOrPromise" = ""


def bar_lengths(amounts: Sequence[float]) -> list[float]:
    """Return the length of each row's bar, on one scale."""
    most = max(amounts, default=0) or 1
    return [round(amount / most * ROW_BAR_WIDTH, 1) for amount in amounts]
