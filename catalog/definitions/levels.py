"""Safety levels, reversibility, and the hints for MCP clients that follow from them."""

from enum import StrEnum
from typing import TypeVar

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
