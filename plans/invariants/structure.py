"""I9, I12 and I16 to I19: event numbers, order of steps, limits, attempts, times and orphaned rows."""

import json
from collections.abc import Iterator
from datetime import timedelta

from django.db import connection

from catalog.core.database import bind_datetime, on_sqlite
from plans.engine.retries import CRASHES, TRIES
from plans.invariants.base import CheckInput, Finding, findings, invariant, rows, step_findings
from plans.models import Step
from plans.spec import MAX_STEPS
from plans.states import PlanStatus, StepStatus

TOO_MANY_STEPS = """
    SELECT p.public_id FROM plans_plan p JOIN plans_step s ON s.plan_id = p.id
    GROUP BY p.public_id HAVING COUNT(*) > %s
"""


@invariant(16, "No plan has more steps than allowed.")
def plans_keep_their_limits(check: CheckInput) -> Iterator[Finding]:
    yield from findings("The plan has more steps than allowed.", TOO_MANY_STEPS, MAX_STEPS)


ATTEMPTS = "SELECT public_id FROM catalog_call WHERE attempt > %s"
CRASHED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id WHERE s.crashes > %s
"""


@invariant(17, "No call is attempted, and no step lost, more often than allowed.")
def attempts_end(check: CheckInput) -> Iterator[Finding]:
    yield from findings("The call was attempted too often.", ATTEMPTS, max(TRIES, CRASHES))
    yield from step_findings("The step lost its worker too often.", CRASHED, CRASHES)


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
def rows_are_in_order(check: CheckInput) -> Iterator[Finding]:
    soon = bind_datetime(check.now + timedelta(seconds=check.grace_seconds))
    yield from findings("An event was stored after one that follows it.", EVENTS_IN_ORDER)
    yield from findings("The entry was stored after one that follows it.", ENTRIES_IN_ORDER)
    yield from findings("The entry is from the future.", FROM_THE_FUTURE, soon)
    yield from findings("An event is from the future.", EVENTS_FROM_THE_FUTURE, soon)


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


@invariant(19, "Every row belongs to an existing parent.")
def nothing_is_orphaned(check: CheckInput) -> Iterator[Finding]:
    """Find calls without plan or step. On SQLite, also check foreign keys, which can be switched off there."""
    yield from findings("The call's plan does not exist.", NO_PLAN)
    yield from findings("The call has not ended, but no step has it.", NO_STEP)
    yield from step_findings("Its call belongs to another plan.", OF_ANOTHER_PLAN)
    yield from findings("The call and its version have different tools.", OF_ANOTHER_TOOL)
    yield from step_findings("Its parent is not an agent's step of its plan.", NO_AGENTS)
    yield from step_findings("It was created by an agent but has dependencies or dependents.", NEEDED_BY_OTHERS)
    for pending, pk, plan, number in rows(OPEN_RUNS):
        awaited = {each["step_id"] for each in json.loads(pending) if each["step_id"]}
        there = set(Step.objects.filter(parent=pk, step_id__in=awaited).values_list("step_id", flat=True))
        if awaited - there:
            yield Finding(f"{plan}/{number}", "Its agent waits for a step that does not exist.")
    if on_sqlite():
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA foreign_key_check")
            while row := cursor.fetchone():
                yield Finding(f"{row[0]}:{row[1]}", "The row refers to a row that does not exist.")


NUMBERED = """
    SELECT p.public_id FROM plans_plan p
    LEFT JOIN (SELECT plan_id, COUNT(*) AS found, MIN(seq) AS first, MAX(seq) AS last FROM plans_event GROUP BY plan_id)
      e ON e.plan_id = p.id
    WHERE COALESCE(e.found, 0) <> p.last_seq OR COALESCE(e.last, 0) <> p.last_seq OR COALESCE(e.first, 1) <> 1
    ORDER BY p.id
