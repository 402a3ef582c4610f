"""What this process counts and times: the instruments that /metrics shows. Labels are few and never ids.

With several processes under one port each writes its numbers to files of its own in the folder that
PROMETHEUS_MULTIPROC_DIR names, and whichever is asked adds them up; `serve --workers` makes that folder by itself.
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
    "From the start of a step's call, claimed, until its end is committed; one for each attempt.",
    ["level", "outcome"],
    registry=REGISTRY,
    buckets=STEP_BUCKETS,
)
_step_wait_seconds = Histogram(
    "toolgate_step_wait_seconds",
    "How long a step whose call ran had been ready before it was claimed.",
    registry=REGISTRY,
    buckets=STEP_BUCKETS,
)
_calls = Counter("toolgate_calls", "Calls that started and ended.", ["status", "level"], registry=REGISTRY)
_decisions = Counter("toolgate_decisions", "Reviews by their verdict.", ["verdict"], registry=REGISTRY)
_leases_lost = Counter("toolgate_leases_lost", "Steps taken back from workers that went silent.", registry=REGISTRY)
_sockets = Gauge("toolgate_sockets_open", "Websockets that are open.", registry=REGISTRY, multiprocess_mode="livesum")
_threads = Gauge(
    "toolgate_executor_threads",
    "Threads that execute plans: busy, idle, waiting aside for an async tool, or kept by a tool past its time.",
    ["state"],
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
_last_tick = Gauge(
    "toolgate_ticker_last_tick_timestamp_seconds",
    "When the ticker last began its round, of the process where that is longest ago; one is due each second.",
    registry=REGISTRY,
    multiprocess_mode="livemin",
)


@cache
def _step_instruments(level: str, outcome: str) -> Callable[[float], None]:
    """Look labels up once: on the hot path that costs as much as the rest."""
    return _step_seconds.labels(level, outcome).observe


@cache
def _call_counter(status: str, level: str) -> Callable[[], None]:
    return _calls.labels(status, level).inc


def observe_step(level: str, outcome: str, *, seconds: float, waited: float | None) -> None:
    """Time one attempt of a step's call; `waited` is how long the step was ready before, None when not known."""
    _step_instruments(level, outcome)(seconds)
    if waited is not None:
        _step_wait_seconds.observe(waited)


def count_ended_call(status: str, level: str) -> None:
    """Count a call that ran and has ended."""
    _call_counter(status, level)()


def count_decision(verdict: str) -> None:
    """Count a review."""
    _decisions.labels(verdict).inc()


def count_lost_lease() -> None:
    """Count a step whose worker went silent."""
    _leases_lost.inc()


@contextmanager
def count_open_socket() -> Iterator[None]:
    """Count a websocket for as long as it is open."""
    with _sockets.track_inprogress():
        yield


def set_thread_counts(*, busy: int, idle: int, aside: int, late: int) -> None:
    """Say what the executor's threads are doing."""
    for state, count in (("busy", busy), ("idle", idle), ("aside", aside), ("late", late)):
        _threads.labels(state).set(count)


def serve(port: int) -> None:
    """Answer what this process measured over HTTP, to this machine alone: for a process that serves nothing else.

    Raises OSError when the port is taken.
    """
    start_http_server(port, "127.0.0.1", REGISTRY)


def mark_tick() -> None:
    """Say that the ticker begins its round now."""
    _last_tick.set_to_current_time()


@contextmanager
def share_with_children() -> Iterator[None]:
    """Let the processes that are started inside add up their numbers, in a folder that goes with this process."""
    if os.environ.get(MULTIPROCESS_DIR_VARIABLE):
        yield
        return
    with TemporaryDirectory(prefix="toolgate-metrics-") as folder:
        os.environ[MULTIPROCESS_DIR_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS_DIR_VARIABLE]
