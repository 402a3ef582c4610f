"""Counts of waiting work for /metrics: ready and running steps, pending requests and unknown outcomes."""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from catalog.core import clock
from catalog.core.database import bind_datetime, read_datetime

# The conditions repeat those of the partial indexes literally, because SQLite would not use the indexes otherwise.
COUNT_BACKLOG = """
SELECT
    (SELECT COUNT(*) FROM plans_step JOIN plans_plan ON plans_plan.id = plan_id
        WHERE ready_at IS NOT NULL AND ready_at <= %s AND paused_at IS NULL),
    (SELECT MIN(ready_at) FROM plans_step JOIN plans_plan ON plans_plan.id = plan_id
        WHERE ready_at IS NOT NULL AND ready_at <= %s AND paused_at IS NULL),
    (SELECT COUNT(*) FROM plans_step WHERE lease_until IS NOT NULL),
    (SELECT COUNT(*) FROM approvals_approvalrequest WHERE status = 'pending'),
    (SELECT MIN(opened_at) FROM approvals_approvalrequest WHERE status = 'pending'),
    (SELECT COUNT(*) FROM catalog_call
        WHERE status IN ('held', 'ready', 'outcome_unknown') AND status = 'outcome_unknown')
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of ready and running steps, pending requests and unknown outcomes; ages in seconds, 0 if none."""

    ready: int
    oldest_ready: float
    running: int
    approvals: int
    oldest_approval: float
    unknown: int


def count_backlog() -> Backlog:
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(COUNT_BACKLOG, [bind_datetime(now), bind_datetime(now)])
        ready, ready_since, running, approvals, opened, unknown = cursor.fetchone()
    return Backlog(ready, _age(ready_since, now), running, approvals, _age(opened, now), unknown)


def _age(since: datetime | str | None, now: datetime) -> float:
    """Return the seconds since a time that was returned by the driver."""
    return 0.0 if since is None else max(0.0, (now - read_datetime(since)).total_seconds())
