"""Tools that do nothing, so that what is measured is everything around them; named in TOOLGATE_TOOLS."""

import asyncio
from time import monotonic

from catalog.tools import tool


@tool(categories=["benchmarks"], retry_safe=True)
def bench_noop(number: int = 0) -> None:
    """Do nothing."""


@tool(categories=["benchmarks"], retry_safe=True)
async def bench_pause(seconds: float) -> None:
    """Wait, without a thread."""
    await asyncio.sleep(seconds)


@tool(safety_level="dangerous", categories=["benchmarks"], retry_safe=False)
def bench_moment(number: int = 0) -> float:
    """Return the moment at which the handler was entered, in seconds of the machine's monotonic clock."""
    return monotonic()
