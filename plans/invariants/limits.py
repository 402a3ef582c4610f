"""I16 to I19: limits, attempts, times and rows that belong to nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta

from django.db import connection

from plans.engine.finishing import CRASHES, TRIES
from plans.invariants.base import Finding, World, each, invariant, rows, steps
from plans.models import Step
from plans.spec import MAX_STEPS
from plans.store.database import on_sqlite, stamp

TOO_MANY_STEPS = """
    SELECT p.public_id FROM plans_plan p JOIN plans_step s ON s.plan_id = p.id
    GROUP BY p.public_id HAVING COUNT(*) > %s
"""


@invariant(16, "No plan has more steps than a plan may have.")
def plans_keep_their_limits(world: World) -> Iterator[Finding]:
    """Count the steps of each plan."""
    yield from each("The plan has more steps than it may have.", TOO_MANY_STEPS, MAX_STEPS)


ATTEMPTS = "SELECT public_id FROM catalog_call WHERE attempt > %s"
CRASHED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id WHERE s.crashes > %s
"""


@invariant(17, "No call is tried, and no step lost, more often than is allowed.")
def attempts_end(world: World) -> Iterator[Finding]:
    """Compare counters with their limits."""
    yield from each("The call was tried too often.", ATTEMPTS, max(TRIES, CRASHES))
    yield from steps("The step lost its worker too often.", CRASHED, CRASHES)


EVENTS_IN_ORDER = """
    SELECT p.public_id FROM (SELECT plan_id, id, LAG(id) OVER (PARTITION BY plan_id ORDER BY seq) AS before
      FROM plans_event) e JOIN plans_plan p ON p.id = e.plan_id WHERE e.before >= e.id
"""
ENTRIES_IN_ORDER = """
    SELECT 'audit#' || CAST(seq AS varchar(20)) FROM
      (SELECT seq, id, LAG(id) OVER (ORDER BY seq) AS before FROM approvals_auditentry) e WHERE before >= id
"""
FROM_THE_FUTURE = "SELECT 'audit#' || CAST(seq AS varchar(20)) FROM approvals_auditentry WHERE at > %s"
EVENTS_FROM_THE_FUTURE = """
    SELECT DISTINCT p.public_id FROM plans_event e JOIN plans_plan p ON p.id = e.plan_id WHERE e.at > %s
"""


@invariant(18, "Rows were written in the order of their numbers, and none is from the future.")
def rows_are_in_order(world: World) -> Iterator[Finding]:
    """Compare keys with numbers, and times with now."""
    soon = stamp(world.now + timedelta(seconds=world.grace_seconds))
    yield from each("An event was stored after one that follows it.", EVENTS_IN_ORDER)
    yield from each("The entry was stored after one that follows it.", ENTRIES_IN_ORDER)
    yield from each("The entry is from the future.", FROM_THE_FUTURE, soon)
    yield from each("An event is from the future.", EVENTS_FROM_THE_FUTURE, soon)


NO_PLAN = """
    SELECT c.public_id FROM catalog_call c LEFT JOIN plans_plan p ON p.public_id = c.plan_ref
    WHERE c.plan_ref <> '' AND p.id IS NULL
"""
NO_STEP = """
    SELECT c.public_id FROM catalog_call c LEFT JOIN plans_step s ON s.call_id = c.id
    WHERE c.plan_ref <> '' AND c.status IN ('created', 'held', 'ready', 'running', 'outcome_unknown') AND s.id IS NULL
"""
OF_ANOTHER_PLAN = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    JOIN catalog_call c ON c.id = s.call_id WHERE c.plan_ref <> p.public_id
"""
OF_ANOTHER_TOOL = """
    SELECT c.public_id FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
    JOIN catalog_tool t ON t.id = v.tool_id WHERE t.name <> c.tool_name
"""


NO_AGENTS = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    JOIN plans_step a ON a.id = s.parent_id
    WHERE a.plan_id <> s.plan_id OR a.agent = '' OR a.parent_id IS NOT NULL
"""
NEEDED_BY_OTHERS = """
    SELECT DISTINCT p.public_id, s.step_id FROM plans_stepdependency d
    JOIN plans_step s ON s.id = d.step_id OR s.id = d.needs_id JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.parent_id IS NOT NULL
"""
OPEN_RUNS = """
    SELECT r.pending, s.id, p.public_id, s.step_id FROM plans_agentrun r
    JOIN plans_step s ON s.id = r.step_id JOIN plans_plan p ON p.id = s.plan_id WHERE r.ended_at IS NULL
"""


def _agents() -> Iterator[Finding]:
    """Look at what agents ask and call: it stands under their steps, and what an open run waits for is there."""
    yield from steps("It stands under a step that is no agent's of its plan.", NO_AGENTS)
    yield from steps("An agent called it, and a step needs it or is needed by it.", NEEDED_BY_OTHERS)
    for pending, pk, plan, number in rows(OPEN_RUNS):
        awaited = {each["step_id"] for each in json.loads(pending) if each["step_id"]}
        there = set(Step.objects.filter(parent=pk, step_id__in=awaited).values_list("step_id", flat=True))
        if awaited - there:
            yield Finding(f"{plan}/{number}", "Its agent waits for a step that it has not.")


@invariant(19, "Every row belongs to something that is there.")
def nothing_is_orphaned(world: World) -> Iterator[Finding]:
    """Look for calls without plan or step; on SQLite, where anyone may switch keys off, at all foreign keys too."""
    yield from each("The call's plan is not there.", NO_PLAN)
    yield from each("The call is not over, and no step has it.", NO_STEP)
    yield from steps("Its call is another plan's.", OF_ANOTHER_PLAN)
    yield from each("The call is of another tool than its version.", OF_ANOTHER_TOOL)
    yield from _agents()
    if on_sqlite():
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA foreign_key_check")
            while row := cursor.fetchone():
                yield Finding(f"{row[0]}:{row[1]}", "The row belongs to one that is not there.")
