"""`chain_ms_per_step`: 200 durable steps, each depending on the one before it, with validation, gate and events."""

from typing import Any

from benchmarks.ground import ms_per_step, step

STEPS = 200


def measure(runs: int) -> list[float]:
    """Return the milliseconds per step of each run."""
    return ms_per_step(steps(), runs)


def steps() -> list[dict[str, Any]]:
    """Return the documents of the chain's steps."""
    return [step(1), *(step(number, number - 1) for number in range(2, STEPS + 1))]
