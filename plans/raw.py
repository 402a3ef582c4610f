"""Whole values where a page shows only their beginning: memory, arguments and results as their JSON text."""

import json

from catalog.calls.privacy import Hidden, mask_response
from catalog.secrets.placeholders import shown_text
from plans.masked import masked_json
from plans.models import MemoryItem, Plan
from plans.store.privacy import PrivateParts

PARTS = {"arguments": "call__arguments", "result": "call__response", "evidence": "call__late_evidence"}


def value_of(plan: Plan, key: str, private: PrivateParts) -> str | None:
    """Return the JSON text of a value in a plan's memory, None when there is none; masked when it is private."""
    stored = plan.memory.filter(type=MemoryItem.Type.VALUE, key=key).values_list("value", flat=True).first()
    text = stored and shown_text(stored)
    return masked_json(text) if text is not None and key in private.keys else text


def part_of_step(plan: Plan, step_id: int, name: str, private: PrivateParts) -> str | None:
    """Return the JSON text of one part of a step's call, None when there is none; masked when it is private."""
    if name not in PARTS:
        return None
    text = shown_text(plan.steps.filter(step_id=step_id).values_list(PARTS[name], flat=True).first() or "")
    hidden = private.steps.get(step_id)
    return _masked(text, name, hidden) if text and hidden else text or None


def _masked(text: str, name: str, hidden: Hidden) -> str:
    if name == "evidence":
        return masked_json(text)
    value = json.loads(text)
    return json.dumps(hidden.mask_arguments(value) if name == "arguments" else mask_response(value), ensure_ascii=False)
