"""Small charts as numbers for SVG attributes: a line of calls per day, bars with failures. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.calls.statistics import Usage

SPARK_WIDTH, SPARK_HEIGHT = 72, 22
BARS_WIDTH, BARS_HEIGHT = 300, 60
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
