"""Whole values where a page shows only their beginning: memory, arguments and results as their JSON text."""

from plans.models import MemoryItem, Plan

PARTS = {"arguments": "call__arguments", "result": "call__response", "evidence": "call__late_evidence"}


def value_of(plan: Plan, key: str) -> str | None:
    """Return the JSON text of a value in a plan's memory, None when there is none."""
    return plan.memory.filter(type=MemoryItem.Type.VALUE, key=key).values_list("value", flat=True).first()


def part_of_step(plan: Plan, step_id: int, name: str) -> str | None:
    """Return the JSON text of one part of a step's call, None when there is none."""
    if name not in PARTS:
        return None
    return plan.steps.filter(step_id=step_id).values_list(PARTS[name], flat=True).first() or None
