"""The audit log as administrators read it: filtered, newest first, from a keyset cursor on. Never writes.

Its numbers also say what came after what: entries are numbered as their transactions end, one after the other.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet

from approvals.models import AuditEntry
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role

if TYPE_CHECKING:
    from django.contrib.auth.models import User


SEARCHED = ("actor_name", "action", "object_ref", "tool_name", "plan_ref", "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTexts:
    """What to look for: words anywhere, who (username), action, tool, plan, object; empty texts leave out nothing."""

    q: str = ""
    who: str = ""
    action: str = ""
    tool: str = ""
    plan: str = ""
    object: str = ""


TEXTS = tuple(field.name for field in fields(AuditTexts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters(AuditTexts):
    """What to show: texts, a time span, numbers.

    `before` and `after` are entries' numbers, which are left out themselves.
    """

    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    after: int | None = None


NO_FILTERS = AuditFilters()


def entries_for(viewer: "User", filters: AuditFilters = NO_FILTERS) -> QuerySet[AuditEntry]:
    """Return the entries that match, newest first. Raises NotAllowed for who is no administrator."""
    if agent_token_of(viewer) is not None or not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators read the audit log.")
    return entries_in(filters)


def entries_in(filters: AuditFilters) -> QuerySet[AuditEntry]:
    """Return the entries that match, newest first, for who has been asked whether they may."""
    exact = {
        "actor_name": filters.who,
        "action": filters.action,
        "tool_name": filters.tool,
        "plan_ref": filters.plan,
        "object_ref": filters.object,
        "at__gte": filters.since,
        "at__lt": filters.until,
        "seq__lt": filters.before,
        "seq__gt": filters.after,
    }
    entries = AuditEntry.objects.filter(**{name: value for name, value in exact.items() if value not in ("", None)})
    for word in filters.q.split():
        entries = entries.filter(_mentions(word))
    return entries.select_related("actor").order_by("-seq")


def _mentions(word: str) -> Q:
    anywhere = Q()
    for field in SEARCHED:
        anywhere |= Q(**{f"{field}__icontains": word})
    return anywhere
