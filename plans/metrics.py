"""Prometheus instruments of this process, exported at /metrics. Labels are few and never ids.

With several processes behind one port, each writes its values to files in the folder PROMETHEUS_MULTIPROC_DIR, and the
process that answers adds them up. `serve --workers` creates that folder.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

MULTIPROCESS_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
REGISTRY = CollectorRegistry()
disable_created_metrics()  # type: ignore[no-untyped-call] # it takes and returns nothing

_step_seconds = Histogram(
    "toolgate_step_seconds",
    "Time from the claim of a step until the commit of its call's end, per attempt.",
    ["level", "outcome"],
    registry=REGISTRY,
    buckets=STEP_BUCKETS,
)
_step_wait_seconds = Histogram(
    "toolgate_step_wait_seconds",
    "Time that a step was ready before it was claimed, for steps whose call ran.",
    registry=REGISTRY,
    buckets=STEP_BUCKETS,
)
_calls = Counter("toolgate_calls", "Calls that started and ended.", ["status", "level"], registry=REGISTRY)
_decisions = Counter("toolgate_decisions", "Reviews by verdict.", ["verdict"], registry=REGISTRY)
_leases_lost = Counter("toolgate_leases_lost", "Steps taken back from workers whose lease expired.", registry=REGISTRY)
_sockets = Gauge("toolgate_sockets_open", "Open WebSockets.", registry=REGISTRY, multiprocess_mode="livesum")
_threads = Gauge(
    "toolgate_executor_threads",
    "Executor threads by state: busy, idle, aside (waiting for an async tool) or late (tool past its timeout).",
    ["state"],
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
_last_tick = Gauge(
    "toolgate_ticker_last_tick_timestamp_seconds",
    "Start of the ticker's last round, in the process where it is oldest; a round is due every second.",
    registry=REGISTRY,
    multiprocess_mode="livemin",
)


@cache
def _step_instruments(level: str, outcome: str) -> Callable[[float], None]:
    """Cache the labelled instrument: on the hot path its lookup costs as much as the observation."""
    return _step_seconds.labels(level, outcome).observe


@cache
def _call_counter(status: str, level: str) -> Callable[[], None]:
    return _calls.labels(status, level).inc


def observe_step(level: str, outcome: str, *, seconds: float, waited: float | None) -> None:
    """Observe one attempt of a step's call; `waited` is how many seconds the step was ready before, None if unknown."""
    _step_instruments(level, outcome)(seconds)
    if waited is not None:
        _step_wait_seconds.observe(waited)


def count_ended_call(status: str, level: str) -> None:
    _call_counter(status, level)()


def count_decision(verdict: str) -> None:
    _decisions.labels(verdict).inc()


def count_lost_lease() -> None:
    _leases_lost.inc()


@contextmanager
def count_open_socket() -> Iterator[None]:
    with _sockets.track_inprogress():
        yield


def set_thread_counts(*, busy: int, idle: int, aside: int, late: int) -> None:
    for state, count in (("busy", busy), ("idle", idle), ("aside", aside), ("late", late)):
        _threads.labels(state).set(count)


def serve(port: int) -> None:
    """Serve the metrics on localhost, for processes without a web server. Raises OSError if the port is taken."""
    start_http_server(port, "127.0.0.1", REGISTRY)


def mark_tick() -> None:
    _last_tick.set_to_current_time()


@contextmanager
def share_with_children() -> Iterator[None]:
    """Share metrics among the processes started inside, through a temporary folder, unless one is configured."""
    if os.environ.get(MULTIPROCESS_DIR_VARIABLE):
        yield
        return
    with TemporaryDirectory(prefix="toolgate-metrics-") as folder:
        os.environ[MULTIPROCESS_DIR_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS_DIR_VARIABLE]
