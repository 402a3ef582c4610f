"""I11: nothing is stuck. Unfinished work is running, due soon, or waiting for something identifiable."""

from collections.abc import Iterator

from approvals.requests.held_calls import SENT_BACK
from catalog.core.database import bind_datetime
from catalog.states import CallStatus
from plans.invariants.base import CheckInput, Finding, findings, invariant, rows, step_findings
from plans.models import Plan
from plans.states import PlanStatus, StepStatus, WaitingFor

LOST = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id WHERE s.lease_until < %s
"""
HALF_CLAIMED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    WHERE (s.claimed_by <> '') <> (s.lease_until IS NOT NULL)
      OR (s.status IN ('completed', 'failed', 'cancelled') AND (s.lease_until IS NOT NULL OR s.ready_at IS NOT NULL))
"""
NOT_CLAIMED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.ready_at < %s AND p.status = %s AND p.paused_at IS NULL
"""
WORKING = "SELECT 1 FROM plans_step WHERE lease_until >= %s LIMIT 1"
NOT_WAITING = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    LEFT JOIN catalog_call c ON c.id = s.call_id
    WHERE s.status = %s AND s.lease_until IS NULL AND s.ready_at IS NULL AND s.waiting_for NOT IN (%s, %s, %s)
      AND p.kind <> 'session'
      AND NOT (s.waiting_for = %s AND COALESCE(c.status, '') = %s)
      AND NOT (s.waiting_for = %s AND COALESCE(c.status, '') = %s)
      AND NOT (s.waiting_for = %s AND COALESCE(c.status, '') IN (%s, %s, %s))
"""
NOBODY_TO_ANSWER = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    LEFT JOIN catalog_call c ON c.id = s.call_id
    WHERE s.status = %s AND s.waiting_for = %s AND COALESCE(c.error_kind, '') <> %s AND NOT EXISTS (
      SELECT 1 FROM plans_question q WHERE q.step_id = s.id AND q.answered_at IS NULL)
"""
NOTHING_CALLED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.status = %s AND s.waiting_for = %s AND NOT EXISTS (
      SELECT 1 FROM plans_step c WHERE c.parent_id = s.id AND c.status IN (%s, %s))
"""
NOT_STOPPED = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.waiting_for = %s AND s.ready_at IS NULL AND s.waiting_since < %s AND NOT EXISTS (
      SELECT 1 FROM approvals_stop WHERE lifted_at IS NULL OR lifted_at >= %s)
"""
NEVER_READY = """
    SELECT p.public_id, s.step_id FROM plans_step s JOIN plans_plan p ON p.id = s.plan_id
    WHERE s.status = %s AND s.dependencies_left = 0 AND s.ready_at IS NULL AND p.status = %s AND p.kind <> 'session'
"""
RUNNING = """
    SELECT c.public_id FROM catalog_call c LEFT JOIN plans_step s ON s.call_id = c.id
    WHERE c.status = %s AND (s.id IS NULL OR s.lease_until IS NULL) AND NOT EXISTS (
      SELECT 1 FROM catalog_clientrun r WHERE r.call_id = c.id AND r.allowed_until >= %s)
"""
NOBODY_ASKED = """
    SELECT c.public_id FROM catalog_call c LEFT JOIN approvals_approvalrequest r ON r.call_id = c.id
    WHERE c.status = %s AND (r.id IS NULL OR r.status NOT IN ('pending', 'approved', 'rejected', 'responded')
      OR (r.applied_at IS NOT NULL))
"""
PAST_THEIR_TIME = """
    SELECT public_id FROM approvals_approvalrequest WHERE (status = 'pending' AND expires_at < %s)
      OR (status = 'approved' AND not_after < %s)
      OR (status IN ('approved', 'rejected', 'responded') AND applied_at IS NULL AND effective_at < %s)
"""
UNDER_WAY = """
    SELECT p.public_id FROM plans_plan p WHERE p.status = %s AND p.kind <> %s AND NOT EXISTS (
      SELECT 1 FROM plans_step s WHERE s.plan_id = p.id AND (s.status = %s OR s.ready_at IS NOT NULL))
"""
OVERDUE = "SELECT public_id FROM plans_plan WHERE status = %s AND deadline_at < %s"


@invariant(11, "Nothing is stuck: unfinished work is running, due soon, or waiting for something identifiable.")
def nothing_is_stuck(check: CheckInput) -> Iterator[Finding]:
    """Find expired leases, overdue times and waits that would never end."""
    yield from step_findings("Its lease expired, but it was not taken back.", LOST, check.overdue)
    yield from step_findings("Its owner, lease and status contradict each other.", HALF_CLAIMED)
    in_progress = str(PlanStatus.IN_PROGRESS)
    if not any(rows(WORKING, bind_datetime(check.now))):
        why = "It is ready but not claimed, although no worker is busy."
        yield from step_findings(why, NOT_CLAIMED, check.overdue, in_progress)
    waits = (WaitingFor.APPROVAL, CallStatus.HELD, WaitingFor.OUTCOME, CallStatus.OUTCOME_UNKNOWN)
    others = (WaitingFor.INPUT, WaitingFor.CALLS, WaitingFor.STOP)
    in_client = (WaitingFor.CLIENT, CallStatus.CREATED, CallStatus.READY, CallStatus.RUNNING)
    names = map(str, (StepStatus.IN_PROGRESS, *others, *waits, *in_client))
    yield from step_findings("It is in progress but neither runs nor waits for anything.", NOT_WAITING, *names)
    parameters = map(str, (StepStatus.IN_PROGRESS, WaitingFor.INPUT, SENT_BACK))
    yield from step_findings("It waits for input without an open question.", NOBODY_TO_ANSWER, *parameters)
    called = map(str, (StepStatus.IN_PROGRESS, WaitingFor.CALLS, StepStatus.PENDING, StepStatus.IN_PROGRESS))
    yield from step_findings("It waits for its agent's calls, but all have ended.", NOTHING_CALLED, *called)
    overdue = (str(WaitingFor.STOP), check.overdue, check.overdue)
    yield from step_findings("It waits for a stop to be lifted, but none stands.", NOT_STOPPED, *overdue)
    yield from step_findings(
        "Its dependencies are completed, but it is not ready.", NEVER_READY, str(StepStatus.PENDING), in_progress
    )
    why = "The call is running, but no step has a lease for it."
    yield from findings(why, RUNNING, str(CallStatus.RUNNING), check.overdue)
    yield from findings("The call is held without an open request.", NOBODY_ASKED, str(CallStatus.HELD))
    yield from findings("It is overdue but was not ended.", PAST_THEIR_TIME, *[check.overdue] * 3)
    working = map(str, (PlanStatus.IN_PROGRESS, Plan.Kind.SESSION, StepStatus.IN_PROGRESS))
    yield from findings("The plan is in progress, but none of its steps is.", UNDER_WAY, *working)
    yield from findings(
        "Its deadline has passed, but it is still in progress.", OVERDUE, str(PlanStatus.IN_PROGRESS), check.overdue
    )
