"""Retrying: what failed becomes pending again, with what depends on it, and the plan goes on from there.

A retried step is begun anew: its check is looked at again, its references are read again, and its next call, which
replaces the old one, passes the gate as any other. What is dangerous is asked about again. Completed steps stay.
One step may be given other arguments to run with; they are taken as they stand, as those of `plans.actions.give_input`
are.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.functions import Coalesce

from approvals.audit.restore_guard import ensure_not_restored
from catalog import signals
from catalog.access.roles import user_display_name
from catalog.calls import vault
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import move, retry_on_deadlock, try_move
from catalog.errors import Conflict, ParameterError, field_error
from catalog.inventory import snapshot
from catalog.secrets.placeholders import RedactedArguments, without_macs
from plans.documents import references
from plans.documents.graphs import descendants
from plans.engine import calls, finishing, hints
from plans.engine.extensions import end_agent_runs
from plans.engine.work import Memory, PreparedCall
from plans.models import Plan, Step, StepDependency
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store.plan_documents import describe_agent_call
from plans.store.requesters import Requester, add_requesters
from plans.store.transactions import PlanTransaction, plan_transaction

STOPPED = (StepStatus.FAILED, StepStatus.CANCELLED)
NO_EDITS: Mapping[str, Any] = MappingProxyType({})
NOT_RETRYABLE: Mapping[str, str] = {
    PlanStatus.PENDING: "The plan has not started: there is nothing to retry.",
    PlanStatus.COMPLETED: "The plan is done: there is nothing to retry. Clone it to run it again.",
    PlanStatus.CANCELLED: "The plan was cancelled, and stays so. Clone it to run it again.",
}


@retry_on_deadlock
def retry_plan(plan: Plan, step_id: int | None = None, *, by: Requester) -> None:
    """Let a plan go on from one failed step, or from all of them; a failed plan is in progress again.

    A plan that had failed gets its deadline's span again from now on. Raises Step.DoesNotExist, and Conflict when
    there is nothing to retry (any more) or when a person has to say first what happened.
    """
    ensure_not_restored()
    with plan_transaction(plan.pk, plan.public_id) as tx:
        reset_stopped_steps(plan, step_id, tx, by=by)
        finishing.settle_plan(tx)


def retry_with(plan: Plan, step_id: int | None, arguments: Mapping[str, Any], *, by: Requester) -> None:
    """Let a plan go on from one failed step, which is to run with these arguments in place of its own.

    Raises ParameterError with paths relative to the arguments, or for `step_id` when several steps have failed and none
    is named; and all that `retry_plan` raises.
    """
    ensure_not_restored()
    step = stopped_step(plan, step_id)
    _retry_edited(plan, step, prepare_edit(plan, step, arguments), by)


@retry_on_deadlock
def _retry_edited(plan: Plan, step: Step, order: PreparedCall, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        reset_stopped_steps(plan, step.step_id, tx, by=by, said={"edited": True})
        Step.objects.filter(pk=step.pk).update(given_arguments=order.text)
        calls.store_call_secrets(order, plan.public_id, step.step_id)
        if step.call is not None:
            signals.record_fact("call.edited", call=step.call, by=by.user)
        finishing.settle_plan(tx)


def stopped_step(plan: Plan, step_id: int | None) -> Step:
    """Return the failed step that can be given other arguments: the one named, else the only one.

    Raises as `retry_with` does; a step that calls no tool has no arguments (ParameterError).
    """
    if step_id is None:
        numbers = list(plan.steps.filter(status=StepStatus.FAILED, parent=None).values_list("step_id", flat=True)[:2])
        if len(numbers) > 1:
            raise field_error("step_id", "required", "Several steps have failed: name the one that gets the arguments.")
        if not numbers:
            raise Conflict("No step of this plan has failed.")
        step_id = numbers[0]
    if plan.status in NOT_RETRYABLE:
        raise Conflict(NOT_RETRYABLE[plan.status])
    if not plan.can_modify:
        raise Conflict("This plan was submitted with can_modify false: retry the step as it is, or clone the plan.")
    _from_step(plan, step_id)
    step = plan.steps.select_related("call__version", "plan").get(step_id=step_id)
    if not step.tool:
        raise field_error("arguments", "not_wanted", f"Step {step_id} calls no tool: retry it without arguments.")
    return step


def prepare_edit(plan: Plan, step: Step, arguments: Mapping[str, Any]) -> PreparedCall:
    """Return the order that these arguments make of a failed step; raise what `starting.order_for` raises."""
    wanted = vault.restore_edited_arguments(arguments, _editable_arguments(step), plan.public_id)
    order = calls.prepare_call(step.tool, wanted.in_place(), plan_ref=plan.public_id)
    wanted.check(RedactedArguments(order.text, order.secrets))
    return order


def arguments_to_edit(step: Step) -> dict[str, Any]:
    """Return the arguments that a failed step ran with, or would have: with its references read, where they can be."""
    if step.call is None and not step.given_arguments:
        parameters: dict[str, Any] = step.parameters_json
        with suppress(ParameterError):
            parameters = references.resolve(parameters, Memory(step.plan_id))
        return parameters
    shown: dict[str, Any] = json.loads(without_macs(_editable_arguments(step)))
    return shown


def _editable_arguments(step: Step) -> str:
    """Return the stored arguments that a person edits: those of its last call, those given to it, or its parameters."""
    return step.call.arguments if step.call else step.given_arguments or step.parameters


def schema_to_edit(step: Step) -> dict[str, Any]:
    """Return the schema that the arguments of a step have to fit: that of its tool as it is now."""
    current = snapshot.callable_tool(step.tool)
    return dict(current.tool.input_schema) if current else {}


def reset_stopped_steps(
    plan: Plan, step_id: int | None, tx: PlanTransaction, *, by: Requester, said: Mapping[str, Any] = NO_EDITS
) -> None:
    """Make one stopped step with what depends on it, or all of them, pending again, inside a transaction of the plan.

    `said` joins the event of the step that is named. Raises as `retry_plan` does. The caller settles the plan.
    """
    plan.refresh_from_db()
    if plan.status in NOT_RETRYABLE:
        raise Conflict(NOT_RETRYABLE[plan.status])
    steps = _all_stopped(plan) if step_id is None else _from_step(plan, step_id)
    if plan.status == PlanStatus.FAILED:
        _reopen(plan, tx, by)
    _reset_steps(plan, steps, tx, by)
    for step in steps:
        more = said if step.step_id == step_id else NO_EDITS
        tx.record("step.retrying", step.step_id, by=user_display_name(by.user), **_earlier_try(step), **more)


def _all_stopped(plan: Plan) -> list[Step]:
    """Return the steps that failed or were cancelled; a plan whose time ran out as its last step ended has none.

    What an agent called is not tried again by itself: the agent is told of it, and decides.
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
    """Return the step and what depends on it, as far as it was stopped."""
    step = plan.steps.select_related("parent").get(step_id=step_id)
    if step.parent is not None:
        agents = step.parent.step_id
        raise Conflict(f"{describe_agent_call(step_id, agents)}, which decides what follows: retry step {agents}.")
    if step.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(step_id)
    if step.status not in STOPPED:
        raise Conflict(f"Step {step_id} has not failed: it is {step.get_status_display().lower()}.")
    first = step.dependencies.filter(needs__status__in=STOPPED).values_list("needs__step_id", flat=True).first()
    if first is not None:
        raise Conflict(f"Step {step_id} needs step {first}, which has stopped too: retry that one.")
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs_id", "step_id")
    return list(plan.steps.filter(pk__in={step.pk} | descendants(step.pk, arrows), status__in=STOPPED))


