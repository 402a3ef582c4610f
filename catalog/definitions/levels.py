"""Safety levels, reversibility, and what follows from them: client hints and grant limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from catalog.errors import ToolDefinitionError

MemberT = TypeVar("MemberT", bound=StrEnum)


class SafetyLevel(StrEnum):
    """Effect of a call on the world, which decides who must approve it."""

    SAFE = "safe"
    CAUTIOUS = "cautious"
    DANGEROUS = "dangerous"

    @property
    def rank(self) -> int:
        """Return the position in the order safe < cautious < dangerous."""
        return list(SafetyLevel).index(self)

    @classmethod
    def _missing_(cls, value: object) -> "SafetyLevel | None":
        return cls.CAUTIOUS if value == "moderate" else None


def parse_level(value: str) -> SafetyLevel:
    return parse_member(SafetyLevel, value, "safety level")


def annotations_for(level: SafetyLevel, *, retry_safe: bool) -> dict[str, bool]:
    """Return the hints for MCP clients about a level; `retry_safe` means that a call may be repeated."""
    return {
        "readOnlyHint": level is SafetyLevel.SAFE,
        "destructiveHint": level is SafetyLevel.DANGEROUS,
        "idempotentHint": retry_safe,
    }


class Reversibility(StrEnum):
    REVERSIBLE = "reversible"
    RESTORABLE = "restorable"
    IRREVERSIBLE = "irreversible"


def default_reversibility(level: SafetyLevel) -> Reversibility:
    return Reversibility.IRREVERSIBLE if level is SafetyLevel.DANGEROUS else Reversibility.REVERSIBLE


def parse_member(kind: type[MemberT], value: str, what: str) -> MemberT:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member) for member in kind)
        raise ToolDefinitionError(f"The {what} must be one of {choices}, not {value!r}.") from None


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


def grant_limits_for(setting: Mapping[str, Any] | None, level: str) -> GrantLimits | None:
    """Return a tool's grant limits from its setting and level; None if grants may not be made or used."""
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
