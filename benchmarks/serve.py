"""`serve_rss_mib`, `serve_ready_s`: memory of an idle embedded server, and the time until it serves."""

from time import perf_counter, sleep

from benchmarks.ground import prepare, serving

IDLE_SECONDS = 2.0


def rss(runs: int) -> list[float]:
    """Return the resident memory of each of several idle servers, in MiB."""
    prepare()
    return [_rss() for _ in range(runs)]


def ready(runs: int) -> list[float]:
    """Return the seconds until each of several servers reports that it serves."""
    prepare()
    return [_ready() for _ in range(runs)]


def _rss() -> float:
    with serving() as served:
        sleep(IDLE_SECONDS)
        return served.rss_mib()


def _ready() -> float:
    started = perf_counter()
    with serving():
        return perf_counter() - started
