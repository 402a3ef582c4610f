"""I13: the audit log is complete and agrees with the tables."""

import json
from collections.abc import Iterator

from approvals.audit.accounts import DELETED, GIVEN, TAKEN
from approvals.audit.rights import changed_rows
from approvals.audit.verification import verify
from approvals.models import Instance
from catalog.definitions.levels import SafetyLevel
from catalog.states import CallStatus
from plans.engine.retries import UNSTARTED_REASONS
from plans.invariants.approvals import audit_log_has_grants
from plans.invariants.base import CheckInput, Finding, findings, invariant, rows
from plans.invariants.envelopes import audit_log_has_envelopes

OPENED = """
    SELECT ref FROM (SELECT public_id AS ref, 1 AS n FROM approvals_approvalrequest WHERE NOT is_early UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'approval.opened') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
PREPARED = """
    SELECT ref FROM (SELECT public_id AS ref, 1 AS n FROM approvals_approvalrequest
        WHERE is_early OR ready_at IS NOT NULL UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'approval.prepared') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
REVIEWED = """
    SELECT ref FROM (
      SELECT r.public_id AS ref, COUNT(*) + COUNT(v.undone_at) AS n FROM approvals_review v
        JOIN approvals_approvalrequest r ON r.id = v.request_id GROUP BY r.public_id UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'approval.reviewed') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
REVIEWED_OTHERWISE = """
    SELECT DISTINCT r.public_id FROM approvals_review v JOIN approvals_approvalrequest r ON r.id = v.request_id
    WHERE NOT EXISTS (SELECT 1 FROM approvals_auditentry e WHERE e.object_ref = r.public_id
      AND e.action = 'approval.reviewed' AND e.actor_id = v.person_id
      AND e.details LIKE '%%"verdict":"' || v.verdict || '"%%')
"""
DECIDED = """
    SELECT ref FROM (
      SELECT public_id AS ref, 1 AS n FROM approvals_approvalrequest WHERE decided_at IS NOT NULL UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'approval.decided' UNION ALL
      SELECT object_ref, 1 FROM approvals_auditentry
        WHERE action = 'approval.reviewed' AND details LIKE %s) sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
UNDONE = '%"verdict":"undone"%'
"""In canonical JSON this can only match a field, because quotes inside strings are escaped."""
ENDED = """
    SELECT ref FROM (
      SELECT public_id AS ref, 'approval.' || status AS action, 1 AS n FROM approvals_approvalrequest
        WHERE status IN ('consumed', 'expired', 'withdrawn', 'invalidated', 'revoked') UNION ALL
      SELECT object_ref, action, -1 FROM approvals_auditentry
        WHERE action IN ('approval.consumed', 'approval.expired', 'approval.withdrawn', 'approval.invalidated',
          'approval.revoked')
          AND object_ref NOT IN (SELECT public_id FROM approvals_approvalrequest WHERE status = 'superseded')) sides
    GROUP BY ref, action HAVING SUM(n) <> 0
"""
"""Superseded requests are left out: they ended before, in one of two ways that their status no longer shows."""
STARTED = """
    SELECT ref, SUM(n) FROM (
      SELECT c.public_id AS ref, c.attempt AS n FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
        WHERE v.safety_level <> %s AND c.attempt > 0 UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'call.started') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
HANDED_BACK = """
    SELECT e.data FROM catalog_call c JOIN plans_plan p ON p.public_id = c.plan_ref
    JOIN plans_event e ON e.plan_id = p.id AND e.type = 'step.retrying' WHERE c.public_id = %s
"""
FINISHED = """
    SELECT c.public_id FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
    LEFT JOIN (SELECT object_ref, COUNT(*) AS told FROM approvals_auditentry
      WHERE action IN ('call.succeeded', 'call.failed', 'call.settled') GROUP BY object_ref) e
      ON e.object_ref = c.public_id
    WHERE v.safety_level <> %s AND c.attempt > 0 AND
      ((c.status = %s AND COALESCE(e.told, 0) <> 1) OR (c.status = %s AND COALESCE(e.told, 0) > 1))
"""
TOKENS = """
    SELECT prefix FROM catalog_apitoken t WHERE NOT EXISTS (
      SELECT 1 FROM approvals_auditentry e WHERE e.object_ref = t.prefix AND e.action = 'token.created')
