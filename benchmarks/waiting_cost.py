"""`waiting_cost`, `waiting_threads`: memory and threads that 10,000 waiting calls add to the process that holds them.

The server has first been warmed up at full concurrency; then plans are posted, and it claims their steps and holds each
call.
"""

from concurrent.futures import ThreadPoolExecutor

from django.conf import settings

from benchmarks.client import Client
from benchmarks.decide_to_start import STEPS, let_wait
from benchmarks.ground import Served, prepare, serving, token_for

WAITING = 10_000


def measure(runs: int) -> list[float]:
    """Return the added memory in MiB; always one run, since it takes a minute."""
    return [_added()[0]]


def threads(runs: int) -> list[float]:
    """Return the number of added threads; always one run."""
    return [_added()[1]]


def _added() -> tuple[float, float]:
    """Return the memory in MiB and the threads that the waiting calls added."""
    asks = token_for(prepare(), "plans:write")
    with serving() as served:
        waiting = _warm_up(served.port, asks)
        before = _taken(served)
        let_wait(Client(served.port, asks), WAITING, besides=waiting)
        after = _taken(served)
    return max(after[0] - before[0], 0.0), max(after[1] - before[1], 0.0)


def _warm_up(port: int, token: str) -> int:
    """Post enough plans at once to start every server thread; return the number of their waiting calls."""
    clients = [Client(port, token) for _ in range(settings.WEB_THREADS)]
    with ThreadPoolExecutor(len(clients)) as askers:
        list(askers.map(lambda client: let_wait(client, STEPS), clients))
    waiting = STEPS * len(clients)
    let_wait(clients[0], 0, besides=waiting)
    return waiting


def _taken(served: Served) -> tuple[float, float]:
    return served.rss_mib(), float(served.threads())
