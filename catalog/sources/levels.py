"""Safety levels of imported tools, from the annotations of MCP servers and the methods of HTTP operations."""

from collections.abc import Mapping
from typing import Any

from catalog.definitions.levels import SafetyLevel


def level_from_annotations(annotations: Any, *, trusted: bool) -> tuple[SafetyLevel, str]:
    """Return the level that follows from MCP annotations, and the reason. Unless `trusted`, the level is one higher."""
    if annotations is not None and annotations.read_only_hint:
        level, why = SafetyLevel.SAFE, "read-only hint"
    elif annotations is not None and annotations.destructive_hint is False:
        level, why = SafetyLevel.CAUTIOUS, "hint that it destroys nothing"
    else:
        level, why = SafetyLevel.DANGEROUS, "no hint that it is harmless"
    if trusted or level is SafetyLevel.DANGEROUS:
        return level, why
    return list(SafetyLevel)[level.rank + 1], f"{why}, one level up because the source is not trusted"


METHOD_LEVELS: Mapping[str, SafetyLevel] = {
    "GET": SafetyLevel.SAFE,
    "HEAD": SafetyLevel.SAFE,
    "POST": SafetyLevel.CAUTIOUS,
    "PUT": SafetyLevel.CAUTIOUS,
    "PATCH": SafetyLevel.CAUTIOUS,
    "DELETE": SafetyLevel.DANGEROUS,
}
