"""I7: safety levels were lowered only by administrators with a reason, and calls used the version in force.

The audit log contains each version of a tool with its time, so levels are followed along the log.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.audit.accounts import GIVEN
from approvals.models import AuditEntry
from catalog.access.roles import ADMINISTRATOR, in_any_group
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call, Tool, ToolVersion
from plans.invariants.base import AT_ONCE, CheckInput, Finding, invariant

TAKES_EFFECT_SECONDS = 10.0
"""Time within which all processes see a change of the catalog."""
UNEXPLAINED = "Its level was lowered without a reason from an administrator."


@dataclass(slots=True)
class ToolHistory:
    """The history of one tool in the audit log: its version, and whether it was in use, from each entry on."""

    at: list[datetime] = field(default_factory=list)
    states: list[tuple[int, bool]] = field(default_factory=list)
    enabled: bool = True
    registered: bool = True
    allowed: set[tuple[int, str]] = field(default_factory=set)
    """Versions with the level for which an administrator gave a reason."""

    def add(self, entry: AuditEntry, details: dict[str, Any]) -> None:
        self.enabled = {"tool.enabled": True, "tool.disabled": False}.get(entry.action, self.enabled)
        self.registered = {"tool.removed": False, "tool.changed": True, "tool.accepted": True}.get(
            entry.action, self.registered
        )
        self.at.append(entry.at)
        version = int(details.get("version") or (self.states[-1][0] if self.states else 0))
        self.states.append((version, self.enabled and self.registered))

    def allows(self, version: int, moment: datetime) -> bool:
        """Return whether the version was in force and in use at that time, within TAKES_EFFECT_SECONDS."""
        slack = timedelta(seconds=TAKES_EFFECT_SECONDS)
        first = max(bisect_left(self.at, moment - slack) - 1, 0)
        return (version, True) in self.states[first : bisect_right(self.at, moment + slack)]


@invariant(7, "Safety levels were lowered only by administrators with a reason, and the level used was in force.")
def levels_are_lowered_with_a_reason(check: CheckInput) -> Iterator[Finding]:
    """Follow the versions of each tool along the log to the current one, then check the start times of calls.

    Processes see a new version with a delay, so the check allows TAKES_EFFECT_SECONDS.
    """
    timelines = _tool_histories()
    versions = ToolVersion.objects.values_list("tool__name", "number", "safety_level")
    levels = {(name, number): SafetyLevel(level) for name, number, level in versions.iterator(AT_ONCE)}
    for name, current in Tool.objects.order_by("name").values_list("name", "current_version__number"):
        line = timelines.get(name)
        if line is None:
            continue
        numbers = [version for version, _ in line.states]
        for before, after in pairwise([*numbers, current or numbers[-1]]):
            old, new = levels.get((name, before)), levels.get((name, after))
            if old and new and new.rank < old.rank and (after, str(new)) not in line.allowed:
                yield Finding(f"{name}/{after}", UNEXPLAINED)
        if len(set(line.states)) <= 1:
            continue
        calls = Call.objects.filter(tool_name=name, started_at__isnull=False)
        started = calls.values_list("public_id", "version__number", "started_at")
        for call, version, moment in started.iterator(AT_ONCE):
            if moment is not None and not line.allows(version, moment):
                why = "The call started on a version that was not in force, or its tool was switched off."
                yield Finding(call, why)


def _tool_histories() -> dict[str, ToolHistory]:
    found: dict[str, ToolHistory] = {}
    # The current administrators by their names in the log; earlier ones are added below.
    people = User.objects.filter(in_any_group([ADMINISTRATOR]))
    administrators = {f"user_{pk}" for pk in people.values_list("pk", flat=True)}
    trusted: set[str] = set()
    is_read = Q(action__startswith="tool.") | Q(action=GIVEN) | Q(action__in=("source.created", "source.changed"))
    entries = AuditEntry.objects.filter(is_read).order_by("seq")
    for entry in entries.iterator(AT_ONCE):
        details = json.loads(entry.details)
        if entry.action == GIVEN:
            if {ADMINISTRATOR, "superuser"} & set(details.get("roles", ())):
                administrators.add(entry.object_ref)
            continue
        by_administrator = f"user_{entry.actor_id}" in administrators
        if entry.action.startswith("source."):
            changed = (details.get("changes") or {}).get("trusted")
            name, is_trusted = str(details.get("source")), changed[1] if changed else details.get("trusted")
            if is_trusted is False:
                trusted.discard(name)
            elif is_trusted and by_administrator:
                trusted.add(name)
            continue
        line = found.setdefault(entry.tool_name, ToolHistory())
        line.add(entry, details)
        explained = str(details.get("reason", "")).strip() and by_administrator
        if entry.action == "tool.level_set" and explained:
            line.allowed.add((line.states[-1][0], str(details.get("after"))))
        follows_trust = entry.action == "tool.changed" and details.get("source") in trusted
        if (entry.action == "tool.accepted" and explained) or follows_trust:
            line.allowed.add((line.states[-1][0], str(details.get("level"))))
    return found
