"""Completion hooks of the planner's steps, run in the transaction that completes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from plans.engine import retries
from plans.models import MemoryItem, Plan, Step, StepAsker, StepDependency
from plans.spec import MAX_STEPS, StepDocument, extract_value
from plans.states import StepStatus
from plans.store.plan_documents import removed_step_numbers, step_columns, store_step_secrets
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction

Response = Mapping[str, Any]
PLANNER = "the planner"
"""Name recorded in `plan.changed` events for steps added by the planner."""
CHANGED = "The plan was changed while the planner was working. Retry this step to ask the planner again."
UNREADABLE = "The planner's answer contains no steps. Retry this step, or change the plan."
TOO_MANY = f"With the planner's steps the plan would have more than {MAX_STEPS}. Clone it without completed steps."
STEPS: TypeAdapter[list[StepDocument]] = TypeAdapter(list[StepDocument])


def add_planned_steps(tx: PlanTransaction, step: ClaimedStep, response: Response) -> str:
    """Add the steps that the planner named; return the reason if that is impossible, else an empty string.

    A plan that has ended in the meantime stays unchanged.
    """
    if retries.plan_is_over(tx):
        return ""
    try:
        new_steps = STEPS.validate_python(extract_value(response, ["results", "0", "steps"]))
    except ValidationError:
        return UNREADABLE
    plan = Plan.objects.get(pk=tx.plan_pk)
    refusal = _objection_to_steps(plan, new_steps)
    if not refusal and new_steps:
        _add_to_plan(plan, step, new_steps)
        tx.record("plan.changed", by=PLANNER, added=[each.step_id for each in new_steps])
    return refusal


def _objection_to_steps(plan: Plan, new_steps: Sequence[StepDocument]) -> str:
    """Return why the steps cannot be added to the current plan, or an empty string."""
    there = set(plan.steps.values_list("step_id", flat=True))
    if len(there) + len(new_steps) > MAX_STEPS:
        return TOO_MANY
    written = plan.memory.filter(type=MemoryItem.Type.VALUE).values_list("key", flat=True)
    keys = {*written, *plan.steps.exclude(expected_key="").values_list("expected_key", flat=True)}
    numbers = [each.step_id for each in new_steps]
    used = there | removed_step_numbers(plan)
    needed = {number for each in new_steps for number in each.dependencies}
    is_free = len(set(numbers)) == len(numbers) and not used.intersection(numbers)
    is_whole = needed <= there.union(numbers)
    return "" if is_free and is_whole and not keys.intersection(each.expected_key for each in new_steps) else CHANGED


def _add_to_plan(plan: Plan, step: ClaimedStep, new_steps: Sequence[StepDocument]) -> None:
    """Store the steps with their dependencies; the caller makes those ready that have no open dependencies.

    They are marked `after_answer`: their texts may contain a person's private answer.
    """
    done = set(plan.steps.filter(status=StepStatus.COMPLETED).values_list("step_id", flat=True))
    Step.objects.bulk_create(
        Step(
            plan=plan,
            step_id=each.step_id,
            after_answer=True,
            dependencies_left=len(set(each.dependencies) - done),
            **step_columns(each),
        )
        for each in new_steps
    )
    store_step_secrets(plan.public_id, new_steps)
    pks = dict(plan.steps.values_list("step_id", "pk"))
    StepDependency.objects.bulk_create(
        StepDependency(step_id=pks[each.step_id], needs_id=pks[needed])
        for each in new_steps
        for needed in set(each.dependencies)
    )
    askers = StepAsker.objects.filter(step=step.pk).values_list("person_id", flat=True)
    StepAsker.objects.bulk_create(
        StepAsker(step_id=pks[each.step_id], person_id=person) for person in askers for each in new_steps
    )


def store_reply(tx: PlanTransaction, step: ClaimedStep, response: Response) -> str:
    """Store the reply on the plan; never fails."""
    reply = extract_value(response, ["results", "0"])
    if isinstance(reply, str):
        Plan.objects.filter(pk=tx.plan_pk).update(reply=reply)
    return ""
