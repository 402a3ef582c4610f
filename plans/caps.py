"""How many steps may run at once: of one plan, and of one tool. Both hold across processes; 0 means no limit.

A step runs while it is under a lease. A plan's are counted in the claim itself, under the plan's lock. A tool's are
steps of many plans: on SQLite the one writer counts them, on PostgreSQL whoever holds the tool's own lock. Nobody waits
for that lock, because it is taken after the audit log's: who misses it looks again a moment later. A step
that was passed over is claimed when one of the tool's ends, and at the latest when the ticker looks.
"""

from collections.abc import Mapping, Set
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.backends.utils import CursorWrapper

from plans import carriers
from plans.store import statements
from plans.store.database import on_sqlite, stamp
from plans.store.statements import Claimed, Lease

EVERY_TOOL = "*"
"""The name under which the settings keep the limit of tools that have none of their own."""
WOKEN = 3
"""Plans that are told when a step of a tool with a limit has ended: the first of them may be at limits of its own."""
LOCKS = 8_041
"""The first half of the keys of PostgreSQL's advisory locks; the second is the tool's name, hashed."""


def _limits() -> Mapping[str, int]:
    limits: Mapping[str, int] = settings.TOOLGATE_MAX_RUNNING_PER_TOOL
    return limits


def of_tool(name: str) -> int:
    """Return how many calls of the tool may run at once; 0: as many as there are threads."""
    limits = _limits()
    return limits.get(name, limits.get(EVERY_TOOL, 0)) if limits and name else 0


def claim_next(cursor: CursorWrapper, plan_pk: int, lease: Lease) -> Claimed | None:
    """Claim the plan's next ready step that no limit keeps back; None when there is none."""
    if not _limits():
        return statements.claim_next(cursor, plan_pk, lease)
    passed_over, missed = _full_tools(cursor), False
    while candidate := _candidate(cursor, plan_pk, lease.now, passed_over):
        step_pk, tool = candidate
        if of_tool(tool):
            has_lock = _lock(cursor, tool)
            missed = missed or not has_lock
            if not has_lock or tool in _full_tools(cursor):
                passed_over |= {tool}
                continue
        return None if plan_is_full(cursor, plan_pk) else statements.claim_step(cursor, step_pk, lease)
    if missed:
        carriers.hint_soon(plan_pk)
    return None


def _candidate(cursor: CursorWrapper, plan_pk: int, now: datetime, without: Set[str]) -> tuple[int, str] | None:
    names = sorted(without)
    skipped = f" AND tool NOT IN ({', '.join(['%s'] * len(names))})" if names else ""
    cursor.execute(
        f"SELECT id, tool FROM plans_step WHERE plan_id = %s AND ready_at <= %s{skipped} ORDER BY id LIMIT 1",
        [plan_pk, stamp(now), *names],
    )
    row: tuple[int, str] | None = cursor.fetchone()
    return row


def _full_tools(cursor: CursorWrapper) -> set[str]:
    """Return the tools of which as many calls run as may."""
    cursor.execute("SELECT tool, COUNT(*) FROM plans_step WHERE lease_until IS NOT NULL GROUP BY tool")
    return {tool for tool, count in cursor.fetchall() if 0 < of_tool(tool) <= count}


def _lock(cursor: CursorWrapper, tool: str) -> bool:
    """Take the tool's lock until the transaction ends; False when someone else is claiming one of its steps."""
    if on_sqlite():
        return True
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [LOCKS, tool])
    [taken] = cursor.fetchone()
    return bool(taken)


def plan_is_full(cursor: CursorWrapper, plan_pk: int) -> bool:
    """Say whether as many steps of the plan run as may; the plan is locked."""
    most = settings.TOOLGATE_MAX_RUNNING_PER_PLAN
    if not most:
        return False
    cursor.execute("SELECT COUNT(*) FROM plans_step WHERE plan_id = %s AND lease_until IS NOT NULL", [plan_pk])
    return bool(cursor.fetchone()[0] >= most)


def starts_at_once(cursor: CursorWrapper, tool: str, plan_pk: int, *, joins: bool) -> bool:
    """Say whether a direct call may start where it is stored: no limit of its tool is to be counted, its plan has room.

    Any other is claimed as every step is. `joins` says that the plan has other steps.
    """
    return not of_tool(tool) and not (joins and plan_is_full(cursor, plan_pk))


def wake_others(cursor: CursorWrapper, tool: str, plan_pk: int, *, now: datetime) -> None:
    """Tell other plans that wait for a tool with a limit that one of its calls has ended: the oldest steps first."""
    if not of_tool(tool):
        return
    cursor.execute(
        "SELECT plan_id FROM plans_step WHERE tool = %s AND ready_at <= %s AND plan_id <> %s "
        f"AND {statements.NOT_PAUSED} GROUP BY plan_id ORDER BY MIN(ready_at), plan_id LIMIT %s",
        [tool, stamp(now), plan_pk, WOKEN],
    )
    others = [other for (other,) in cursor.fetchall()]
    if others:
        transaction.on_commit(lambda: _tell(others), robust=True)


def _tell(plan_pks: list[int]) -> None:
    """Hint at plans of others once their call's end is committed: a hint's row in it would come after the audit log."""
    for plan_pk in plan_pks:
        carriers.hint(plan_pk)
