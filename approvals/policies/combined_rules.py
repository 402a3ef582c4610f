"""One rule that asks what several rules ask together: the strictest of their stages and confirmations.

If one of the rules asks all of it, that rule is returned. Otherwise a revision of a policy that is never in force holds
the combined terms, so that a request refers to it like to any other revision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from approvals.models import ApprovalRequest, Instance, Policy, PolicyRevision
from approvals.policies.rulebook import Rule, rule_from_revision
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.policy_language.stages import Stage
from catalog.core import clock
from catalog.signals import record_fact

POLICY_ID = "pol_combined"
POLICY_NAME = "Several policies together"
UNSTORED = 0
"""Key of the revision of a combined rule that `store_rule` has not stored yet."""
_NOT_ASKED = frozenset({"revision_id", "policy", "number", "safety_level", "sentence", "message", "looks_back"})
_LARGEST_COUNTS = ("min_review_seconds", "min_role_age_seconds")
_TRUE_IF_ANY = ("typed_target", "fresh_passkey", "reason_required", "remind")
_TRUE_IF_ALL = ("allow_self_review", "editor_may_approve", "batchable")


def combine(rules: Sequence[Rule]) -> Rule:
    """Return the rule that asks what each of `rules` asks; a new combination has the `revision_id` UNSTORED."""
    counts: dict[str, int] = {}
    for stage in (stage for rule in rules for stage in rule.stages):
        counts[stage.group] = max(counts.get(stage.group, 0), stage.count)
    ends = {(rule.on_expiry, rule.escalate_to) for rule in rules}
    on_expiry, escalate_to = next(iter(ends)) if len(ends) == 1 else ("fail", "")
    sign_ins = [rule.fresh_sign_in_seconds for rule in rules if rule.fresh_sign_in_seconds]
    policies = list(dict.fromkeys(rule.policy for rule in rules))
    addresses = {each["shown"]: each for rule in rules for each in rule.notify}
    strictest: dict[str, Any] = {name: max(getattr(rule, name) for rule in rules) for name in _LARGEST_COUNTS}
    strictest |= {name: any(getattr(rule, name) for rule in rules) for name in _TRUE_IF_ANY}
    strictest |= {name: all(getattr(rule, name) for rule in rules) for name in _TRUE_IF_ALL}
    combined = replace(
        rules[0],
        revision_id=UNSTORED,
        policy=POLICY_NAME,
        number=0,
        safety_level="",
        stages=tuple(Stage(group, count) for group, count in counts.items()),
        expires_seconds=min(rule.expires_seconds for rule in rules),
        on_expiry=on_expiry,
        escalate_to=escalate_to,
        envelope=max((rule.envelope for rule in rules), key=["default", "allow", "never"].index),
        fresh_sign_in_seconds=min(sign_ins, default=0),
        notify=list(addresses.values()),
        sentence=f"The calls are held by {', '.join(f'“{name}”' for name in policies)}.",
        **strictest,
    )
    return next((rule for rule in rules if _asks_the_same(rule, combined)), combined)


def _asks_the_same(rule: Rule, other_rule: Rule) -> bool:
    names = [field.name for field in fields(Rule) if field.name not in _NOT_ASKED]
    return all(_comparable(getattr(rule, name)) == _comparable(getattr(other_rule, name)) for name in names)


def _comparable(term: Any) -> Any:
    """Return the term of a rule without the order of its stages and addresses, and without the encryption of these."""
    is_list = isinstance(term, list | tuple)
    return {each["shown"] if isinstance(each, Mapping) else each for each in term} if is_list else term


def with_escalation(rule: Rule, request: ApprovalRequest) -> Rule:
    """Return a rule that holds the call now, or one inside its envelope, with the group the request was escalated to.

    The group counts if the rule that was escalated asks all that this one asks, and both escalate to the same group.
    """
    if not request.escalated_to:
        return rule
    asked = rule_from_revision(request.policy_revision)
    comparable = replace(rule, notify=asked.notify)
    counts = rule.revision_id == asked.revision_id or _asks_the_same(combine([asked, comparable]), asked)
    return replace(rule, escalated_to=request.escalated_to) if counts else rule


def store_rule(rule: Rule) -> Rule:
    """Return the rule with its revision, which is stored if it is a new combination. Call in a transaction."""
    if rule.revision_id != UNSTORED:
        return rule
    Instance.objects.select_for_update().get(pk=1)  # one writer numbers the revisions
    policy, _ = Policy.objects.get_or_create(
        public_id=POLICY_ID, defaults={"name": POLICY_NAME, "order": 0, "enabled": False, "ended_at": clock.now()}
    )
    for revision in policy.revisions.select_related("policy").order_by("pk"):
        stored = rule_from_revision(revision)
        if _asks_the_same(stored, rule):
            return stored
    columns = {
        name: getattr(rule, name)
        for name in ("expires_seconds", "on_expiry", "escalate_to", "envelope", "fresh_sign_in_seconds")
    }
    columns |= {name: getattr(rule, name) for name in (*_LARGEST_COUNTS, *_TRUE_IF_ANY, *_TRUE_IF_ALL)}
    number = policy.revisions.count() + 1
    stages = [{"group": stage.group, "count": stage.count} for stage in rule.stages]
    revision = PolicyRevision.objects.create(
        policy=policy,
        number=number,
        tool=PROPOSE_ENVELOPE,
        effect=PolicyRevision.Effect.HOLD,
        stages=stages,
        notify=list(rule.notify),
        **columns,
    )
    record_fact("policy.combined", policy=policy.public_id, name=policy.name, revision=number)
    return rule_from_revision(revision)