"""
VERSIONS = "SELECT t.name, v.number, v.fingerprint FROM catalog_toolversion v JOIN catalog_tool t ON t.id = v.tool_id"
OF_TOOLS = "SELECT details FROM approvals_auditentry WHERE action LIKE 'tool.%%' ORDER BY seq"
OF_ROLES = """
    SELECT object_ref, action, details FROM approvals_auditentry WHERE action IN (%s, %s, %s, %s) ORDER BY seq
"""
MEMBERS = """
    SELECT m.user_id, g.name FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id UNION ALL
    SELECT id, 'superuser' FROM auth_user WHERE is_superuser
"""
ACCOUNT_DELETED = "account.deleted"


@invariant(13, "The audit log is complete and contains every decision, start, end, tool, token and role exactly once.")
def audit_log_is_whole(check: CheckInput) -> Iterator[Finding]:
    """Verify the chain, then compare each kind of entry with the rows it is about, in both directions."""
    try:
        verification = verify()
    except Instance.DoesNotExist:
        yield Finding("instance", "The row with the head of the chain is missing.")
    else:
        if verification.first_bad is not None:
            yield Finding(f"audit#{verification.first_bad}", "This entry is the first one that is invalid or missing.")
    yield from findings("Its opening is not in the audit log exactly once.", OPENED)
    yield from findings("Its early request is not in the audit log exactly once.", PREPARED)
    yield from findings("Its reviews differ from those in the audit log.", REVIEWED)
    yield from findings("Its decision is not in the audit log exactly once.", DECIDED, UNDONE)
    yield from findings("Its end is not in the audit log exactly once.", ENDED)
    for call, difference in rows(STARTED, str(SafetyLevel.SAFE)):
        if difference < 0:  # starts that were handed back do not count
            released = (json.loads(data) for (data,) in rows(HANDED_BACK, call))
            difference += sum(data.get("call") == call and data.get("error") in UNSTARTED_REASONS for data in released)
        if difference:
            yield Finding(call, "The attempts of this call differ from its starts in the audit log.")
    ends = (SafetyLevel.SAFE, CallStatus.COMPLETED, CallStatus.FAILED)
    yield from findings("The end of this call is not in the audit log exactly once.", FINISHED, *map(str, ends))
    yield from audit_log_has_grants()
    yield from audit_log_has_envelopes()
    yield from findings("The creation of this token is not in the audit log.", TOKENS)
    entries = [json.loads(row[0]) for row in rows(OF_TOOLS)]
    recorded = {(data.get("tool"), data.get(name)) for data in entries for name in ("fingerprint", "held_fingerprint")}
    for tool, number, fingerprint in rows(VERSIONS):
        if (tool, fingerprint) not in recorded:
            yield Finding(f"{tool}/{number}", "This version is not in the audit log.")
    yield from _roles()


def _roles() -> Iterator[Finding]:
    """Find people whose roles differ from those in the audit log."""
    recorded: set[tuple[str, str]] = set()
    for ref, action, details in rows(OF_ROLES, GIVEN, TAKEN, DELETED, ACCOUNT_DELETED):
        roles = set(map(str, json.loads(details).get("roles", ())))
        if action == GIVEN:
            recorded |= {(ref, role) for role in roles}
        elif action == DELETED:
            recorded = {pair for pair in recorded if pair[1] not in roles}
        else:  # a deleted account loses all its roles
            recorded = {pair for pair in recorded if pair[0] != ref or (action == TAKEN and pair[1] not in roles)}
    there = {(f"user_{user}", str(role)) for user, role in rows(MEMBERS)}
    for ref, _ in sorted(there ^ recorded):
        yield Finding(ref, "This person's roles differ from the audit log.")


@invariant(21, "Each row that decides rights, and each recorded result, is as its last entry in the audit log says.")
def rights_are_as_recorded(check: CheckInput) -> Iterator[Finding]:
    """Compare the digests of rows with those in the log. Reviews have no digest: compare them with their entries."""
    yield from findings("One of its reviews is not the one in the audit log.", REVIEWED_OTHERWISE)
    for ref, noun in changed_rows():
        yield Finding(ref, f"The row of this {noun} differs from its last entry in the audit log.")
