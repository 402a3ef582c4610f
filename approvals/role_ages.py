"""Since when people have been in a group, as the audit log tells it. Never writes."""

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from approvals.models import AuditEntry
from catalog.core import clock

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ROLE_GIVEN = "role.given"


def held_long_enough(user: "User", groups: frozenset[str], seconds: int) -> frozenset[str]:
    """Return those of the user's groups that they have been in for so long; no query without a limit."""
    if seconds <= 0 or not groups:
        return groups
    latest = clock.now() - timedelta(seconds=seconds)
    since = _given_at(user)
    return frozenset(group for group in groups if since.get(group, user.date_joined) <= latest)


def _given_at(user: "User") -> dict[str, datetime]:
    """Return when each group was last given; a group the log does not name is as old as the account."""
    entries = AuditEntry.objects.filter(action=ROLE_GIVEN, object_ref=f"user_{user.pk}").order_by("seq")
    given: dict[str, datetime] = {}
    for details, at in entries.values_list("details", "at"):
        given.update(dict.fromkeys(json.loads(details).get("roles", ()), at))
    return given
