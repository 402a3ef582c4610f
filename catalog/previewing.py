"""What a stored call would do with other arguments: asked for below, computed where plans are known.

A preview may look at the plan's memory and takes its time, so whoever runs plans hands the way to compute it in.
"""

from collections.abc import Callable, Mapping
from typing import Any

from catalog.models import Call
from catalog.results import Preview

Previewer = Callable[[Call, Mapping[str, Any]], Preview | None]
_previewers: list[Previewer] = []


def compute_with(previewer: Previewer) -> None:
    """Let previews of stored calls be computed by this function from now on."""
    _previewers[:] = [previewer]


def preview_of(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Return what the call would do with these checked arguments; None when its tool has no preview.

    Raises ToolError when the tool already knows that it cannot do it. Never called inside a transaction.
    """
    if not _previewers:
        raise LookupError("Nothing was handed in that computes previews of stored calls.")
    return _previewers[0](call, arguments)
