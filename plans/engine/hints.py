"""Hints for workers: "this plan has something to do". Losing one costs a second, never work.

Within a process a hint goes to its executor. In a cluster it is a job of Procrastinate, written in the transaction that
makes steps ready: it names a plan and carries nothing else, so that a job that is lost or doubled costs time only.
PostgreSQL alone has these tables.
"""

from collections.abc import Collection
from typing import Protocol

from django.conf import settings
from django.db import connection, transaction

from plans.engine.work import RunningCall

QUEUE = "plans"
TASK = "plans.hint"

# Procrastinate's own function raises for a second job under one queueing lock, which ends the transaction that is to be
# kept. The same row, with the same triggers, is let be here: while one waits, whoever fetches it claims after this
# transaction, because both lock the plan.
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
    """Tell up to `count` workers of the plan once the open transaction is committed; hints that wait already count."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT_JOBS, [plan_pk, count])


def delete_lost_jobs() -> int:
    """Delete the hints that workers had fetched and died with; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE_LOST_JOBS)
        return int(cursor.rowcount)


HINTS_AT_MOST = 8
"""Hints one transaction sends: each worker that follows one claims on by itself."""


class LocalExecutor(Protocol):
    """The executor of this process: it hears hints, and runs calls that another thread has claimed in its name."""

    owner: str

    def hear(self, plan_pk: int) -> None:
        """Take a hint: the plan may have ready steps."""

    def take(self, run: RunningCall) -> None:
        """Run a started call."""

    def takes(self) -> bool:
        """Return whether a thread is left that could run something."""

    def late_tools(self) -> list[str]:
        """Return the tools that are past their deadline and still keep a thread."""

    def stop_plans(self, plan_pks: Collection[int]) -> None:
        """Tell the handlers that run for these plans to stop."""


_executors: list[LocalExecutor] = []


def register_executor(executor: LocalExecutor) -> None:
    """Send this process's hints to `executor`, and start direct calls in its name."""
    _executors.append(executor)


def unregister_executor(executor: LocalExecutor) -> None:
    """Send `executor` no more hints and calls; may be called more than once."""
    if executor in _executors:
        _executors.remove(executor)


def local_executor() -> LocalExecutor | None:
    """Return the executor that takes started calls here; None in a process that executes nothing, or no longer can."""
    return _executors[-1] if can_execute() else None


def can_execute() -> bool:
    """Return whether this process has an executor with a thread left."""
    return bool(_executors) and _executors[-1].takes()


def late_tools() -> list[str]:
    """Return the tools that are past their deadline and still keep threads of this process."""
    return _executors[-1].late_tools() if _executors else []


def stop_plan(plan_pk: int) -> None:
    """Once the open transaction is committed, tell what runs here for the plan to stop; other processes look."""
    transaction.on_commit(lambda: _stop_plan_now(plan_pk), robust=True)


def _stop_plan_now(plan_pk: int) -> None:
    for executor in list(_executors):
        executor.stop_plans({plan_pk})


def has_executor() -> bool:
    """Return whether this process is one that executes."""
    return bool(_executors)


def hint(plan_pk: int, count: int = 1) -> None:
    """Once the open transaction is committed, tell up to `count` workers that the plan has ready steps.

    In a cluster the hint is part of the transaction, and reaches the workers of every machine.
    """
    wanted = min(count, HINTS_AT_MOST)
    if wanted <= 0:
        return
    if settings.TOOLGATE_EXECUTOR == "procrastinate":
        insert_jobs(plan_pk, wanted)
    else:
        transaction.on_commit(lambda: deliver_now(plan_pk, wanted), robust=True)


def discard_lost_hints() -> None:
    """Clear away what is left of hints that workers had taken and died with."""
    if settings.TOOLGATE_EXECUTOR == "procrastinate":
        delete_lost_jobs()


def deliver_now(plan_pk: int, count: int = 1) -> None:
    """Tell `count` threads of this process now."""
    for executor in list(_executors):
        for _ in range(count):
            executor.hear(plan_pk)
