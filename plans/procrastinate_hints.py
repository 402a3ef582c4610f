"""Hints over Procrastinate: written in the transaction that makes steps ready, heard by the workers of a cluster.

A job names a plan and carries nothing else. It rings an executor and is deleted; what is ready is in plans' own rows,
so a job that is lost or doubled costs time, never work. PostgreSQL alone has these tables.
"""

from django.db import connection

QUEUE = "plans"
TASK = "plans.hint"

# Procrastinate's own function raises for a second job under one queueing lock, which ends the transaction that is to be
# kept. The same row, with the same triggers, is let be here: while one waits, whoever fetches it claims after this
# transaction, because both lock the plan.
DEFER = (
    "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args) "
    "SELECT 'plans', 'plans.hint', 'plan ' || plan_pk || ' ' || n, jsonb_build_object('plan_pk', plan_pk) "
    "FROM (SELECT %s::bigint AS plan_pk) AS plan, generate_series(1, %s::int) AS n "
    "ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING"
)
CLEAR = (
    "DELETE FROM procrastinate_jobs AS job WHERE queue_name = 'plans' AND status <> 'todo' AND NOT EXISTS ("
    "SELECT 1 FROM procrastinate_workers AS worker WHERE worker.id = job.worker_id "
    "AND last_heartbeat > NOW() - INTERVAL '1 minute')"
)


def defer(plan_pk: int, count: int) -> None:
    """Tell up to `count` workers of the plan once the open transaction is committed; hints that wait already count."""
    with connection.cursor() as cursor:
        cursor.execute(DEFER, [plan_pk, count])


def clear_lost() -> int:
    """Delete the hints that workers had fetched and died with; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(CLEAR)
        return int(cursor.rowcount)
