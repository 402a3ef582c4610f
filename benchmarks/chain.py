"""`chain_ms_per_step`: 200 steps, each needing the one before it; durable, with validation, gate and events."""

from benchmarks.ground import ms_per_step, step

STEPS = 200


def measure(runs: int) -> list[float]:
    """Return the milliseconds a step of each run."""
    return ms_per_step([step(1), *(step(number, number - 1) for number in range(2, STEPS + 1))], runs)