"""
NEXT_TO_EACH_OTHER = """
    SELECT p.public_id, e.seq, e.seq <> e.before + 1, e.at < e.earlier FROM (
      SELECT plan_id, seq, at, LAG(seq) OVER w AS before, LAG(at) OVER w AS earlier FROM plans_event
      WINDOW w AS (PARTITION BY plan_id ORDER BY seq)
    ) e JOIN plans_plan p ON p.id = e.plan_id
    WHERE e.before IS NOT NULL AND (e.seq <> e.before + 1 OR e.at < e.earlier)
"""


@invariant(
    9, "Events of each plan are numbered 1, 2, 3… without gaps, the plan knows their number, and times increase."
)
def events_are_numbered(check: CheckInput) -> Iterator[Finding]:
    """Compare the events of each plan with its counter, then each event with the one before it."""
    yield from findings("The events do not match the plan's counter.", NUMBERED)
    for plan, seq, is_gap, _ in rows(NEXT_TO_EACH_OTHER):
        why = "A number is missing or duplicate." if is_gap else "An event is earlier than the one before it."
        yield Finding(f"{plan}#{seq}", why)


TOO_EARLY = """
    SELECT DISTINCT p.public_id, s.step_id FROM plans_stepdependency d
    JOIN plans_step s ON s.id = d.step_id JOIN plans_step n ON n.id = d.needs_id JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.started_at IS NOT NULL AND (n.status <> %s OR n.completed_at IS NULL OR n.completed_at > s.started_at)
"""
MISCOUNTED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    LEFT JOIN (SELECT d.step_id, COUNT(*) AS needed FROM plans_stepdependency d
      JOIN plans_step n ON n.id = d.needs_id WHERE n.status <> %s GROUP BY d.step_id) w ON w.step_id = s.id
    WHERE s.status = %s AND s.dependencies_left <> COALESCE(w.needed, 0)
"""
ELSEWHERE = """
    SELECT p.public_id, s.step_id FROM plans_stepdependency d
    JOIN plans_step s ON s.id = d.step_id JOIN plans_step n ON n.id = d.needs_id JOIN plans_plan p ON p.id = s.plan_id
    WHERE n.plan_id <> s.plan_id OR n.id = s.id
"""
SKIPPED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    LEFT JOIN plans_memoryitem m ON m.plan_id = s.plan_id AND m.type = 'step_skipped' AND m.step_id = s.step_id
    WHERE s.skipped AND (s.status <> %s OR m.id IS NULL)
"""
AHEAD_OF_NOTHING = """
    SELECT r.public_id FROM approvals_approvalrequest r LEFT JOIN plans_step s ON s.call_id = r.call_id
    LEFT JOIN plans_plan p ON p.id = s.plan_id
    WHERE r.is_early AND r.ready_at IS NULL AND r.status IN ('pending', 'approved')
      AND (s.id IS NULL OR s.status <> %s OR p.status NOT IN (%s, %s))
"""
USED_TOO_EARLY = """
    SELECT public_id FROM approvals_approvalrequest
    WHERE is_early AND consumed_at IS NOT NULL AND (ready_at IS NULL OR consumed_at < ready_at)
"""


@invariant(12, "No step starts before its dependencies are completed, and each skipped step has a note.")
def steps_keep_their_order(check: CheckInput) -> Iterator[Finding]:
    """Compare starts with the ends of dependencies, and counters with open dependencies.

    The memory that a `done_check` was evaluated against is not stored, so only its event and note can be checked.
    """
    completed, pending = str(StepStatus.COMPLETED), str(StepStatus.PENDING)
    yield from step_findings("It started before its dependencies were completed.", TOO_EARLY, completed)
    yield from step_findings("Its counter of open dependencies is wrong.", MISCOUNTED, completed, pending)
    yield from step_findings("It depends on a step of another plan or on itself.", ELSEWHERE)
    yield from step_findings("It was skipped without a note.", SKIPPED, completed)
    going = (PlanStatus.PENDING, PlanStatus.IN_PROGRESS)
    why = "It is an early request for a step that will not become ready."
    yield from findings(why, AHEAD_OF_NOTHING, pending, *map(str, going))
    yield from findings("It was used before its step was ready.", USED_TOO_EARLY)
