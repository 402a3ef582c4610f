"""I2 to I5: decisions. Who decided, when, how often, and what it was used for."""

from collections.abc import Iterator

from catalog.definitions.levels import SafetyLevel
from plans.invariants.base import Finding, World, each, invariant
from plans.invariants.granting import how_often_grants_were_used

BY_THE_CLOCK = """
    SELECT r.public_id FROM approvals_approvalrequest r JOIN catalog_call c ON c.id = r.call_id
    WHERE r.consumed_at IS NOT NULL AND (
      r.decided_at IS NULL OR r.effective_at IS NULL OR r.not_after IS NULL
      OR r.decided_at >= r.expires_at OR r.effective_at < r.decided_at OR r.consumed_at < r.effective_at
      OR r.consumed_at >= r.not_after OR c.started_at IS NULL OR c.started_at < r.decided_at)
"""
NO_SUCH_ANSWER = """
    SELECT r.public_id FROM approvals_approvalrequest r WHERE r.decided_at IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM approvals_review v JOIN approvals_round o ON o.id = v.round_id
      WHERE o.request_id = r.id AND o.number = r.round_number AND v.undone_at IS NULL AND v.at = r.decided_at)
"""
BY_THE_LOG = """
    SELECT r.public_id FROM approvals_approvalrequest r JOIN catalog_call c ON c.id = r.call_id
    LEFT JOIN (SELECT object_ref, MAX(seq) AS seq FROM approvals_auditentry WHERE action = 'approval.decided'
      GROUP BY object_ref) d ON d.object_ref = r.public_id
    LEFT JOIN (SELECT object_ref, MIN(seq) AS seq FROM approvals_auditentry WHERE action = 'approval.consumed'
      GROUP BY object_ref) u ON u.object_ref = r.public_id
    LEFT JOIN (SELECT object_ref, MIN(seq) AS seq, MAX(seq) AS last FROM approvals_auditentry
      WHERE action = 'call.started' GROUP BY object_ref) s ON s.object_ref = c.public_id
    LEFT JOIN approvals_grantuse g ON g.call_id = c.id
    WHERE r.consumed_at IS NOT NULL AND (d.seq > u.seq OR u.seq > CASE WHEN g.id IS NULL THEN s.seq ELSE s.last END)
"""
"""A call that a grant let start, and that was handed back unbegun, has one start before people were asked."""


@invariant(2, "Whatever people had to approve started after they decided, and within the time that they gave.")
def decided_before_it_started(world: World) -> Iterator[Finding]:
    """Compare times by the clock, and the order of the audit log. That the log tells of each is I13's."""
    yield from each("It was not decided, in effect and used in this order, within its time.", BY_THE_CLOCK)
    yield from each("No answer that counts is as old as its decision.", NO_SUCH_ANSWER)
    yield from each("The log has its decision, its use and the start in another order.", BY_THE_LOG)


USED = """
    SELECT public_id FROM approvals_approvalrequest
    WHERE (status = 'consumed') <> (consumed_at IS NOT NULL)
"""
USED_TWICE = """
    SELECT object_ref FROM approvals_auditentry WHERE action = 'approval.consumed' GROUP BY object_ref
    HAVING COUNT(*) > 1
"""
ONE_REQUEST = """
    SELECT c.public_id FROM catalog_call c JOIN approvals_approvalrequest r ON r.call_id = c.id
    GROUP BY c.public_id HAVING COUNT(*) > 1
"""
STARTED_AGAIN = """
    SELECT c.public_id FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
    WHERE c.attempt > 1 AND (v.safety_level = %s OR (v.safety_level <> %s AND NOT v.retry_safe))
"""


@invariant(3, "An approval is used once, and what may not run twice by itself was started once.")
def approvals_are_used_once(world: World) -> Iterator[Finding]:
    """Count the uses of each request, the requests of each call, and the attempts of calls that have but one."""
    yield from how_often_grants_were_used()
    yield from each("Its state and its time of use contradict each other.", USED)
    yield from each("The log tells of more than one use.", USED_TWICE)
    yield from each("The call has more than one request.", ONE_REQUEST)
    levels = (str(SafetyLevel.DANGEROUS), str(SafetyLevel.SAFE))
    yield from each("The call was started more than once.", STARTED_AGAIN, *levels)


DECIDED_OR_NOT = """
    SELECT public_id FROM approvals_approvalrequest
    WHERE (status IN ('approved', 'consumed', 'revoked', 'rejected', 'responded', 'changes_requested')
        AND (decided_at IS NULL OR effective_at IS NULL))
      OR (status IN ('approved', 'consumed', 'revoked') AND not_after IS NULL)
      OR (status IN ('revoked', 'changes_requested') AND applied_at IS NULL)
      OR (status = 'pending' AND (decided_at IS NOT NULL OR applied_at IS NOT NULL))
      OR (status IN ('rejected', 'responded', 'changes_requested') AND not_after IS NOT NULL)
      OR (status = 'superseded' AND superseded_by_id IS NULL)
"""
TWO_ANSWERS = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    WHERE v.undone_at IS NULL GROUP BY r.public_id, v.round_id, v.person_id HAVING COUNT(*) > 1
"""
AFTER_THE_END = """
    SELECT DISTINCT r.public_id FROM approvals_approvalrequest r
    JOIN approvals_review d ON d.request_id = r.id AND d.undone_at IS NULL AND d.at = r.decided_at
    JOIN approvals_review v ON v.request_id = r.id AND v.undone_at IS NULL AND v.id > d.id
