"""What I1, I3 and I13 ask of grants: what started by one was covered, counted and told, and nothing was twice."""

from collections.abc import Iterator

from plans.invariants.base import Finding, each

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
USED = """
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


def what_grants_let_start() -> Iterator[Finding]:
    """Yield calls that were approved and granted, or that their grant is not about."""
    yield from each("The call was approved, and a grant was used for it too.", BOTH)
    yield from each("The grant that let the call start is not about it.", OTHER_CALL)


def how_often_grants_were_used() -> Iterator[Finding]:
    """Yield grants whose uses are not those counted, or are too many."""
    yield from each("Its uses are not the calls that it let start, or more than it allows.", MISCOUNTED)


def what_the_log_tells_of_grants() -> Iterator[Finding]:
    """Yield grants and uses that the log does not tell of, or tells of though they are not there."""
    yield from each("The log does not tell when the grant was made, or it is not there.", MADE)
    yield from each("The log does not tell of the grant that was used, or tells of one that was not.", USED)
    yield from each("The log does not tell how the grant ended, or it has not.", ENDED)
