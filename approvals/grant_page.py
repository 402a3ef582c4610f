"""The list of grants as its page shows it: those in force, then the last that ended. Never writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Prefetch, QuerySet

from approvals.grants.conditions import conditions_for, in_words
from approvals.grants.services import Standing, grants_for, may_revoke, standing_of
from approvals.models import Grant, GrantUse
from catalog.access.roles import name_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_ACTIVE = 200
MOST_ENDED = 50
MOST_USES = 10
"""How many of the calls that ran by a grant its line names."""
SCOPES = {"plan": "in plan {}", "session": "in session {}", "requester": "asked for by {}"}


@dataclass(frozen=True, slots=True)
class GrantLine:
    """One grant in words."""

    grant: Grant
    standing: Standing
    rows: list[dict[str, Any]]

    @property
    def conditions(self) -> str:
        """What a call must be like."""
        return in_words(self.rows)

    @property
    def scope(self) -> str:
        """Whose calls it is about."""
        return SCOPES[self.grant.scope].format(self.grant.scope_ref)

    @property
    def used(self) -> list[GrantUse]:
        """The last calls that ran by it, newest first."""
        used: list[GrantUse] = self.grant.last_used  # type: ignore[attr-defined] # see _lines
        return used

    @property
    def maker(self) -> str:
        """Who made it."""
        return name_of(self.grant.created_by)


@dataclass(frozen=True, slots=True)
class GrantsPage:
    """What the page is made from."""

    active: list[GrantLine]
    ended: list[GrantLine]
    may_revoke: bool
    marked: str = ""

    @property
    def ended_in_words(self) -> str:
        """How many of those that have ended are listed."""
        count = len(self.ended)
        return f"the last {count}" if count == MOST_ENDED else str(count)


def grants_page(viewer: "User", query: Mapping[str, str]) -> GrantsPage:
    """Return the grants the viewer may see; `?grant=` marks one."""
    active = _lines(viewer, grants_for(viewer, active=True).order_by("-pk")[:MOST_ACTIVE])
    ended = _lines(viewer, grants_for(viewer, active=False).order_by("-pk")[:MOST_ENDED])
    return GrantsPage(active, ended, may_revoke(viewer), query.get("grant", ""))


def _lines(viewer: "User", grants: QuerySet[Grant]) -> list[GrantLine]:
    calls = GrantUse.objects.select_related("call").only("grant", "at", "call__plan_ref", "call__step_ref")
    found = list(grants.prefetch_related(Prefetch("used", calls.order_by("-pk")[:MOST_USES], "last_used")))
    rows = conditions_for(viewer, found)
    return [GrantLine(grant, standing_of(grant), rows[grant.pk]) for grant in found]
