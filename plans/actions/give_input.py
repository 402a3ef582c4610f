"""Input for waiting steps: answers to questions, and new arguments for calls that reviewers sent back for changes.

The arguments are taken literally, without references to memory. The step's own parameters stay unchanged, so private
values in them stay private.
"""

from collections.abc import Callable, Mapping
from typing import Any

from approvals.requests.held_calls import SENT_BACK
from catalog.access.roles import user_display_name
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.secrets.placeholders import redact_text
from plans.actions.retry import prepare_edit
from plans.engine import calls, hints
from plans.engine.questions import waits_for_answer
from plans.engine.refusals import require_plan_within_limits
from plans.engine.work import PreparedCall
from plans.models import Plan, Question, Step
from plans.states import StepStatus, WaitingFor
from plans.store.requesters import Requester, add_requester_of_descendants, add_requesters
from plans.store.transactions import plan_transaction

MAX_ANSWER = 4000
WAITS_FOR_ARGUMENTS = {"status": StepStatus.IN_PROGRESS, "waiting_for": WaitingFor.INPUT, "claimed_by": ""}


def step_waiting_for_arguments(plan: Plan, step_id: int | None) -> Step:
    """Return step `step_id`, which waits for changed arguments; without a number, the only step that waits for them.

    Raises Step.DoesNotExist if the plan has no such step, and Conflict if the step does not wait or several do.
    """
    return _only_waiting_step(plan, step_id, is_sent_back)


def step_waiting_for_answer(plan: Plan, step_id: int | None) -> Step:
    """Return the step that waits for an answer to its question. Raises the errors of `step_waiting_for_arguments`."""
    return _only_waiting_step(plan, step_id, waits_for_answer)


def _only_waiting_step(plan: Plan, step_id: int | None, waits: Callable[[Step], bool]) -> Step:
    steps = plan.steps.select_related("call__version")
    if step_id is not None:
        step = steps.get(step_id=step_id)
        if not waits(step):
            raise Conflict(f"Step {step_id} is not waiting for input.")
        return step
    found = [each for each in steps.filter(**WAITS_FOR_ARGUMENTS) if waits(each)]
    if len(found) != 1:
        raise Conflict(
            "Several steps are waiting for input. Name one with step_id." if found else "No step is waiting for input."
        )
    return found[0]


def is_sent_back(step: Step) -> bool:
    """Return whether the step waits for new arguments because reviewers sent its call back."""
    waits = step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.INPUT
    return waits and step.call is not None and step.call.error_kind == SENT_BACK


def give_input(
    plan: Plan, step_id: int | None, arguments: Mapping[str, Any] | None, *, text: str = "", by: Requester
) -> None:
    """Give a plan the input it waits for: `text` for a question, `arguments` for a call that was sent back.

    Raises ParameterError if the input that the step needs is missing, and the errors of `revise_arguments` and
    `answer_question`.
    """
    step = _only_waiting_step(plan, step_id, lambda each: waits_for_answer(each) or is_sent_back(each))
    if waits_for_answer(step):
        if arguments is not None:
            raise field_error("arguments", "not_wanted", "This step asks a question. Answer it with text.")
        answer_question(plan, step, text, by=by)
    elif arguments is None:
        raise field_error("arguments", "required", "Reviewers requested changes to this call. Give its new arguments.")
    else:
        revise_arguments(plan, step.step_id, arguments, by=by)


def answer_question(plan: Plan, step: Step, text: str, *, by: Requester) -> None:
    """Answer a step's question.

    Raises ParameterError for an invalid text, OutsideLimits, and Conflict if the step does not wait.
    """
    require_plan_within_limits(plan, by.ids)
    answer = text.replace("\r\n", "\n").strip()
    if not answer:
        raise field_error("text", "required", "Write an answer.")
    if len(answer) > MAX_ANSWER:
        raise field_error(
            "text", "too_long", f"This has {len(answer):,} characters; an answer may have at most {MAX_ANSWER:,}."
        )
    if "\0" in answer:
        raise field_error("text", "invalid", "An answer must not contain the NUL character.")
    _store_answer(plan, step, redact_text(answer), by)


@retry_on_deadlock
def _store_answer(plan: Plan, step: Step, text: str, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        waiting = Step.objects.filter(
            pk=step.pk, call=None, status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.INPUT, claimed_by=""
        )
        if not waiting.update(waiting_for="", waiting_since=None, ready_at=tx.now):
            raise Conflict(f"Step {step.step_id} no longer waits for an answer.")
        given = {"answer": text, "answered_by": by.user, "answered_at": tx.now}
        Question.objects.filter(step=step.pk, answered_at=None).update(**given)
        add_requester_of_descendants(plan, step, by=by)
        tx.record("input.received", step.step_id, by=user_display_name(by.user), question=True)
        hints.hint(plan.pk)


def revise_arguments(plan: Plan, step_id: int | None, arguments: Mapping[str, Any], *, by: Requester) -> None:
    """Replace the call of a step that was sent back by a call with new arguments, and request its approval.

    Raises ParameterError, whose paths are relative to the arguments, OutsideLimits, and the errors of
    `step_waiting_for_arguments`.
    """
    require_plan_within_limits(plan, by.ids)  # before the arguments tell of the tool's schema
    step = step_waiting_for_arguments(plan, step_id)
    _store_revision(plan, step, prepare_edit(plan, step, arguments), by)


@retry_on_deadlock
def _store_revision(plan: Plan, step: Step, prepared: PreparedCall, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        waiting = Step.objects.filter(pk=step.pk, call=step.call, **WAITS_FOR_ARGUMENTS)
        if not waiting.update(given_arguments=prepared.given_text, waiting_for="", waiting_since=None, ready_at=tx.now):
            raise Conflict(f"Step {step.step_id} is no longer waiting for input.")
        calls.store_call_secrets(prepared, plan.public_id, step.step_id)
        add_requesters(plan, [step.step_id], by=by)
        tx.record("input.received", step.step_id, by=user_display_name(by.user))
        hints.hint(plan.pk)
