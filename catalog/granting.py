"""Whether calls of a tool may run by a grant, a remembered approval, and how long and how often one may allow that.

Dangerous tools cannot be granted until an administrator says so, tool by tool; others can, within the usual limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from catalog.definitions import SafetyLevel

USUAL_HOURS, USUAL_USES = 8, 20
MOST_HOURS, MOST_USES = 720, 10_000


@dataclass(frozen=True, slots=True)
class GrantLimits:
    """The longest time, in hours, and the most uses that one grant may have."""

    max_hours: int = USUAL_HOURS
    max_uses: int = USUAL_USES

    @property
    def longest(self) -> timedelta:
        """The longest time."""
        return timedelta(hours=self.max_hours)


def limits_of(setting: Mapping[str, Any] | None, level: str) -> GrantLimits | None:
    """Return the limits of a tool by what was set and by its level; None where no grant may be made or used."""
    if setting is not None:
        return GrantLimits(int(setting["max_hours"]), int(setting["max_uses"]))
    return None if level not in (SafetyLevel.SAFE, SafetyLevel.CAUTIOUS) else GrantLimits()


def objection_to(setting: Mapping[str, Any]) -> tuple[str, str]:
    """Return which of the limits is wrong, and why; two empty texts when both fit."""
    for name, most in (("max_hours", MOST_HOURS), ("max_uses", MOST_USES)):
        value = setting.get(name)
        if type(value) is not int or not 1 <= value <= most:
            return name, f"This must be a whole number from 1 to {most:,}."
    return "", ""
