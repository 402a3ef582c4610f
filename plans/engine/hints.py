"""Hints to workers that a plan may have ready steps. A lost hint only delays work by a second.

Within a process, hints go to its executor. In a cluster they are Procrastinate jobs, written in the transaction that
makes steps ready. A job only names a plan, so lost or duplicate jobs do no harm. The job tables exist on PostgreSQL
only.
"""

from collections.abc import Collection
from typing import Protocol

from django.conf import settings
from django.db import connection, transaction

from plans.engine.work import RunningCall, UnstoredCall

QUEUE = "plans"
TASK = "plans.hint"

# Procrastinate's own function raises for a second job with the same queueing lock, which would abort this transaction.
# Here the duplicate is ignored: the worker that fetches the waiting job claims after this transaction, because both
# lock the plan.
INSERT_JOBS = (
    "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args) "
    "SELECT 'plans', 'plans.hint', 'plan ' || plan_pk || ' ' || n, jsonb_build_object('plan_pk', plan_pk) "
    "FROM (SELECT %s::bigint AS plan_pk) AS plan, generate_series(1, %s::int) AS n "
    "ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING"
)
DELETE_LOST_JOBS = (
    "DELETE FROM procrastinate_jobs AS job WHERE queue_name = 'plans' AND status <> 'todo' AND NOT EXISTS ("
    "SELECT 1 FROM procrastinate_workers AS worker WHERE worker.id = job.worker_id "
    "AND last_heartbeat > NOW() - INTERVAL '1 minute')"
)


def insert_jobs(plan_pk: int, count: int) -> None:
    """Insert hint jobs in the open transaction, so that at least `count` jobs of the plan are queued."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT_JOBS, [plan_pk, count])


HINTS_AT_MOST = 8
"""Maximum of hints per transaction; each worker that follows one continues to claim steps."""


class LocalExecutor(Protocol):
    """Interface of this process's executor: receives hints, and runs calls that other threads started for it."""

    owner: str

    def add_hint(self, plan_pk: int) -> None:
        """Receive a hint that the plan may have ready steps."""

    def run_call(self, running_call: RunningCall) -> None:
        """Run a started call."""

    def run_first(self, unstored_call: UnstoredCall) -> bool:
        """Run a call that is not stored yet if a thread is idle; return whether it will."""

    def has_threads(self) -> bool:
        """Return whether any thread is able to run work."""

    def late_tools(self) -> list[str]:
        """Return the tools that are past their deadline and still occupy a thread."""

    def stop_plans(self, plan_pks: Collection[int]) -> None:
        """Ask the running handlers of these plans to stop."""

    def calls_at_work(self) -> list[RunningCall]:
        """Return the running and queued calls that were not asked to stop."""

    def stop_calls(self, running_calls: Collection[RunningCall]) -> None:
        """Ask the handlers of these calls to stop."""


_executors: list[LocalExecutor] = []


def register_executor(executor: LocalExecutor) -> None:
    _executors.append(executor)


def unregister_executor(executor: LocalExecutor) -> None:
    """Unregister an executor; may be called more than once."""
    if executor in _executors:
        _executors.remove(executor)


def local_executor() -> LocalExecutor | None:
    """Return the executor that runs started calls in this process; None if there is none or it has no thread left."""
    return _executors[-1] if can_execute() else None


def can_execute() -> bool:
    """Return whether this process has an executor with a thread left."""
    return bool(_executors) and _executors[-1].has_threads()


def late_tools() -> list[str]:
    return _executors[-1].late_tools() if _executors else []


def stop_plan(plan_pk: int) -> None:
    """On commit, ask this process's running handlers of the plan to stop; other processes poll for ended plans."""

    def stop_now() -> None:
        for executor in list(_executors):
            executor.stop_plans({plan_pk})

    transaction.on_commit(stop_now, robust=True)


def local_executors() -> list[LocalExecutor]:
    return list(_executors)


def has_executor() -> bool:
    return bool(_executors)


def hint(plan_pk: int, count: int = 1) -> None:
    """On commit, tell up to `count` workers, in a cluster on any machine, that the plan has ready steps."""
    number = min(count, HINTS_AT_MOST)
    if number <= 0:
        return
    if settings.TOOLGATE_EXECUTOR == "procrastinate":
        insert_jobs(plan_pk, number)
    else:
        transaction.on_commit(lambda: deliver_now(plan_pk, number), robust=True)


def discard_lost_hints() -> int:
    """Delete the hint jobs fetched by workers that have died, in a cluster; return their number."""
    if settings.TOOLGATE_EXECUTOR != "procrastinate":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(DELETE_LOST_JOBS)
        return int(cursor.rowcount)


def deliver_now(plan_pk: int, count: int = 1) -> None:
    """Send `count` hints to this process's executors now."""
    for executor in list(_executors):
        for _ in range(count):
            executor.add_hint(plan_pk)
