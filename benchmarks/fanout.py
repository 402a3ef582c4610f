"""`fanout_ms_per_step`: a root, 200 steps that depend on it, and one that depends on all of them."""

from typing import Any

from benchmarks.ground import ms_per_step, step

STEPS = 200


def measure(runs: int) -> list[float]:
    """Return the milliseconds per step of each run."""
    return ms_per_step(steps(), runs)


def steps() -> list[dict[str, Any]]:
    """Return the documents of the fan-out's steps."""
    middle = range(2, STEPS + 2)
    return [step(1), *(step(number, 1) for number in middle), step(STEPS + 2, *middle)]
