"""`waiting_cost`, `waiting_threads`: what 10,000 calls that wait for people add to the process that holds them.

The server has served before; then plans are posted to it, it claims their steps and holds each call.
"""

from benchmarks.client import Client
from benchmarks.decide_to_start import let_wait
from benchmarks.ground import Served, prepare, serving, token_for

WAITING = 10_000
WARM_UP = 100


def measure(runs: int) -> list[float]:
    """Return the MiB of memory; one run, whatever `runs` says, for it takes a minute."""
    return [_added()[0]]


def threads(runs: int) -> list[float]:
    """Return how many threads; one run, whatever `runs` says."""
    return [_added()[1]]


def _added() -> tuple[float, float]:
    """Return the memory in MiB and the threads that the waiting calls added."""
    asks = token_for(prepare(), "plans:write")
    with serving() as served:
        client = Client(served.port, asks)
        let_wait(client, WARM_UP)
        before = _taken(served)
        let_wait(client, WARM_UP + WAITING)
        after = _taken(served)
    return max(after[0] - before[0], 0.0), max(after[1] - before[1], 0.0)


def _taken(served: Served) -> tuple[float, float]:
    return served.rss_mib(), float(served.threads())
