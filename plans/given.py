"""The memory that a plan was given when it was submitted, kept apart from what its steps write over it.

A given value stands in memory with no step to its name. One that a step may write over is kept a second time, as
`given`, which nobody reads but who clones the plan.
"""

from collections.abc import Iterable
from typing import Any

from catalog.calls import vault
from catalog.tools.registry import output_key_of
from plans.models import MemoryItem, Plan
from plans.spec import StepDocument

VALUE, GIVEN = MemoryItem.Type.VALUE, MemoryItem.Type.GIVEN


def keep_given(plan: Plan, steps: Iterable[StepDocument]) -> None:
    """Keep the given values that these steps, which have not run, may write over."""
    written = {step.expected_key or output_key_of(step.tool) for step in steps}
    values = plan.memory.filter(type=VALUE, step_id=None, key__in=written - {""})
    kept = set(plan.memory.filter(type=GIVEN).values_list("key", flat=True)) if values else set()
    MemoryItem.objects.bulk_create(
        MemoryItem(plan=plan, type=GIVEN, key=row.key, value=row.value, at=row.at)
        for row in values
        if row.key not in kept
    )


def given_memory(plan: Plan, *, opened: bool = False) -> dict[str, Any]:
    """Return the memory that the plan was given, as it was submitted; its secrets only when they are `opened`."""
    rows = plan.memory.filter(type__in=(VALUE, GIVEN), step_id=None).order_by("id")
    return {row.key: vault.opened(row.value, plan.public_id) if opened else row.value_json for row in rows}
