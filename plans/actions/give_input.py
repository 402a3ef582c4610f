"""Steps that wait for their person: reviewers wanted the call changed, and what it is to run with is asked for.

What a person gives is taken as it stands: nothing in it refers to the plan's memory. The step's own parameters stay as
they were planned, so that what in them was private stays so. Steps that ask a question wait likewise, and are answered
at the same address: `plans.engine.questions` has them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from approvals.audit.restore_guard import ensure_not_restored
from approvals.requests.resolution import SENT_BACK
from catalog.access.roles import user_display_name
from catalog.calls import vault
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.secrets.placeholders import RedactedArguments
from plans.engine import calls, hints
from plans.engine.questions import answer_question, waits_for_answer
from plans.engine.work import PreparedCall
from plans.models import Plan, Step
from plans.states import StepStatus, WaitingFor
from plans.store.requesters import Requester, add_requesters
from plans.store.transactions import plan_transaction

WAITS_FOR_ARGUMENTS = {"status": StepStatus.IN_PROGRESS, "waiting_for": WaitingFor.INPUT, "claimed_by": ""}


def step_waiting_for_arguments(plan: Plan, step_id: int | None) -> Step:
    """Return the step that waits for changed arguments: the one named, else the only one.

    Raises Step.DoesNotExist for a number that the plan does not have, and Conflict where nothing waits.
    """
    return _only_waiting_step(plan, step_id, is_sent_back)


def step_waiting_for_answer(plan: Plan, step_id: int | None) -> Step:
    """Return the step that waits for the answer to its question; raises as `step_waiting_for_arguments` does."""
    return _only_waiting_step(plan, step_id, waits_for_answer)


def _only_waiting_step(plan: Plan, step_id: int | None, waits: Callable[[Step], bool]) -> Step:
    steps = plan.steps.select_related("call__version")
    if step_id is not None:
        step = steps.get(step_id=step_id)
        if not waits(step):
            raise Conflict(f"Step {step_id} waits for no input.")
        return step
    found = [each for each in steps.filter(**WAITS_FOR_ARGUMENTS) if waits(each)]
    if len(found) != 1:
        raise Conflict("Several steps wait for input: name one by step_id." if found else "Nothing waits for input.")
    return found[0]


def is_sent_back(step: Step) -> bool:
    """Say whether the step waits for what its call, which reviewers sent back, is to run with."""
    waits = step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.INPUT
    return waits and step.call is not None and step.call.error_kind == SENT_BACK


def give_input(
    plan: Plan, step_id: int | None, arguments: Mapping[str, Any] | None, *, text: str = "", by: Requester
) -> None:
    """Give a plan what it waits for: `text` for a question, `arguments` for a step that was sent back.

    Raises ParameterError without the one it waits for, and as `revise_arguments` and `questions.answer_question` do.
    """
    step = _only_waiting_step(plan, step_id, lambda each: waits_for_answer(each) or is_sent_back(each))
    if waits_for_answer(step):
        if arguments is not None:
            raise field_error("arguments", "not_wanted", "This step asks a question: answer it with text.")
        answer_question(plan, step, text, by=by)
    elif arguments is None:
        raise field_error(
            "arguments", "required", "Reviewers wanted the call changed: give it the arguments to run with."
        )
    else:
        revise_arguments(plan, step.step_id, arguments, by=by)


def revise_arguments(plan: Plan, step_id: int | None, arguments: Mapping[str, Any], *, by: Requester) -> None:
    """Let a step that was sent back go on with other arguments: its new call, which replaces the old, is asked for.

    Raises ParameterError, its paths relative to the arguments, and what `step_waiting_for_arguments` raises.
    """
    ensure_not_restored()
    step = step_waiting_for_arguments(plan, step_id)
    _store_revision(plan, step, prepare_revision(plan, step, arguments), by)


def prepare_revision(plan: Plan, step: Step, arguments: Mapping[str, Any]) -> PreparedCall:
    """Return the order that these arguments make of a step that was sent back; raise what `order_for` raises."""
    before = step.call.arguments if step.call else step.parameters
    wanted = vault.restore_edited_arguments(arguments, before, plan.public_id)
    order = calls.prepare_call(step.tool, wanted.in_place(), plan_ref=plan.public_id)
    wanted.check(RedactedArguments(order.text, order.secrets))
    return order


@retry_on_deadlock
def _store_revision(plan: Plan, step: Step, order: PreparedCall, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        waiting = Step.objects.filter(pk=step.pk, call=step.call, **WAITS_FOR_ARGUMENTS)
        if not waiting.update(given_arguments=order.text, waiting_for="", waiting_since=None, ready_at=tx.now):
            raise Conflict(f"Step {step.step_id} waits for no input any more.")
        calls.store_call_secrets(order, plan.public_id, step.step_id)
        add_requesters(plan, [step.step_id], by=by)
        tx.record("input.received", step.step_id, by=user_display_name(by.user))
        hints.hint(plan.pk)
