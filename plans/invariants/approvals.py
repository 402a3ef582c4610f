"""Invariants of approvals and grants: I1 to I6 and I20, and the part of I13 about grants.

Digests are recomputed from the stored rows. Only the current digest of an implementation is stored: for a request that
is older than the code, the digest can only be compared with the audit log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import F

from approvals.models import Round
from approvals.policies.rulebook import Rule, rule_from_revision
from approvals.requests.digests import ApprovalBinding, Origin, action_digest, current_origin
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import FINGERPRINT_COLUMNS
from catalog.inventory.versions import columns_fingerprint
from catalog.models import ToolVersion
from plans.invariants.base import AT_ONCE, CheckInput, Finding, findings, invariant
from plans.invariants.envelopes import envelope_uses_are_counted, envelopes_cover_their_calls

NOT_APPROVED = """
    SELECT c.public_id FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
    LEFT JOIN approvals_approvalrequest r ON r.call_id = c.id
    WHERE c.attempt > 0 AND COALESCE(r.status, '') <> 'consumed' AND (v.safety_level = %s OR r.id IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM approvals_grantuse g WHERE g.call_id = c.id AND r.id IS NULL)
      AND NOT EXISTS (SELECT 1 FROM approvals_envelopeuse e WHERE e.call_id = c.id AND r.id IS NULL)
"""
SOMETHING_ELSE_RAN = """
    SELECT c.public_id FROM catalog_call c JOIN approvals_approvalrequest r ON r.call_id = c.id
    LEFT JOIN approvals_round o ON o.request_id = r.id AND o.number = r.round_number
    WHERE r.status = 'consumed' AND (o.id IS NULL OR o.arguments <> c.arguments OR c.version_id <> r.tool_version_id)
"""
OTHER_DIGEST_USED = """
    SELECT r.public_id FROM approvals_approvalrequest r JOIN approvals_auditentry e ON e.object_ref = r.public_id
    WHERE e.action = 'approval.consumed' AND e.digest <> r.digest
"""


@invariant(1, "Each call that needed approval ran exactly as approved: same arguments, definition, code and state.")
def started_calls_were_approved(check: CheckInput) -> Iterator[Finding]:
    """Find started calls without a used approval, grant or envelope, or that differ from what these cover."""
    yield from findings("The call started without a used approval.", NOT_APPROVED, str(SafetyLevel.DANGEROUS))
    yield from grants_cover_their_calls()
    yield from envelopes_cover_their_calls()
    yield from findings("The call differs from the approved one.", SOMETHING_ELSE_RAN)
    yield from findings("The audit log has another digest for its use.", OTHER_DIGEST_USED)
    for round_ in _rounds_with_other_digest(used=True):
        yield Finding(round_.request.call.public_id, "The approved content does not match its digest.")


SEEN = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_round o ON o.id = v.round_id
    JOIN approvals_approvalrequest r ON r.id = o.request_id WHERE v.seen_digest <> o.digest OR v.request_id <> r.id
"""
NOT_OF_ITS_ROUND = """
    SELECT r.public_id FROM approvals_approvalrequest r
    LEFT JOIN approvals_round o ON o.request_id = r.id AND o.number = r.round_number
    WHERE o.id IS NULL OR o.digest <> r.digest
"""
DIGEST_NOT_IN_LOG = """
    SELECT DISTINCT r.public_id FROM approvals_round o JOIN approvals_approvalrequest r ON r.id = o.request_id
    WHERE NOT EXISTS (SELECT 1 FROM approvals_auditentry e WHERE e.object_ref = r.public_id
      AND e.action IN ('approval.opened', 'approval.prepared', 'approval.edited') AND e.digest = o.digest)
"""


@invariant(6, "Every reviewer saw the current request, and neither it nor a tool version has changed since.")
def reviewed_content_is_unchanged(check: CheckInput) -> Iterator[Finding]:
    """Compare the digests of requests and versions with each other, with the audit log and with recomputed ones.

    A policy revision is bound by its number only; I21 compares its row with the audit log.
    """
    yield from findings("A review has another digest than its round.", SEEN)
    yield from findings("Its digest differs from its round's.", NOT_OF_ITS_ROUND)
    yield from findings("One of its digests is missing from the audit log.", DIGEST_NOT_IN_LOG)
    for round_ in _rounds_with_other_digest(used=False):
        yield Finding(round_.request.public_id, "The content of the request does not match its digest.")
    for version in ToolVersion.objects.select_related("tool").iterator(AT_ONCE):
        columns = {name: getattr(version, name) for name in FINGERPRINT_COLUMNS}
        if columns_fingerprint(version.tool.name, columns) != version.fingerprint:
            yield Finding(f"{version.tool.name}/{version.number}", "The version does not match its fingerprint.")


