"""Progress that running calls report, as events of their plans: numbers only, because the history is not private."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from time import monotonic
from typing import Any

from django.db import connection

from catalog.context import progress_listener
from catalog.core.transactions import log_unexpected, retry_on_deadlock
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine.work import RunningCall
from plans.models import Event
from plans.store.transactions import plan_transaction

PROGRESS_SECONDS = 2.0
"""Seconds between two events of one call: a report that comes sooner is not recorded."""
PROGRESS = "call.progress"


@contextmanager
def recorded_progress(running_call: RunningCall) -> Iterator[None]:
    """Record the progress that the handler reports inside the block."""
    token = progress_listener.set(_Recorder(running_call))
    try:
        yield
    finally:
        progress_listener.reset(token)


class _Recorder:
    """Listener of one call. It is called on the event loop of asynchronous handlers and writes in a thread."""

    __slots__ = ("_next", "_run")

    def __init__(self, running_call: RunningCall) -> None:
        self._run = running_call
        self._next = 0.0

    def __call__(self, progress: float, total: float | None) -> None:
        if monotonic() < self._next or not isfinite(progress) or not isfinite(total or 0.0):
            return
        self._next = monotonic() + PROGRESS_SECONDS
        asyncio.get_running_loop().run_in_executor(None, self._write, progress, total)

    def _write(self, progress: float, total: float | None) -> None:
        try:
            _record(self._run, {"progress": progress, **({} if total is None else {"total": total})})
        except Exception as error:  # noqa: BLE001 - the call goes on without it
            log_unexpected(error)
        finally:
            connection.close()


@retry_on_deadlock
def _record(running_call: RunningCall, numbers: Mapping[str, float]) -> None:
    running = Call.objects.filter(pk=running_call.call.pk, status=CallStatus.RUNNING, fence=running_call.call.fence)
    with plan_transaction(running_call.plan.pk, running_call.plan.ref) as tx:
        if running.exists():
            tx.record(PROGRESS, running_call.step.step_id, call=running_call.call.public_id, **numbers)


def progress_of(call: Call) -> str:
    """Return the last progress that a call reported, such as "3 of 10"; empty if it reported none."""
    events = Event.objects.filter(plan__public_id=call.plan_ref, type=PROGRESS, data__contains=f'"{call.public_id}"')
    text = events.order_by("-seq").values_list("data", flat=True).first()
    return progress_text(json.loads(text)) if text else ""


def progress_text(numbers: Mapping[str, Any]) -> str:
    total = numbers.get("total")
    return f"{numbers['progress']:g}" + (f" of {total:g}" if total is not None else "")
