"""What a tool's result means for its plan beside being kept: told by whoever knows, asked where a step is completed."""

from collections.abc import Callable
from typing import Any

from plans.store.statements import Claimed
from plans.store.transactions import Recording

Meaning = Callable[[Recording, Claimed, dict[str, Any]], str]
_MEANINGS: dict[str, Meaning] = {}


def on_completion(tool: str, meaning: Meaning) -> None:
    """Let `meaning` carry out what this tool's results mean, in the transaction that completes the step, before it.

    It returns why that cannot be, and has changed nothing then; or an empty text.
    """
    _MEANINGS[tool] = meaning


def has_meaning(tool: str) -> bool:
    """Say whether results of this tool mean more than themselves."""
    return tool in _MEANINGS


def carry_out(batch: Recording, step: Claimed, response: dict[str, Any]) -> str:
    """Carry out what a step's result means; return why that cannot be, or an empty text."""
    meaning = _MEANINGS.get(step.tool)
    return meaning(batch, step, response) if meaning is not None else ""
