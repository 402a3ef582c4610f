"""The parts of I1, I3 and I13 about envelopes: their calls are inside them, counted, and in the audit log."""

from collections.abc import Iterator
from decimal import Decimal

from approvals.models import Envelope, EnvelopeItem, EnvelopeUse
from approvals.policy_language.envelopes import amount_of, broken_argument, exact_sum
from catalog.calls import vault
from catalog.dispatch.arguments import stored_arguments, validator_of
from plans.invariants.base import AT_ONCE, Finding, findings

BOTH = """
    SELECT c.public_id FROM catalog_call c JOIN approvals_envelopeuse u ON u.call_id = c.id
    LEFT JOIN approvals_approvalrequest r ON r.call_id = c.id AND r.opened_at <= u.at
    LEFT JOIN approvals_grantuse g ON g.call_id = c.id WHERE r.id IS NOT NULL OR g.id IS NOT NULL
"""
OTHER_CALL = """
    SELECT c.public_id FROM approvals_envelopeuse u JOIN approvals_envelopeitem i ON i.id = u.item_id
    JOIN approvals_envelope e ON e.id = i.envelope_id
    JOIN catalog_call c ON c.id = u.call_id JOIN catalog_toolversion v ON v.id = c.version_id
    WHERE v.tool_id <> i.tool_id OR v.fingerprint <> i.fingerprint OR c.replaces_id IS NOT NULL
      OR (e.scope = 'plan' AND c.plan_ref <> e.scope_ref) OR (e.scope = 'session' AND c.session <> e.scope_ref)
      OR (e.scope = 'token' AND COALESCE(c.token_id, 0) <> e.token_id) OR e.requester_id <> c.requested_by_id
      OR e.opened_at IS NULL OR u.at < e.opened_at OR u.at >= e.expires_at
"""
UNAPPROVED = """
    SELECT e.public_id FROM approvals_envelope e JOIN approvals_approvalrequest r ON r.call_id = e.call_id
    WHERE e.opened_at IS NOT NULL AND r.status <> 'consumed'
"""
USE_CONTRADICTS_LOG = """
    SELECT ref FROM (
      SELECT c.public_id AS ref, 1 AS n FROM approvals_envelopeuse u JOIN catalog_call c ON c.id = u.call_id UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = 'envelope.used') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
_CONTRADICTS_LOG = """
    SELECT ref FROM (SELECT public_id AS ref, 1 AS n FROM approvals_envelope WHERE {rows} UNION ALL
      SELECT object_ref, -1 FROM approvals_auditentry WHERE action = '{action}') sides
    GROUP BY ref HAVING SUM(n) <> 0
"""
PROPOSED = _CONTRADICTS_LOG.format(rows="1 = 1", action="envelope.proposed")
OPENED = _CONTRADICTS_LOG.format(rows="opened_at IS NOT NULL", action="envelope.opened")
ENDED = _CONTRADICTS_LOG.format(rows="status = 'ended'", action="envelope.ended")


def envelopes_cover_their_calls() -> Iterator[Finding]:
    """Yield calls that ran through an envelope that does not cover them."""
    yield from findings("The call was approved or granted, but an envelope was used for it too.", BOTH)
    yield from findings("The envelope used for the call does not cover it.", OTHER_CALL)
    yield from findings("The envelope was opened without a used approval.", UNAPPROVED)
    related = ("item__tool", "call__version")
    for use in EnvelopeUse.objects.select_related(*related).iterator(AT_ONCE):
        values = vault.load_available(use.call.arguments, use.call.plan_ref)
        arguments = stored_arguments(validator_of(use.call.version.input_schema), values, use.call.defaults)
        terms = use.item.terms
        if broken_argument(terms, arguments) is not None or amount_of(terms, arguments) != Decimal(use.amount):
            yield Finding(use.call.public_id, "The arguments of the call are outside its item.")


def envelope_uses_are_counted() -> Iterator[Finding]:
    """Yield envelopes whose counters differ from their uses, or exceed what was approved."""
    for item in EnvelopeItem.objects.select_related("envelope").prefetch_related("uses").iterator(AT_ONCE):
        amounts = [Decimal(use.amount) for use in item.uses.all()]
        total = exact_sum(amounts)
        is_over = item.used > item.count or (bool(item.sum_path) and total > Decimal(item.at_most))
        if is_over or item.used != len(amounts) or Decimal(item.sum_used) != total:
            yield Finding(item.envelope.public_id, "Its counters differ from its uses or exceed its limits.")
    full = Envelope.objects.filter(status=Envelope.Status.USED).prefetch_related("items")
    for envelope in full.iterator(AT_ONCE):
        if any(item.used < item.count for item in envelope.items.all()):
            yield Finding(envelope.public_id, "It counts as used up, but has room left.")


def audit_log_has_envelopes() -> Iterator[Finding]:
    """Yield envelopes and uses that differ from the audit log."""
    yield from findings("The envelope and its proposal in the audit log do not match.", PROPOSED)
    yield from findings("The envelope and its opening in the audit log do not match.", OPENED)
    yield from findings("The end of the envelope and its audit entry do not match.", ENDED)
    yield from findings("The use of the envelope and its audit entry do not match.", USE_CONTRADICTS_LOG)
