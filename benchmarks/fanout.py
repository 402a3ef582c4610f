"""`fanout_ms_per_step`: a root, 200 steps that need it, and one that needs them all."""

from benchmarks.ground import ms_per_step, step

STEPS = 200


def measure(runs: int) -> list[float]:
    """Return the milliseconds a step of each run."""
    middle = range(2, STEPS + 2)
    return ms_per_step([step(1), *(step(number, 1) for number in middle), step(STEPS + 2, *middle)], runs)
