"""Shipped sets of policies: off until an administrator chooses one, and taken back by one press.

The policies for coding agents match on what calls do that a client runs itself, so they are about no other call. They
are put right before the first policy that holds every dangerous call: what an administrator put before that one still
decides first. The policy for calls after untrusted reading is put likewise before the first about all cautious calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext_noop as _

from approvals.models import Policy, PolicyRevision
from approvals.policies import services
from approvals.policies.rulebook import revisions_in_force
from approvals.policy_language.derived import COMMAND_EFFECTS
from catalog.access.roles import REVIEWER
from catalog.core.transactions import retry_on_deadlock
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict

ALWAYS_HELD = ("outside", "credentials", "client_settings", "git", "ci")
"""Effects that need approval whatever else a call does."""


@dataclass(frozen=True, slots=True)
class ShippedPolicy:
    """One policy of the set; `is_enabled` is False for one that widens the set on request."""

    name: str
    effect: str
    operator: str
    effects: Sequence[str] = ()
    is_enabled: bool = True

    def document(self, holding: Mapping[str, Any]) -> dict[str, Any]:
        """Return the policy's document; `holding` says who approves and how long they have."""
        row: dict[str, Any] = {"path": COMMAND_EFFECTS, "operator": self.operator}
        row |= {"value": list(self.effects)} if self.effects else {}
        terms = holding if self.effect == PolicyRevision.Effect.HOLD else {}
        named = {"name": self.name, "effect": self.effect, "enabled": self.is_enabled}
        return {**named, "match": {"arguments": [row]}, **terms}


CODING_AGENT = (
    ShippedPolicy(_("Coding agent: always held"), "hold", "in", ALWAYS_HELD),
    ShippedPolicy(_("Coding agent: reads in the working directory"), "allow", "in", ("reads",)),
    ShippedPolicy(_("Coding agent: edits in the working directory"), "allow", "in", ("reads", "writes")),
    ShippedPolicy(
        _("Coding agent: searches in the working directory"), "allow", "in", ("reads", "searches"), is_enabled=False
    ),
    ShippedPolicy(_("Coding agent: everything else"), "hold", "exists"),
)
NAMES = tuple(policy.name for policy in CODING_AGENT)


AFTER_READING = _("After untrusted reading: outward calls")
READING, OUTWARD = "web", "outward"
"""Categories of the tools that read what strangers wrote, and of those that send something out."""
READING_WITHIN_SECONDS = 3600


def policies_named(*names: str) -> list[Policy]:
    """Return those of the shipped policies with these names that exist, in order."""
    return list(Policy.objects.filter(name__in=names, ended_at=None).order_by("order", "pk"))


@retry_on_deadlock
def add_coding_agent_policies(*, by: User) -> list[Policy]:
    """Create the policies of the set. Raises NotAllowed, and Conflict if the set is there or could never be reached."""
    with services.changing_policies(by):
        if policies_named(*NAMES):
            raise Conflict("The policies for coding agents are there already.")
        general = _first_general_revision(SafetyLevel.DANGEROUS)
        holding: dict[str, Any] = {"stages": [{"group": REVIEWER, "count": 1}]}
        if general is not None and general.effect == PolicyRevision.Effect.DENY:
            name = general.policy.name
            raise Conflict(
                f"The policy “{name}” blocks all dangerous calls, those of coding agents too. Disable it first."
            )
        if general is not None:
            holding = {"stages": general.stages, "expires_seconds": general.expires_seconds}
        order = services.order_before(general.policy if general is not None else None, by)
        return [services.create_policy({**each.document(holding), "order": order}, by=by) for each in CODING_AGENT]


@retry_on_deadlock
def add_reading_policy(*, by: User) -> Policy:
    """Create the policy that holds cautious outward calls after untrusted reading. Raises NotAllowed and Conflict."""
    with services.changing_policies(by):
        if policies_named(AFTER_READING):
            raise Conflict("The policy for calls after untrusted reading is there already.")
        general = _first_general_revision(SafetyLevel.CAUTIOUS)
        document = {
            "name": AFTER_READING,
            "order": services.order_before(general.policy if general is not None else None, by),
            "effect": PolicyRevision.Effect.HOLD,
            "match": {
                "category": OUTWARD,
                "safety_level": SafetyLevel.CAUTIOUS,
                "seen": {"category": READING, "within": READING_WITHIN_SECONDS},
            },
            "stages": [{"group": REVIEWER, "count": 1}],
        }
        return services.create_policy(document, by=by)


@retry_on_deadlock
def remove_policies(*names: str, by: User) -> int:
    """Delete shipped policies and return their number; their rows stay for the calls they held."""
    with services.changing_policies(by):
        found = policies_named(*names)
        for policy in found:
            services.end_policy(policy, by=by)
    return len(found)


def _first_general_revision(level: SafetyLevel) -> PolicyRevision | None:
    """Return the first revision in force that decides every call of this level that reaches it."""
    general = [PolicyRevision.Effect.HOLD, PolicyRevision.Effect.DENY]
    if level != SafetyLevel.DANGEROUS:
        general.append(PolicyRevision.Effect.ALLOW)
    for revision in revisions_in_force():
        narrows = (revision.category, revision.source, revision.requester, revision.plan, revision.hours)
        is_open = revision.tool in ("", "*") and revision.safety_level in ("", level)
        if revision.effect in general and is_open and not (any(narrows) or revision.looks_back or revision.conditions):
            return revision
    return None
