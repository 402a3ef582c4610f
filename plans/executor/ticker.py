"""The ticker: periodic work such as stopping handlers, applying decisions, expiring requests and waking plans.

One thread in every serving and working process. All its work is idempotent (conditional UPDATEs), so it may be
duplicated between processes, and the next tick makes up for a failed one.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Literal, TypeVar

from django.conf import settings
from django.db import connection

from approvals.audit.restore_guard import RestoreMonitor
from approvals.envelopes import services as envelopes
from approvals.notifications.delivery import DeliveryThread, clear_deliveries
from approvals.policies.history import clear_recent_calls
from approvals.policies.refused_calls import clear_refused_calls, count_left_calls
from approvals.policies.trials import clear_trials
from approvals.requests import deadlines, lifecycle
from approvals.reviews import effects
from catalog.access.sign_in import clear_sign_in_counts
from catalog.connections.services import clear_clients, clear_credentials
from catalog.connections.steps import clear_steps
from catalog.core import clock
from catalog.core.rate_limits import MAX_CLEARED_ROWS, clear_rate_buckets
from catalog.core.transactions import log_unexpected
from catalog.inventory.source_sync import SyncThread
from catalog.rest.idempotency import delete_expired_keys, release_ended_keys
from plans import metrics
from plans.engine import client_runs, hints, recovery, retries
from plans.engine.cancellation import end_overdue_plans
from plans.engine.limits import wake_deferred_steps
from plans.engine.stops import cancel_stopped_calls, resume_after_stops
from plans.executor import heartbeats
from plans.executor.leases import Renewer
from plans.executor.pool import ExecutorPool
from plans.store import statements

log = logging.getLogger("toolgate.ticker")
ResultT = TypeVar("ResultT")
TICK_SECONDS = 1.0
SHORTEST_SECONDS = 0.05
PLANS_WOKEN = 100
CLEAR_SECONDS = 600.0
SKEW_SECONDS = 2.0
"""Difference between this machine's clock and the database's above which a warning is logged."""


class Ticker:
    """The ticker of one process; `executor` is None if the process does not execute plans."""

    def __init__(self, executor: ExecutorPool | None) -> None:
        self._executor = executor
        self._watch = RestoreMonitor()
        self._sender = DeliveryThread()
        self._source_sync = SyncThread()
        self._stopping = threading.Event()
        self._renewer = Renewer(executor) if executor is not None else None
        self._cleared_at = self._beaten_at = float("-inf")
        self._began = clock.now()
        self._done = 0
        self._woken_to = 0
        self._stops_with_envelopes_ended: set[int] = set()
        self._thread = threading.Thread(target=self._live, name="toolgate-ticker", daemon=True)

    def start(self) -> None:
        if self._renewer is not None:
            self._renewer.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)
        self._sender.stop()
        self._source_sync.stop()
        if self._renewer is not None:
            self._renewer.stop()

    def _live(self) -> None:
        while not self._stopping.is_set():
            self.tick()
            self._stopping.wait(self._pause())
        if self._executor is not None:
            _run_job("leave", partial(heartbeats.remove_executor, self._executor.owner))
        connection.close()

    def tick(self) -> None:
        """Run every job; a job that fails is logged and does not stop the others.

        While the database appears to be restored from an older state, only the first jobs run.
        """
        self._began, self._done = clock.now(), 0
        metrics.mark_tick()
        executor = self._executor
        _run_job("look_at_clock", _warn_of_skew)
        if executor is not None:
            _run_job("measure", executor.measure)
        _run_job("witness", self._watch_for_restore)
        if self._watch.fault:
            return
        if executor is not None:
            _run_job("stop", partial(_stop_ended_plans, executor))
            _run_job("cancel", partial(cancel_stopped_calls, executor))
            _run_job("beat", partial(self._beat, executor))
            _run_job("end_overdue", executor.end_overdue)
        _run_job("stopped_envelopes", self._end_stopped_envelopes)
        self._done += _run_job("resume", lambda: resume_after_stops(clock.now()))
        self._done += _run_job("apply", lambda: effects.apply_due(clock.now()))
        _run_job("void", lifecycle.invalidate_outdated)
        self._done += _run_job("remind", lambda: deadlines.send_due_reminders(clock.now()))
        self._done += _run_job("expire", lambda: deadlines.expire_due(clock.now()))
        _run_job("envelopes", lambda: envelopes.end_due(clock.now()))
        _run_job("overdue", lambda: end_overdue_plans(clock.now()))
        _run_job("recover", lambda: recovery.take_back_lost_steps(clock.now()))
        _run_job("unreported", lambda: client_runs.expire_unreported(clock.now()))
        _run_job("refused", count_left_calls)
        _run_job("make_room", lambda: wake_deferred_steps(clock.now()))
        _run_job("wake", self._wake)
        _run_job("forget", recovery.delete_expired_secrets)
        _run_job("look", self._sender.look)
        _run_job("look", self._source_sync.look)
        _run_job("clear", self._clear)

    def _pause(self) -> float:
        """Return the seconds until the next job is due, between 0.05 and 1 and less than a lease.

        Work that was due when the tick began and failed is retried after a full second.
        """
        if self._done:
            return SHORTEST_SECONDS
        try:
            due = deadlines.next_due(self._began)
        except Exception as error:  # noqa: BLE001 - the next tick is only later then
            log_unexpected(error)
            return TICK_SECONDS
        seconds = (due - clock.now()).total_seconds() if due else TICK_SECONDS
        return min(TICK_SECONDS, settings.TOOLGATE_LEASE_SECONDS / 4, max(SHORTEST_SECONDS, seconds))

    def _watch_for_restore(self) -> None:
        """Write a checkpoint of the audit log; stop executing if the database was restored."""
        if self._watch.check() and self._executor is not None:
            self._executor.retire()

    def _beat(self, executor: ExecutorPool) -> None:
        if monotonic() - self._beaten_at >= heartbeats.BEAT_SECONDS:
            heartbeats.record_heartbeat(executor.owner, executor.threads)
            self._beaten_at = monotonic()

    def _wake(self) -> None:
        """Hint at plans whose steps are ready after a delay or a lost hint; continue after the plan woken last."""
        with connection.cursor() as cursor:
            due = statements.due_plans(cursor, now=clock.now(), limit=PLANS_WOKEN, after=self._woken_to)
        self._woken_to = due[-1] if len(due) == PLANS_WOKEN else 0
        for plan_pk in due:
            if not retries.is_released_here(plan_pk):
                hints.deliver_now(plan_pk)

    def _end_stopped_envelopes(self) -> None:
        """End the envelopes that the process which set a stop could not end."""
        self._stops_with_envelopes_ended = envelopes.end_stopped(self._stops_with_envelopes_ended)

    def _clear(self) -> None:
        """Delete old counters, idempotency keys and deliveries in batches, and hints lost by workers."""
        release_ended_keys()
        if monotonic() - self._cleared_at < CLEAR_SECONDS:
            return
        hints.discard_lost_hints()
        now = clock.now()
        clears = [clear_rate_buckets, clear_sign_in_counts, delete_expired_keys, clear_deliveries]
        clears += [clear_credentials, clear_clients, clear_steps, clear_trials, clear_refused_calls, clear_recent_calls]
        cleared = [clear(now=now) for clear in clears]
        if max(cleared) < MAX_CLEARED_ROWS:
            self._cleared_at = monotonic()


def _warn_of_skew() -> None:
    """Measure the database's clock from time to time; warn if this machine's clock differs much."""
    if clock.is_stale():
        clock.refresh()
        if abs(clock.offset_seconds()) > SKEW_SECONDS:
            log.warning("this machine's clock is %.1f s away from the database's", -clock.offset_seconds())


def _stop_ended_plans(executor: ExecutorPool) -> None:
    plans = {running_call.plan.pk for running_call in executor.calls_at_work()}
    if plans:
        with connection.cursor() as cursor:
            executor.stop_plans(statements.ended_plans(cursor, plans))


def _run_job(name: str, job: Callable[[], ResultT]) -> ResultT | Literal[0]:
    """Return the job's result; 0 for a job that failed."""
    try:
        return job()
    except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
        log.warning("a tick was cut short: %s", name)
        log_unexpected(error)
        with suppress(Exception):
            connection.close()
        return 0
