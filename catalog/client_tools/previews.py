"""Previews of calls that a coding agent runs itself, computed from what the client sent."""

from collections.abc import Mapping
from typing import Any

from catalog.results import Preview


def preview(tool: str, input: Mapping[str, Any], cwd: str) -> Preview | None:
    """Return the preview of a call; None for a tool that is not known here. Never raises for hostile input."""
    return None
