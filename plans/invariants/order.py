"""I12: steps start after what they need, and skipped ones say why."""

from collections.abc import Iterator

from plans.invariants.base import Finding, World, each, invariant, steps
from plans.states import PlanStatus, StepStatus

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


@invariant(12, "No step starts before all that it needs is completed, and every skipped step has a note that says so.")
def steps_keep_their_order(world: World) -> Iterator[Finding]:
    """Compare starts with the ends of what they need, and counters with what is left.

    What a `done_check` was judged by is not kept: that its event is there, and the note, is all that can be checked.
    """
    completed, pending = str(StepStatus.COMPLETED), str(StepStatus.PENDING)
    yield from steps("It started before all that it needs was completed.", TOO_EARLY, completed)
    yield from steps("It counts otherwise what it still needs.", MISCOUNTED, completed, pending)
    yield from steps("It needs a step of another plan, or itself.", ELSEWHERE)
    yield from steps("It was skipped, and no note says so.", SKIPPED, completed)
    going = (PlanStatus.PENDING, PlanStatus.IN_PROGRESS)
    why = "It was asked early about a step that will not become ready."
    yield from each(why, AHEAD_OF_NOTHING, pending, *map(str, going))
    yield from each("It was used before its step was ready.", USED_TOO_EARLY)
