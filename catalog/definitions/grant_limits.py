"""Limits of the grants that may be made for a tool: hours and uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from catalog.definitions.levels import SafetyLevel

DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES = 8, 20
MAX_GRANT_HOURS, MAX_GRANT_USES = 720, 10_000


@dataclass(frozen=True, slots=True)
class GrantLimits:
    """Maximum duration, in hours, and maximum uses of one grant."""

    max_hours: int = DEFAULT_GRANT_HOURS
    max_uses: int = DEFAULT_GRANT_USES

    @property
    def longest(self) -> timedelta:
        return timedelta(hours=self.max_hours)


NEVER_GRANTED = frozenset({"propose_envelope"})
"""Tools of which people must see each call: a grant would approve what nobody has read."""


def grant_limits_for(name: str, setting: Mapping[str, Any] | None, level: str) -> GrantLimits | None:
    """Return a tool's grant limits from its name, setting and level; None if grants may not be made or used."""
    if name in NEVER_GRANTED:
        return None
    if setting is not None:
        return GrantLimits(int(setting["max_hours"]), int(setting["max_uses"]))
    return None if level not in (SafetyLevel.SAFE, SafetyLevel.CAUTIOUS) else GrantLimits()


def grant_limits_error(setting: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field name and message of the first invalid limit; two empty texts if both are valid."""
    for name, most in (("max_hours", MAX_GRANT_HOURS), ("max_uses", MAX_GRANT_USES)):
        value = setting.get(name)
        if type(value) is not int or not 1 <= value <= most:
            return name, f"This must be a whole number from 1 to {most:,}."
    return "", ""
