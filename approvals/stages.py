"""Quorum: how many distinct people of which groups must agree, and how many are still missing.

One person has one vote over all stages. Who is in the groups of two stages is put where it helps most, so that the
order in which people answer never matters.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from approvals.audit.accounts import held_long_enough
from approvals.policy_language.stages import Stage, missing_among, stages_of
from catalog.access.roles import ADMINISTRATOR, REVIEWER, groups_of, roles_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["Stage", "groups_counting", "is_satisfied", "missing_of", "stages_of"]


class Terms(Protocol):
    """What of a rule says who must agree."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the policy's order."""

    @property
    def escalated_to(self) -> str:
        """The group whose members may answer in every stage, because nobody else did; empty for none."""

    @property
    def min_role_age_seconds(self) -> int:
        """How long someone must have been in a group to count there; 0 for any time."""


def groups_counting(rule: Terms, user: "User") -> frozenset[str]:
    """Return in which of the rule's groups someone counts: those they have been in for long enough.

    Administrators do all that reviewers do, and so count as reviewers: as long as they have administered.
    """
    wanted = frozenset(stage.group for stage in rule.stages)
    asked = wanted | {rule.escalated_to} if rule.escalated_to else wanted
    groups = groups_of(user) | (roles_of(user) & {ADMINISTRATOR})
    held = held_long_enough(user, groups & (asked | {ADMINISTRATOR}), rule.min_role_age_seconds)
    if ADMINISTRATOR in held:
        held |= {REVIEWER}
    return wanted if rule.escalated_to in held else held & asked


def is_satisfied(rule: Terms, people: Iterable["User"]) -> bool:
    """Say whether these people's agreement is enough for the rule."""
    return bool(rule.stages) and not missing_of(rule, people)


def missing_of(rule: Terms, people: Iterable["User"]) -> list[Stage]:
    """Return who is missing when these people have agreed: the stages that lack someone, with how many they lack."""
    distinct = {person.pk: person for person in people}.values()
    return missing_among(rule.stages, [groups_counting(rule, person) for person in distinct])