"""
OTHER_VERDICT = """
    SELECT r.public_id FROM approvals_approvalrequest r
    JOIN approvals_round o ON o.request_id = r.id AND o.number = r.round_number
    LEFT JOIN approvals_review v ON v.round_id = o.id AND v.undone_at IS NULL AND v.verdict <> 'approve'
    GROUP BY r.id, r.public_id, r.status HAVING
      (r.status = 'rejected' AND (COUNT(v.id) <> 1 OR MAX(v.verdict) <> 'reject'))
      OR (r.status = 'responded' AND (COUNT(v.id) <> 1 OR MAX(v.verdict) <> 'respond'))
      OR (r.status = 'changes_requested' AND (COUNT(v.id) <> 1 OR MAX(v.verdict) <> 'request_changes'))
      OR (r.status IN ('pending', 'approved', 'consumed', 'revoked') AND COUNT(v.id) > 0)
"""
RAN_ALL_THE_SAME = """
    SELECT r.public_id FROM approvals_approvalrequest r JOIN catalog_call c ON c.id = r.call_id
    WHERE r.status NOT IN ('pending', 'approved', 'consumed')
      AND (r.consumed_at IS NOT NULL OR c.attempt > 0 OR c.status IN ('running', 'outcome_unknown'))
"""
ENDED_TWICE = """
    SELECT object_ref FROM approvals_auditentry
    WHERE action IN ('approval.consumed', 'approval.expired', 'approval.withdrawn', 'approval.invalidated',
      'approval.revoked')
    GROUP BY object_ref HAVING COUNT(*) > 1
"""


@invariant(4, "Every request is decided once, by answers that came before, and what was not approved did not run.")
def one_decision(world: World) -> Iterator[Finding]:
    """Compare each request's state with its times, its answers, its ends in the log, and its call."""
    yield from each("Its state and its times contradict each other.", DECIDED_OR_NOT)
    yield from each("Two answers of one person count.", TWO_ANSWERS)
    yield from each("An answer counts that came after the decision.", AFTER_THE_END)
    yield from each("Its state is not what its answers say.", OTHER_VERDICT)
    yield from each("It was not approved, and its call started.", RAN_ALL_THE_SAME)
    yield from each("The log tells of more than one end.", ENDED_TWICE)


OWN = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    JOIN approvals_policyrevision p ON p.id = r.policy_revision_id JOIN catalog_call c ON c.id = r.call_id
    WHERE v.undone_at IS NULL AND v.verdict = 'approve' AND NOT p.allow_self_review AND (v.person_id = c.requested_by_id
      OR EXISTS (SELECT 1 FROM catalog_callrequester q WHERE q.call_id = r.call_id AND q.user_id = v.person_id)
      OR EXISTS (SELECT 1 FROM plans_plan a WHERE a.public_id = c.plan_ref AND a.author_id = v.person_id))
"""
TOO_FEW = """
    SELECT r.public_id FROM approvals_approvalrequest r
    JOIN approvals_round o ON o.request_id = r.id AND o.number = r.round_number
    LEFT JOIN approvals_review v ON v.round_id = o.id AND v.undone_at IS NULL AND v.verdict = 'approve'
    WHERE r.status IN ('approved', 'consumed', 'revoked') GROUP BY r.id, r.public_id, o.quorum
    HAVING COUNT(DISTINCT v.person_id) < o.quorum OR COUNT(DISTINCT v.person_id) < 1
"""
EDITOR = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    JOIN approvals_round o ON o.id = v.round_id JOIN approvals_policyrevision p ON p.id = o.policy_revision_id
    WHERE v.undone_at IS NULL AND v.verdict = 'approve' AND o.editor_id = v.person_id
      AND (o.quorum > 1 OR NOT p.editor_may_approve)
"""
NO_DOOR_FOR_ANSWERS = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    WHERE v.channel NOT IN ('page', 'rest')
"""


@invariant(5, "Nobody's approval counts for what they asked for, and as many people agreed as the rule asks for.")
def someone_else_decided(world: World) -> Iterator[Finding]:
    """Hold approvals that count against who asked, who edited, and how many are needed.

    Which token an answer came with is not kept: that agents' never decide is enforced where answers are taken.
    """
    yield from each("Someone who asked for the call approved it.", OWN)
    yield from each("Fewer people approved it than must.", TOO_FEW)
    yield from each("An editor's approval counts where it must not.", EDITOR)
    yield from each("An answer came by a way that takes none.", NO_DOOR_FOR_ANSWERS)
