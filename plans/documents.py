"""A stored plan as the document it was submitted as, for whoever changes or clones it. Reads rows, stores nothing."""

import json
from typing import Any

from django.db.models import QuerySet

from catalog.canonical import canonical_text
from plans.models import Plan, Step, StepDependency
from plans.spec import StepDocument
from plans.states import StepStatus

Document = dict[str, Any]


def documents_of(plan: Plan) -> dict[int, Document]:
    """Return the document of every step of the plan by its number, in order; two queries."""
    needs: dict[int, list[int]] = {}
    arrows = StepDependency.objects.filter(step__plan=plan).order_by("needs__step_id")
    for number, needed in arrows.values_list("step__step_id", "needs__step_id"):
        needs.setdefault(number, []).append(needed)
    return {step.step_id: _document(step, needs.get(step.step_id, [])) for step in plan.steps.order_by("step_id")}


def _document(step: Step, needs: list[int]) -> Document:
    """Return a step's document without the fields that say nothing."""
    fields = {
        "tool": step.tool,
        "agent": step.agent,
        "parameters": step.parameters_json,
        "dependencies": needs,
        "expected_key": step.expected_key,
        "output_path": step.output_path_json,
        "done_check": step.done_check,
    }
    said = {name: value for name, value in fields.items() if value}
    return {"step_id": step.step_id, "description": step.description, **said}


def fields_of(step: StepDocument) -> dict[str, Any]:
    """Return the columns of a step's row that its document fills."""
    return {
        "description": step.description,
        "tool": step.tool or "",
        "agent": step.agent or "",
        "parameters": canonical_text(step.parameters),
        "expected_key": step.expected_key or "",
        "output_path": json.dumps(step.output_path) if step.output_path else "",
        "done_check": step.done_check or "",
    }


def unstarted(plan: Plan) -> "QuerySet[Step]":
    """Return the steps that nobody has begun, nor asked for as a call: they may still become other steps."""
    return plan.steps.filter(status=StepStatus.PENDING, attempt=0, call=None)


def removed_from(plan: Plan) -> set[int]:
    """Return the numbers of steps that were taken out of the plan: no other step gets them."""
    changes = plan.events.filter(type="plan.changed")
    return {number for change in changes for number in change.data_json.get("removed", ())}
