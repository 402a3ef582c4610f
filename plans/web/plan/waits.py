"""Waits of a plan's steps: what each step waits for, since when, on whom, until when, and what happens then."""

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from approvals.policy_language.stages import Stage, people_in_words
from catalog.access.roles import user_display_name

MOST_NAMED = 3
"""Maximum number of people who are named; more are counted."""


def approvers_in_words(stages: Sequence[Stage], people: Sequence[User] | None) -> str:
    """Return the people who must approve: Rosa or Tomas, 2 of Rosa, Tomas and Ada, 1 member of finance.

    `stages` lack approvals, `people` may give them. Many people, none, or None for unknown are named by their groups.
    """
    needed = sum(stage.count for stage in stages)
    if not people or len(people) > MOST_NAMED or len(people) < needed:
        return people_in_words(stages)
    names = [user_display_name(person) for person in people]
    if needed == 1:
        return joined_names(names, _("or"))
    everyone = joined_names(names, _("and"))
    if needed == len(names):
        return everyone
    return _("%(count)s of %(people)s") % {"count": needed, "people": everyone}


def joined_names(names: Sequence[str], word: str) -> str:
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
