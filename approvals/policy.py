"""Ordered rules, read from the current revisions of the enabled policies; the first that matches decides.

A policy may raise, never lower: nothing here lets a dangerous call run without people.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.db.models import F

from approvals.models import PolicyRevision
from catalog.definitions import SafetyLevel
from catalog.dispatch import Allow, Deny, Hold, Verdict

Effect = PolicyRevision.Effect


@dataclass(frozen=True, slots=True)
class Rule:
    """One revision of a policy; requests held by it keep its terms."""

    revision_id: int
    policy: str
    number: int
    safety_level: str
    effect: str
    sentence: str
    quorum: int
    groups: tuple[str, ...]
    expires_seconds: int
    allow_self_review: bool
    reason_required: bool
    message: str

    def matches(self, level: str) -> bool:
        """Say whether the rule is about calls of this level."""
        return self.safety_level in ("", level)


def rule_of(revision: PolicyRevision) -> Rule:
    """Return a revision, its policy loaded, as a rule."""
    return Rule(
        revision_id=revision.pk,
        policy=revision.policy.name,
        number=revision.number,
        safety_level=revision.safety_level,
        effect=revision.effect,
        sentence=revision.sentence,
        quorum=revision.quorum,
        groups=tuple(revision.groups),
        expires_seconds=revision.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS,
        allow_self_review=revision.allow_self_review,
        reason_required=bool(revision.reason_required),
        message=revision.message,
    )


def current_rules() -> list[Rule]:
    """Return the rules in force, in their order, by one query."""
    current = PolicyRevision.objects.filter(policy__enabled=True, policy__revision=F("pk"))
    return [rule_of(revision) for revision in current.select_related("policy").order_by("policy__order")]


def judge(rules: Iterable[Rule], level: str) -> Verdict:
    """Return what the first matching rule says of calls of this level; `allow` never matches dangerous ones."""
    dangerous = level == SafetyLevel.DANGEROUS
    for rule in rules:
        if rule.matches(level) and not (dangerous and rule.effect == Effect.ALLOW):
            return _verdict(rule, level)
    return Deny(UNGUARDED) if dangerous else Allow()


UNGUARDED = (
    "Dangerous calls are refused because no policy says who reviews them. "
    "An administrator must enable a policy that holds dangerous calls."
)


def _verdict(rule: Rule, level: str) -> Verdict:
    if rule.effect == Effect.ALLOW:
        return Allow()
    if rule.effect == Effect.DENY:
        return Deny(rule.message or f"The policy “{rule.policy}” refuses {level} calls.")
    if rule.quorum < 1 or not rule.groups:
        return Deny(f"The policy “{rule.policy}” names nobody who may approve; an administrator must mend it.")
    return Hold(rule)
