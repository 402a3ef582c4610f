"""The audit log as administrators read it: filtered, newest first, from a keyset cursor on. Never writes."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet

from approvals.models import AuditEntry
from catalog.access import ADMINISTRATOR, NotAllowed, agent_token_of, has_role

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SEARCHED = ("actor_name", "action", "object_ref", "tool_name", "plan_ref", "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters:
    """What to show: words anywhere, who (username), action, tool, a time span, entries numbered below `before`."""

    q: str = ""
    who: str = ""
    action: str = ""
    tool: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None


NO_FILTERS = AuditFilters()


def entries_for(viewer: "User", filters: AuditFilters = NO_FILTERS) -> QuerySet[AuditEntry]:
    """Return the entries that match, newest first. Raises NotAllowed for who is no administrator."""
    if agent_token_of(viewer) is not None or not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators read the audit log.")
    exact = {
        "actor_name": filters.who,
        "action": filters.action,
        "tool_name": filters.tool,
        "at__gte": filters.since,
        "at__lt": filters.until,
        "seq__lt": filters.before,
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
