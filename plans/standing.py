"""How things stand, counted in the database: one statement over small partial indexes, for /metrics."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection

from catalog.core import clock
from plans.dialect import stamp

# The conditions are spelled as those of the indexes: SQLite would not use them otherwise.
STATEMENT = """
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
class Standing:
    """Steps that may be claimed, that run, requests that wait, outcomes nobody knows; ages in seconds, 0 for none."""

    ready: int
    oldest_ready: float
    running: int
    approvals: int
    oldest_approval: float
    unknown: int


def look() -> Standing:
    """Count how things stand now."""
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, [stamp(now), stamp(now)])
        ready, ready_since, running, approvals, opened, unknown = cursor.fetchone()
    return Standing(ready, _age(ready_since, now), running, approvals, _age(opened, now), unknown)


def _age(since: datetime | str | None, now: datetime) -> float:
    """Return the seconds since a moment, as the database's driver reads it."""
    if since is None:
        return 0.0
    moment = datetime.fromisoformat(since) if isinstance(since, str) else since
    return max(0.0, (now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds())
