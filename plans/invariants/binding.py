"""I1 and I6: what ran is what was approved, and what was approved is what people saw. I20: in the same epoch.

Digests are computed anew from what is stored. Which code an implementation was is kept as its digest now: of a request
that is older than the code, the digest can only be compared with the one in the audit log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import F

from approvals.models import Round
from approvals.policies.rulebook import Rule, rule_of
from approvals.requests.digests import Binding, Origin, action_digest, this_origin
from catalog.definitions.levels import SafetyLevel
from catalog.inventory.versions import COVERED, fingerprint_of
from catalog.models import ToolVersion
from plans.invariants.base import AT_ONCE, Finding, World, each, invariant
from plans.invariants.granting import what_grants_let_start

NOT_APPROVED = """
    SELECT c.public_id FROM catalog_call c JOIN catalog_toolversion v ON v.id = c.version_id
    LEFT JOIN approvals_approvalrequest r ON r.call_id = c.id
    WHERE c.attempt > 0 AND COALESCE(r.status, '') <> 'consumed' AND (v.safety_level = %s OR r.id IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM approvals_grantuse g WHERE g.call_id = c.id AND r.id IS NULL)
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


@invariant(1, "Whatever people had to approve ran as it was approved: same arguments, definition, code and state.")
def what_ran_was_approved(world: World) -> Iterator[Finding]:
    """Find started calls without a used approval or grant, or with other arguments or another version than it binds."""
    yield from each("The call started, and no approval was used for it.", NOT_APPROVED, str(SafetyLevel.DANGEROUS))
    yield from what_grants_let_start()
    yield from each("The call is not the one that was approved.", SOMETHING_ELSE_RAN)
    yield from each("The log tells of another digest that was used.", OTHER_DIGEST_USED)
    for round_ in _differing(used=True):
        yield Finding(round_.request.call.public_id, "What was approved does not give the digest that it was bound to.")


SEEN = """
    SELECT r.public_id FROM approvals_review v JOIN approvals_round o ON o.id = v.round_id
    JOIN approvals_approvalrequest r ON r.id = o.request_id WHERE v.seen_digest <> o.digest OR v.request_id <> r.id
"""
NOT_OF_ITS_ROUND = """
    SELECT r.public_id FROM approvals_approvalrequest r
    LEFT JOIN approvals_round o ON o.request_id = r.id AND o.number = r.round_number
    WHERE o.id IS NULL OR o.digest <> r.digest
"""
NEVER_TOLD = """
    SELECT DISTINCT r.public_id FROM approvals_round o JOIN approvals_approvalrequest r ON r.id = o.request_id
    WHERE NOT EXISTS (SELECT 1 FROM approvals_auditentry e WHERE e.object_ref = r.public_id
      AND e.action IN ('approval.opened', 'approval.prepared', 'approval.edited') AND e.digest = o.digest)
"""


@invariant(6, "Everyone who answered saw what was asked, and neither that nor a tool's version has changed since.")
def what_was_seen_is_what_was_asked(world: World) -> Iterator[Finding]:
    """Compare digests with each other and with the audit log, and compute them anew, of requests and of versions.

    The terms of a policy's revision are bound by their number alone; nothing tells whether that row was changed.
    """
    yield from each("An answer is to another digest than its round's.", SEEN)
    yield from each("Its digest is not its round's.", NOT_OF_ITS_ROUND)
    yield from each("The log does not tell of one of its digests.", NEVER_TOLD)
    for round_ in _differing(used=False):
        yield Finding(round_.request.public_id, "What was asked does not give the digest that it is bound to.")
    for version in ToolVersion.objects.select_related("tool").iterator(AT_ONCE):
        columns = {name: getattr(version, name) for name in COVERED}
        if fingerprint_of(version.tool.name, columns) != version.fingerprint:
            yield Finding(f"{version.tool.name}/{version.number}", "The version is not what its fingerprint says.")


def _rounds(*, used: bool) -> Iterator[Round]:
    """Yield the rounds that were used, or the others, with all that their digests cover."""
    related = ("request__call__implementation", "request__tool_version", "policy_revision__policy")
    rounds = Round.objects.select_related(*related).defer("preview", "request__call__response")
    current = {"request__status": "consumed", "number": F("request__round_number")}
    wanted = rounds.filter(**current).order_by("request__consumed_at") if used else rounds.exclude(**current)
    yield from wanted.iterator(AT_ONCE)


def _differing(*, used: bool) -> Iterator[Round]:
    """Yield the rounds whose content gives another digest than they have, and cannot have given it."""
    digests = _Digests()
    return (each for each in _rounds(used=used) if digests.epoch_of(each) is None and not _code_has_changed(each))


def _code_has_changed(round_: Round) -> bool:
    implementation = round_.request.call.implementation
    return implementation is not None and implementation.updated_at > round_.created_at


@dataclass(slots=True)
class _Digests:
    """Computes what rounds are bound to, in whichever epoch they were opened."""

    origins: list[Origin] = field(default_factory=list)
    rules: dict[int, Rule] = field(default_factory=dict)

    def epoch_of(self, round_: Round) -> int | None:
        """Return the epoch in which this round's content gives its digest; None when there is none."""
        request, rule = round_.request, self._rule(round_)
        implementation = request.call.implementation
        code = implementation.digest if implementation else ""
        binding = Binding(request.tool_version.fingerprint, code, round_.arguments, round_.state_token)
        digests = ((each.epoch, action_digest(request.call, binding, rule, each)) for each in self._origins())
        return next((epoch for epoch, digest in digests if digest == round_.digest), None)

    def _rule(self, round_: Round) -> Rule:
        key = round_.policy_revision_id
        if key not in self.rules:
            self.rules[key] = rule_of(round_.policy_revision)
        return self.rules[key]

    def _origins(self) -> list[Origin]:
        """Return this installation as it was in each of its epochs, the present one first."""
        if not self.origins:
            now = this_origin()
            self.origins = [Origin(now.name, epoch) for epoch in range(now.epoch, 0, -1)]
        return self.origins


@invariant(20, "No approval of an earlier epoch was used in a later one.")
def approvals_stay_in_their_epoch(world: World) -> Iterator[Finding]:
    """Look at used approvals in the order of their use: their epochs never go back. The first epoch has none before."""
    if this_origin().epoch == 1:
        return
    digests, last = _Digests(), 0
    for round_ in _rounds(used=True):
        epoch = digests.epoch_of(round_)
        if epoch is not None and epoch < last:
            yield Finding(round_.request.public_id, "It was given in an earlier epoch than one used before it.")
        last = max(last, epoch or 0)