def _rounds(*, used: bool) -> Iterator[Round]:
    """Yield the rounds whose approval was used, or all others, with the rows that their digests cover."""
    related = ("request__call__implementation", "request__tool_version", "policy_revision__policy")
    rounds = Round.objects.select_related(*related).defer("preview", "request__call__response")
    current = {"request__status": "consumed", "number": F("request__round_number")}
    selected = rounds.filter(**current).order_by("request__consumed_at") if used else rounds.exclude(**current)
    yield from selected.iterator(AT_ONCE)


def _rounds_with_other_digest(*, used: bool) -> Iterator[Round]:
    """Yield the rounds whose content matches their digest in no epoch, unless the tool's code changed since."""
    digests = _Digests()
    for round_ in _rounds(used=used):
        implementation = round_.request.call.implementation
        code_has_changed = implementation is not None and implementation.updated_at > round_.created_at
        if not code_has_changed and digests.epoch_of(round_) is None:
            yield round_


@dataclass(slots=True)
class _Digests:
    origins: list[Origin] = field(default_factory=list)
    rules: dict[int, Rule] = field(default_factory=dict)

    def epoch_of(self, round_: Round) -> int | None:
        """Return the epoch in which this round's content matches its digest; None if it matches in no epoch."""
        key = round_.policy_revision_id
        if key not in self.rules:
            self.rules[key] = rule_from_revision(round_.policy_revision)
        request, rule = round_.request, self.rules[key]
        implementation = request.call.implementation
        code = implementation.digest if implementation else ""
        binding = ApprovalBinding(request.tool_version.fingerprint, code, round_.arguments, round_.state_token)
        digests = ((each.epoch, action_digest(request.call, binding, rule, each)) for each in self._origins())
        return next((epoch for epoch, digest in digests if digest == round_.digest), None)

    def _origins(self) -> list[Origin]:
        """Return the origin of this installation in each of its epochs, the current one first."""
        if not self.origins:
            now = current_origin()
            self.origins = [Origin(now.name, epoch) for epoch in range(now.epoch, 0, -1)]
        return self.origins


@invariant(20, "No approval from an earlier epoch was used in a later one.")
def approvals_stay_in_their_epoch(check: CheckInput) -> Iterator[Finding]:
    """Check that the epochs of used approvals never decrease in the order of their use."""
    if current_origin().epoch == 1:
        return
    digests, last = _Digests(), 0
    for round_ in _rounds(used=True):
        epoch = digests.epoch_of(round_)
        if epoch is not None and epoch < last:
            yield Finding(round_.request.public_id, "It is from an earlier epoch than an approval used before it.")
        last = max(last, epoch or 0)


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
    LEFT JOIN (SELECT call_id FROM approvals_grantuse UNION ALL SELECT call_id FROM approvals_envelopeuse) g
      ON g.call_id = c.id
    WHERE r.consumed_at IS NOT NULL
      AND (d.seq > u.seq OR u.seq > CASE WHEN g.call_id IS NULL THEN s.seq ELSE s.last END)
"""
"""A call that a grant or an envelope let start, and that was handed back, has one start before its request."""


@invariant(2, "Each call that needed approval started after the decision and within the allowed time.")
def decided_before_it_started(check: CheckInput) -> Iterator[Finding]:
    """Compare times and the order of audit entries; I13 checks that the entries exist."""
    yield from findings("It was not decided, in effect and used in this order and in time.", BY_THE_CLOCK)
    yield from findings("No counted review has the time of its decision.", NO_SUCH_ANSWER)
    yield from findings("The audit log has its decision, use and start in another order.", BY_THE_LOG)


USE_CONTRADICTS_STATE = """
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


