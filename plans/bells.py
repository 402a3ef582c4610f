"""Threads that wait a moment for news of a plan, rung by the commits of this process. Nothing depends on the ring."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from catalog.models import Call
from catalog.states import PUBLIC_STATUS
from plans.store.transactions import listen

MOMENT_SECONDS = 0.05
_hanging: dict[str, set[threading.Event]] = {}
_lock = threading.Lock()


def wait_a_moment(call: Call) -> None:
    """Return when the call no longer runs, or after 50 ms: quick tools need no second look."""
    ends = monotonic() + MOMENT_SECONDS
    with _bell(call.plan_ref) as bell:
        while _is_running(call) and monotonic() < ends:
            bell.wait(max(0.0, ends - monotonic()))
            bell.clear()


def _is_running(call: Call) -> bool:
    status = Call.objects.values_list("status", flat=True).get(pk=call.pk)
    return PUBLIC_STATUS[status] == "running"


@contextmanager
def _bell(plan_ref: str) -> Iterator[threading.Event]:
    bell = threading.Event()
    with _lock:
        _hanging.setdefault(plan_ref, set()).add(bell)
    try:
        yield bell
    finally:
        with _lock:
            _hanging[plan_ref].discard(bell)
            if not _hanging[plan_ref]:
                del _hanging[plan_ref]


def _ring(plan_ref: str, last_seq: int) -> None:
    """Wake whoever waits for this plan; called after each commit, most often for nobody."""
    if plan_ref in _hanging:
        with _lock:
            for bell in _hanging.get(plan_ref, ()):
                bell.set()


listen(_ring)
