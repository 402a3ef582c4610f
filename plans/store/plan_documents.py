"""Stored plans as submitted documents, for actions that change or clone a plan; and their initial memory.

Values of the initial memory belong to no step. A value that a step may overwrite is also stored as `given`, which only
clones of the plan read.
"""

import json
from collections.abc import Iterable
from typing import Any

from django.db.models import Q, QuerySet

from catalog.calls import vault
from catalog.calls.vault import SecretScope
from catalog.errors import Conflict
from catalog.secrets.placeholders import PLACEHOLDER_KEY, RedactedArguments, redact_text
from catalog.tools.registry import get_tool, output_key_of
from plans.models import MemoryItem, Plan, Step, StepDependency
from plans.spec import StepDocument
from plans.states import StepStatus

Document = dict[str, Any]


def step_documents(plan: Plan, *, opened: bool = False) -> dict[int, Document]:
    """Return the documents of the plan's steps by number, in order; two queries.

    Calls of agents are not part of the document, only the agents' own steps. Secrets are `{"$secret": name}`; with
    `opened`, used to check and store the document again, they are in clear text.
    """
    needs: dict[int, list[int]] = {}
    arrows = StepDependency.objects.filter(step__plan=plan).order_by("needs__step_id")
    for number, needed in arrows.values_list("step__step_id", "needs__step_id"):
        needs.setdefault(number, []).append(needed)
    written = plan.steps.filter(parent=None).order_by("step_id")
    documents: dict[int, Document] = {}
    for step in written:
        fields = {
            "tool": step.tool,
            "agent": step.agent,
            "parameters": step.parameters_json,
            "dependencies": needs.get(step.step_id, []),
            "expected_key": step.expected_key,
            "output_path": step.output_path_json,
            "done_check": step.done_check,
        }
        present = {name: value for name, value in fields.items() if value}
        documents[step.step_id] = {"step_id": step.step_id, "description": step.description, **present}
    if opened:  # one query for each step that has secrets
        cut = plan.steps.filter(parent=None, parameters__contains=PLACEHOLDER_KEY).values_list("step_id", "parameters")
        for number, text in cut:
            documents[number]["parameters"] = vault.load_available(text, plan.public_id)
    return documents


def step_columns(step: StepDocument) -> dict[str, Any]:
    """Return the columns of a step's row from its document, without secrets (see `store_step_secrets`)."""
    return {
        "description": redact_text(step.description),
        "tool": step.tool or "",
        "agent": step.agent or "",
        "parameters": _redacted_parameters_of(step).text,
        "expected_key": step.expected_key or "",
        "output_path": json.dumps(step.output_path) if step.output_path else "",
        "done_check": step.done_check or "",
    }


def store_step_secrets(plan_ref: str, steps: Iterable[StepDocument]) -> None:
    """Store the secrets of steps until their calls end, in the transaction that stores the steps."""
    for step in steps:
        secrets = _redacted_parameters_of(step).secrets
        if secrets:
            vault.store_secrets(SecretScope(plan_ref, str(step.step_id)), secrets)


def _redacted_parameters_of(step: StepDocument) -> RedactedArguments:
    return redacted_parameters(step.tool, step.parameters)


def redacted_parameters(tool: Any, parameters: Any) -> RedactedArguments:
    """Return a step's parameters with secrets redacted; `tool` may be anything a document contains."""
    found = get_tool(tool) if tool and isinstance(tool, str) else None
    return vault.redact_arguments(found, parameters, is_plan=True)


def unstarted_steps(plan: Plan) -> "QuerySet[Step]":
    """Return the steps that have not begun and have no call, and may still be changed.

    Steps with an early request are included; the request is withdrawn when the step changes. Calls of agents are not
    included.
    """
    uncalled = Q(call=None) | Q(call__approval__is_early=True)
    return plan.steps.filter(uncalled, parent=None, status=StepStatus.PENDING, attempt=0)


def agent_calls(plan: Plan) -> dict[int, int]:
    """Return the numbers of steps created by agents, each with the number of its agent's step."""
    rows = plan.steps.filter(parent__isnull=False)
    return dict(rows.values_list("step_id", "parent__step_id"))


def describe_agent_call(number: int, agents_step: int) -> str:
    """Return the beginning of a sentence about a step created by an agent."""
    return f"Step {number} was created by the agent in step {agents_step}"


def require_no_agent_calls(numbers: Iterable[int], plan: Plan) -> None:
    """Raise Conflict if one of these steps was created by an agent and so is not part of the plan's document."""
    calls = agent_calls(plan)
    number = next((each for each in numbers if each in calls), None)
    if number is not None:
        call, agents = describe_agent_call(number, calls[number]), calls[number]
        raise Conflict(
            f"{call} and cannot be edited. Make other steps depend on step {agents} instead. Nothing was changed."
        )


def removed_step_numbers(plan: Plan) -> set[int]:
    """Return the numbers of removed steps, which are not reused."""
    changes = plan.events.filter(type="plan.changed")
    return {number for change in changes for number in change.data_json.get("removed", ())}


VALUE, GIVEN = MemoryItem.Type.VALUE, MemoryItem.Type.GIVEN


def store_initial_memory(plan: Plan, steps: Iterable[StepDocument]) -> None:
    """Keep a copy of the initial values that these steps may overwrite. The steps must not have run."""
    written = {step.expected_key or output_key_of(step.tool) for step in steps}
    values = plan.memory.filter(type=VALUE, step_id=None, key__in=written - {""})
    kept = set(plan.memory.filter(type=GIVEN).values_list("key", flat=True)) if values else set()
    MemoryItem.objects.bulk_create(
        MemoryItem(plan=plan, type=GIVEN, key=row.key, value=row.value, at=row.at)
        for row in values
        if row.key not in kept
    )


def initial_memory(plan: Plan, *, opened: bool = False) -> dict[str, Any]:
    """Return the plan's memory as submitted; secrets are included only if `opened`."""
    rows = plan.memory.filter(type__in=(VALUE, GIVEN), step_id=None).order_by("id")
    return {row.key: vault.load_available(row.value, plan.public_id) if opened else row.value_json for row in rows}