@invariant(3, "Each approval was used once, and a call that must not repeat was started once.")
def approvals_are_used_once(check: CheckInput) -> Iterator[Finding]:
    """Count the uses of each request, the requests of each call, and the attempts of calls that may have only one."""
    yield from grant_uses_are_counted()
    yield from envelope_uses_are_counted()
    yield from findings("Its status and its time of use contradict each other.", USE_CONTRADICTS_STATE)
    yield from findings("The audit log has more than one use.", USED_TWICE)
    yield from findings("The call has more than one request.", ONE_REQUEST)
    levels = (str(SafetyLevel.DANGEROUS), str(SafetyLevel.SAFE))
    yield from findings("The call was started more than once.", STARTED_AGAIN, *levels)


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
RAN_DESPITE_REJECTION = """
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


@invariant(4, "Each request was decided once, by earlier reviews, and calls without approval did not run.")
def one_decision(check: CheckInput) -> Iterator[Finding]:
    """Compare the status of each request with its times, its reviews, its end in the audit log, and its call."""
    yield from findings("Its status and its times contradict each other.", DECIDED_OR_NOT)
    yield from findings("Two reviews of one person count.", TWO_ANSWERS)
    yield from findings("A review after the decision counts.", AFTER_THE_END)
    yield from findings("Its status contradicts its reviews.", OTHER_VERDICT)
    yield from findings("It was not approved, but its call started.", RAN_DESPITE_REJECTION)
    yield from findings("The audit log has more than one end.", ENDED_TWICE)


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
ANSWER_NOT_ALLOWED = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    WHERE v.channel NOT IN ('page', 'rest')
"""


@invariant(5, "No approval by a requester counts, and as many people agreed as the policy requires.")
def requesters_do_not_decide(check: CheckInput) -> Iterator[Finding]:
    """Compare counted approvals with the requesters, the editors and the quorum.

    The token used for a review is not stored; that agents' tokens never decide is enforced when reviews are accepted.
    """
    yield from findings("A requester of the call approved it.", OWN)
    yield from findings("Fewer people approved it than required.", TOO_FEW)
    yield from findings("An editor's approval counts although it must not.", EDITOR)
    yield from findings("A review came through a channel that accepts none.", ANSWER_NOT_ALLOWED)


BOTH = """
    SELECT c.public_id FROM catalog_call c JOIN approvals_grantuse u ON u.call_id = c.id
    JOIN approvals_approvalrequest r ON r.call_id = c.id AND r.opened_at <= u.at
"""
OTHER_CALL = """
    SELECT c.public_id FROM approvals_grantuse u JOIN approvals_grant g ON g.id = u.grant_id
    JOIN catalog_call c ON c.id = u.call_id JOIN catalog_toolversion v ON v.id = c.version_id
    WHERE v.tool_id <> g.tool_id OR v.fingerprint <> g.fingerprint OR c.replaces_id IS NOT NULL
      OR (g.scope = 'plan' AND c.plan_ref <> g.scope_ref) OR (g.scope = 'session' AND c.session <> g.scope_ref)
      OR (g.scope <> 'plan' AND g.requester_id <> c.requested_by_id)
      OR u.at < g.created_at OR u.at >= g.expires_at
"""
MISCOUNTED = """
    SELECT g.public_id FROM approvals_grant g LEFT JOIN approvals_grantuse u ON u.grant_id = g.id
    GROUP BY g.id, g.public_id, g.uses, g.max_uses HAVING COUNT(u.id) <> g.uses OR g.uses > g.max_uses
"""
MADE = """
    SELECT ref FROM (SELECT public_id AS ref, 1 AS n FROM approvals_grant UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'grant.created') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
GRANT_USE_CONTRADICTS_LOG = """
    SELECT ref FROM (
      SELECT c.public_id AS ref, 1 AS n FROM approvals_grantuse u JOIN catalog_call c ON c.id = u.call_id UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'grant.used') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
ENDED = """
    SELECT ref FROM (SELECT public_id AS ref, 1 AS n FROM approvals_grant WHERE revoked_at IS NOT NULL UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'grant.revoked') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""


def grants_cover_their_calls() -> Iterator[Finding]:
    yield from findings("The call was approved, but a grant was used for it too.", BOTH)
    yield from findings("The grant used for the call does not cover it.", OTHER_CALL)


def grant_uses_are_counted() -> Iterator[Finding]:
    yield from findings("Its counter differs from its uses or exceeds its limit.", MISCOUNTED)


def audit_log_has_grants() -> Iterator[Finding]:
    yield from findings("The grant and its creation in the audit log do not match.", MADE)
    yield from findings("The use of the grant and its audit entry do not match.", GRANT_USE_CONTRADICTS_LOG)
    yield from findings("The end of the grant and its audit entry do not match.", ENDED)