def _must_be_settled(step_id: int) -> Conflict:
    return Conflict(
        f"Nobody knows whether the call of step {step_id} took effect, so it is not retried. Say what happened: that "
        "it did, that it did not, or that it is to be asked for again."
    )


def _reopen(plan: Plan, tx: PlanTransaction, by: Requester) -> None:
    """Let a failed plan go on, with as much time and as large a budget as it had at first."""
    span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
    if span is None and plan.deadline_at is not None:
        span = plan.deadline_at - plan.created_at
    failed = Plan.objects.filter(pk=plan.pk, status=PlanStatus.FAILED)
    deadline_at = tx.now + span if span else None
    move(failed, to=PlanStatus.IN_PROGRESS, completed_at=None, deadline_at=deadline_at, calls_used=0, seconds_used=0.0)
    tx.record("plan.resumed", by=user_display_name(by.user), retry=True)


def _reset_steps(plan: Plan, steps: list[Step], tx: PlanTransaction, by: Requester) -> None:
    """Make the steps pending as if they had not been begun; their attempts go on counting, for they are the fence."""
    _require_agent_calls_ended(steps)
    rows = Step.objects.filter(pk__in=[step.pk for step in steps])
    now_ready = Case(When(dependencies_left=0, then=Value(tx.now)), output_field=DateTimeField())
    moved = try_move(
        rows, to=StepStatus.PENDING, ready_at=now_ready, retry_of=Coalesce(F("call"), F("retry_of")), call=None,
        error="", started_at=None, completed_at=None, waiting_since=None, crashes=0,
    )  # fmt: skip
    if moved != len(steps):
        raise Conflict("A step went on meanwhile. Nothing was retried; look again.")
    end_agent_runs([step.pk for step in steps if step.agent], tx)
    add_requesters(plan, [step.step_id for step in steps], by=by)
    hints.hint(plan.pk, max(1, sum(not step.dependencies_left for step in steps)))


def _require_agent_calls_ended(steps: list[Step]) -> None:
    """Let no agent go on while a call of it has not ended: it could not be told what came of that."""
    agents = [step.pk for step in steps if step.agent]
    going = Step.objects.filter(parent__in=agents, status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS))
    call = going.select_related("parent").first() if agents else None
    if call is None or call.parent is None:
        return
    if call.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(call.step_id)
    raise Conflict(
        f"{describe_agent_call(call.step_id, call.parent.step_id)}, and has not ended yet. Retry it after that."
    )


def _earlier_try(step: Step) -> dict[str, str]:
    """Say when the step was tried before, for the history."""
    if step.started_at is None or step.completed_at is None:
        return {}
    return {"began": format_utc(step.started_at), "ended": format_utc(step.completed_at)}
