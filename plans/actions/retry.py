"""Retries: failed steps and the steps that depend on them become pending again, and the plan continues.

A retried step starts over, and its next call passes the gate like any other. One step may be given other arguments;
they are taken literally.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.functions import Coalesce

from catalog import signals
from catalog.access.roles import user_display_name
from catalog.calls import vault
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import move, retry_on_deadlock, try_move
from catalog.dispatch.arguments import without_unchanged_defaults
from catalog.errors import Conflict, ParameterError, field_error
from catalog.inventory import snapshot
from catalog.models import ClientRun
from catalog.secrets.placeholders import RedactedArguments, without_macs
from plans.documents import references
from plans.documents.graphs import descendants
from plans.engine import calls, finishing, hints
from plans.engine.extensions import end_agent_runs
from plans.engine.refusals import require_plan_within_limits
from plans.engine.work import Memory, PreparedCall
from plans.models import Plan, Step, StepDependency
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store.plan_documents import describe_agent_call
from plans.store.requesters import Requester, add_requesters
from plans.store.transactions import PlanTransaction, plan_transaction

STOPPED = (StepStatus.FAILED, StepStatus.CANCELLED)
NO_EDITS: Mapping[str, Any] = MappingProxyType({})
NOT_RETRYABLE: Mapping[str, str] = {
    PlanStatus.PENDING: "The plan has not started, so there is nothing to retry.",
    PlanStatus.COMPLETED: "The plan is completed, so there is nothing to retry. Clone it to run it again.",
    PlanStatus.CANCELLED: "The plan was cancelled and cannot be retried. Clone it to run it again.",
}


@retry_on_deadlock
def retry_plan(plan: Plan, step_id: int | None = None, *, by: Requester) -> None:
    """Continue a plan from one failed step or from all of them, with its full deadline from now on.

    Raises Step.DoesNotExist, OutsideLimits, and Conflict if there is nothing to retry or an unknown outcome must be
    settled first.
    """
    require_plan_within_limits(plan, by.ids)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        reset_stopped_steps(plan, step_id, tx, by=by)
        finishing.settle_plan(tx)


def retry_with(plan: Plan, step_id: int | None, arguments: Mapping[str, Any], *, by: Requester) -> None:
    """Continue a plan from one failed step, which gets these arguments in place of its own.

    Raises ParameterError for invalid arguments, with paths relative to them. Raises ParameterError for `step_id` if it
    is None and several steps have failed. Also raises the errors of `retry_plan`.
    """
    require_plan_within_limits(plan, by.ids)  # before the arguments tell of the tool's schema
    step = stopped_step(plan, step_id)
    _retry_edited(plan, step, prepare_edit(plan, step, arguments), by)


@retry_on_deadlock
def _retry_edited(plan: Plan, step: Step, prepared: PreparedCall, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        reset_stopped_steps(plan, step.step_id, tx, by=by, event_data={"edited": True})
        Step.objects.filter(pk=step.pk).update(given_arguments=prepared.given_text)
        calls.store_call_secrets(prepared, plan.public_id, step.step_id)
        if step.call is not None:
            signals.record_fact("call.edited", call=step.call, by=by.user)
        finishing.settle_plan(tx)


def stopped_step(plan: Plan, step_id: int | None) -> Step:
    """Return step `step_id`, which failed and can get other arguments; without a number, the only failed step.

    Raises the errors of `retry_with`, and ParameterError for a step without a tool.
    """
    if step_id is None:
        numbers = list(plan.steps.filter(status=StepStatus.FAILED, parent=None).values_list("step_id", flat=True)[:2])
        if len(numbers) > 1:
            raise field_error("step_id", "required", "Several steps have failed. Name the one that gets the arguments.")
        if not numbers:
            raise Conflict("No step of this plan has failed.")
        step_id = numbers[0]
    if plan.status in NOT_RETRYABLE:
        raise Conflict(NOT_RETRYABLE[plan.status])
    if not plan.can_modify:
        raise Conflict("The plan was submitted with can_modify false. Retry the step unchanged, or clone the plan.")
    _from_step(plan, step_id)
    step = plan.steps.select_related("call__version", "plan").get(step_id=step_id)
    if not step.tool:
        raise field_error("arguments", "not_wanted", f"Step {step_id} calls no tool. Retry it without arguments.")
    return step


def prepare_edit(plan: Plan, step: Step, arguments: Mapping[str, Any]) -> PreparedCall:
    """Return the call that a failed or sent-back step makes with these arguments. Raises errors of `prepare_call`."""
    before = _editable_arguments(step)
    target = snapshot.callable_tool(step.tool)
    defaults = step.call.defaults if step.call else None
    given = without_unchanged_defaults(target.tool if target else None, arguments, before, defaults)
    restored = vault.restore_edited_arguments(given, before, plan.public_id)
    prepared = calls.prepare_call(step.tool, restored.in_place(), plan_ref=plan.public_id)
    restored.check(RedactedArguments(prepared.text, prepared.secrets))
    return prepared


def arguments_to_edit(step: Step) -> dict[str, Any]:
    """Return the arguments of a failed step's call. Without a call, return its parameters, resolved if possible."""
    if step.call is None and not step.given_arguments:
        parameters: dict[str, Any] = step.parameters_json
        with suppress(ParameterError):
            parameters = references.resolve(parameters, Memory(step.plan_id))
        return parameters
    arguments: dict[str, Any] = json.loads(without_macs(_editable_arguments(step)))
    return arguments


def _editable_arguments(step: Step) -> str:
    return step.call.arguments if step.call else step.given_arguments or step.parameters


