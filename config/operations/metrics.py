"""`/metrics` in the text format of Prometheus, limited by `can_read_metrics`. Labels hold no personal data or ids."""

import os
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from secrets import compare_digest

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from config.operations.health import CachedProbe
from plans.executor import heartbeats
from plans.metrics import MULTIPROCESS_DIR_VARIABLE, REGISTRY
from plans.store.backlog import count_backlog

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
_request_seconds = Histogram(
    "toolgate_request_seconds",
    "How long Django took for a request, by the view's name and the first digit of the status.",
    ["view", "method", "status"],
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)


def observe_request(view: str, method: str, status: int, seconds: float) -> None:
    _request_seconds.labels(view, method, f"{status // 100}xx").observe(seconds)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not can_read_metrics(request):
        reason = "Metrics can be read from this machine, or with the token in TOOLGATE_METRICS_TOKEN.\n"
        return HttpResponse(reason, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(generate_latest(metrics_registry()), content_type=MEDIA_TYPE)


def can_read_metrics(request: HttpRequest) -> bool:
    """Return whether the request has the token or, if none is configured, comes directly from this machine."""
    if token := settings.TOOLGATE_METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        return compare_digest(given.encode("utf-8", "replace"), f"Bearer {token}".encode())
    try:
        is_local = ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
    return is_local and not any(name in request.headers for name in PROXY_HEADERS)


def metrics_registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    folder = os.environ.get(MULTIPROCESS_DIR_VARIABLE)
    if folder:
        remove_dead_processes(Path(folder))
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call] # it registers itself
    else:
        registry.register(REGISTRY)
        registry.register(_process)
    registry.register(_database)
    return registry


def remove_dead_processes(folder: Path) -> None:
    """Delete the gauges of processes that have ended; their counters remain."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        try:
            if pid.isdigit():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except PermissionError:
            continue  # alive, of another user


class DatabaseCollector(Collector):
    """Gauges read from the database, the same in every process; absent while the database is unavailable."""

    def __init__(self) -> None:
        self.fresh = CachedProbe(lambda: (count_backlog(), len(heartbeats.live_executors())))

    def collect(self) -> Iterable[Metric]:
        """Return the gauges, at most a second old."""
        found = self.fresh.get()
        yield _gauge("toolgate_database_up", "1 when the database answered in time.", 0 if found is None else 1)
        if found is None:
            return
        backlog, alive = found
        gauges = (
            ("toolgate_steps_ready", "Steps that may be claimed now: the depth of the queue.", backlog.ready),
            ("toolgate_steps_ready_oldest_seconds", "How long the oldest of them has waited.", backlog.oldest_ready),
            ("toolgate_steps_running", "Steps leased by a worker.", backlog.running),
            ("toolgate_approvals_waiting", "Requests waiting for approval.", backlog.approvals),
            ("toolgate_approvals_oldest_seconds", "How long the oldest of them has waited.", backlog.oldest_approval),
            ("toolgate_outcomes_unknown", "Calls with unknown outcome, to be settled by a person.", backlog.unknown),
            ("toolgate_executors_alive", "Executing processes seen in the last 15 seconds.", alive),
        )
        for name, text, value in gauges:
            yield _gauge(name, text, value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


_process = ProcessCollector(registry=None)
_database = DatabaseCollector()
