"""Small charts as numbers for SVG attributes: a line of calls per day, bars with failures. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.calls.statistics import Usage

SPARK_WIDTH, SPARK_HEIGHT = 72, 22
BARS_WIDTH, BARS_HEIGHT = 300, 60
STACKED_WIDTH, STACKED_HEIGHT = 600, 90
MIN_BAR_HEIGHT = 2
"""Pixels of padding above the highest point."""


@dataclass(frozen=True, slots=True)
class UsageBar:
    """The bar of one day: left edge and width, and top and height of the parts for all and for failed calls."""

    x: float
    width: float
    top: float
    height: float
    failed_top: float
    failed_height: float


def spark_path(usage: Usage) -> str:
    counts = [day.calls for day in usage.days]
    step, unit = SPARK_WIDTH / max(1, len(counts) - 1), (SPARK_HEIGHT - 2 * MIN_BAR_HEIGHT) / max(1, *counts)
    points = (
        f"{index * step:.1f} {SPARK_HEIGHT - MIN_BAR_HEIGHT - count * unit:.1f}" for index, count in enumerate(counts)
    )
    return "M" + " L".join(points)


def usage_bars(usage: Usage) -> Sequence[UsageBar]:
    pitch = BARS_WIDTH / max(1, len(usage.days))
    unit = (BARS_HEIGHT - MIN_BAR_HEIGHT) / max(1, *(day.calls for day in usage.days))
    return [
        UsageBar(
            x=round(index * pitch + 2, 1),
            width=round(pitch - 4, 1),
            top=round(BARS_HEIGHT - day.calls * unit, 1),
            height=round(day.calls * unit, 1),
            failed_top=round(BARS_HEIGHT - day.failed * unit, 1),
            failed_height=round(day.failed * unit, 1),
        )
        for index, day in enumerate(usage.days)
    ]


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A bar of two parts, the second above the first. Lengths are SVG units in STACKED_WIDTH by STACKED_HEIGHT."""

    x: float
    width: float
    top: float
    height: float
    other_top: float
    other_height: float


def stacked_bars(values: Sequence[tuple[float, float]]) -> list[StackedBar]:
    """Return a bar for each pair of a lower and an upper part, on one scale."""
    pitch = STACKED_WIDTH / max(1, len(values))
    most = max((lower + upper for lower, upper in values), default=0)
    unit = (STACKED_HEIGHT - MIN_BAR_HEIGHT) / most if most else 0
    return [
        StackedBar(
            x=round((index + 0.1) * pitch, 1),
            width=round(pitch * 0.8, 1),
            top=round(STACKED_HEIGHT - lower * unit, 1),
            height=round(lower * unit, 1),
            other_top=round(STACKED_HEIGHT - (lower + upper) * unit, 1),
            other_height=round(upper * unit, 1),
        )
        for index, (lower, upper) in enumerate(values)
    ]