def schema_to_edit(step: Step) -> dict[str, Any]:
    """Return the current input schema of the step's tool; empty if the tool is gone."""
    current = snapshot.callable_tool(step.tool)
    return dict(current.tool.input_schema) if current else {}


def reset_stopped_steps(
    plan: Plan, step_id: int | None, tx: PlanTransaction, *, by: Requester, event_data: Mapping[str, Any] = NO_EDITS
) -> None:
    """Make one stopped step and its dependents, or all stopped steps, pending again inside a transaction of the plan.

    `event_data` is added to the event of step `step_id`. Raises the errors of `retry_plan`, but for OutsideLimits. The
    caller must settle the plan.
    """
    plan.refresh_from_db()
    if plan.status in NOT_RETRYABLE:
        raise Conflict(NOT_RETRYABLE[plan.status])
    steps = _all_stopped(plan) if step_id is None else _from_step(plan, step_id)
    if ClientRun.objects.filter(call__step__in=steps).exists():
        raise Conflict(
            "The client runs this call itself. If it is still needed, the client asks again with a new call."
        )
    if plan.status == PlanStatus.FAILED:
        # The plan gets its full deadline and budget again.
        span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
        if span is None and plan.deadline_at is not None:
            span = plan.deadline_at - timedelta(seconds=plan.stopped_seconds) - plan.created_at
        failed = Plan.objects.filter(pk=plan.pk, status=PlanStatus.FAILED)
        renewed: dict[str, Any] = {"deadline_at": tx.now + span if span else None, "calls_used": 0, "seconds_used": 0.0}
        renewed["stopped_seconds"] = 0.0
        move(failed, to=PlanStatus.IN_PROGRESS, completed_at=None, **renewed)
        tx.record("plan.resumed", by=user_display_name(by.user), retry=True)
    _reset_steps(plan, steps, tx, by)
    for step in steps:
        details = dict(event_data) if step.step_id == step_id else {}
        if step.started_at is not None and step.completed_at is not None:
            details = {"began": format_utc(step.started_at), "ended": format_utc(step.completed_at)} | details
        tx.record("step.retrying", step.step_id, by=user_display_name(by.user), **details)


def _all_stopped(plan: Plan) -> list[Step]:
    """Return the steps that failed or were cancelled. There are none if the plan timed out just as its last step ended.

    Calls of agents are not retried automatically: the agent learns of the failure and decides.
    """
    steps = list(plan.steps.filter(status__in=STOPPED, parent=None))
    if steps:
        return steps
    unknown = plan.steps.filter(waiting_for=WaitingFor.OUTCOME).values_list("step_id", flat=True).first()
    if unknown is not None:
        raise _must_be_settled(unknown)
    if plan.status != PlanStatus.FAILED:
        raise Conflict("No step of this plan has failed.")
    return []


def _from_step(plan: Plan, step_id: int) -> list[Step]:
    """Return the step and its dependents, but only those that failed or were cancelled."""
    step = plan.steps.select_related("parent").get(step_id=step_id)
    if step.parent is not None:
        agents = step.parent.step_id
        raise Conflict(f"{describe_agent_call(step_id, agents)}, which decides what follows. Retry step {agents}.")
    if step.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(step_id)
    if step.status not in STOPPED:
        raise Conflict(f"Step {step_id} has not failed; it is {step.get_status_display().lower()}.")
    first = step.dependencies.filter(needs__status__in=STOPPED).values_list("needs__step_id", flat=True).first()
    if first is not None:
        raise Conflict(f"Step {step_id} needs step {first}, which has stopped as well. Retry that one.")
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs_id", "step_id")
    return list(plan.steps.filter(pk__in={step.pk} | descendants(step.pk, arrows), status__in=STOPPED))


def _must_be_settled(step_id: int) -> Conflict:
    return Conflict(
        f"The outcome of the call in step {step_id} is unknown, so it is not retried. First say what happened: it took "
        "effect, it did not, or request it again."
    )


def _reset_steps(plan: Plan, steps: list[Step], tx: PlanTransaction, by: Requester) -> None:
    """Reset the steps to pending. Attempt numbers continue, because they fence off superseded workers."""
    _require_agent_calls_ended(steps)
    rows = Step.objects.filter(pk__in=[step.pk for step in steps])
    now_ready = Case(When(dependencies_left=0, then=Value(tx.now)), output_field=DateTimeField())
    moved = try_move(
        rows, to=StepStatus.PENDING, ready_at=now_ready, retry_of=Coalesce(F("call"), F("retry_of")), call=None,
        error="", started_at=None, completed_at=None, waiting_since=None, crashes=0,
    )  # fmt: skip
    if moved != len(steps):
        raise Conflict("A step changed in the meantime. Nothing was retried. Reload and try again.")
    end_agent_runs([step.pk for step in steps if step.agent], tx)
    add_requesters(plan, [step.step_id for step in steps], by=by)
    hints.hint(plan.pk, max(1, sum(not step.dependencies_left for step in steps)))


def _require_agent_calls_ended(steps: list[Step]) -> None:
    """Raise Conflict while a call of an agent has not ended, as the agent could not learn its outcome."""
    agents = [step.pk for step in steps if step.agent]
    going = Step.objects.filter(parent__in=agents, status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS))
    call = going.select_related("parent").first() if agents else None
    if call is None or call.parent is None:
        return
    if call.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(call.step_id)
    raise Conflict(
        f"{describe_agent_call(call.step_id, call.parent.step_id)}, and has not ended yet. Retry once it has."
    )
