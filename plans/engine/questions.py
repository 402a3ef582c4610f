"""Steps that ask the plan's author a question and wait for the answer, which becomes the step's result.

The step waits before its call and holds no resources. The answer makes it claimable; its call then passes the gate
like any other and returns the answer. A question denied by a policy is never asked.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from catalog.access.roles import user_display_name
from catalog.core.transactions import retry_on_deadlock
from catalog.dispatch.serialization import storable_text
from catalog.errors import Conflict, ParameterError, field_error
from catalog.secrets.placeholders import redact_text
from plans.documents import references
from plans.engine import hints, model_texts
from plans.models import Plan, Question, Step
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.requesters import Requester, add_requester_of_descendants
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction, plan_transaction

ASK_USER = "ask_user"
MAX_QUESTION = 2000
MAX_ANSWER = 4000


def waits_for_answer(step: Step) -> bool:
    waits = step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.INPUT
    return waits and step.tool == ASK_USER and step.call_id is None


def is_answered(step_pk: int) -> bool:
    latest = Question.objects.filter(step=step_pk).order_by("-pk").values_list("answered_at", flat=True).first()
    return latest is not None


def ask_question(tx: PlanTransaction, step: ClaimedStep, text: str) -> None:
    """Store the question and let the claimed step wait for its answer. Raises Conflict if the lease was lost.

    Characters that a database cannot store are replaced by a mark.
    """
    if not statements.release_step(tx.cursor, step, StepWait(WaitingFor.INPUT, None, tx.now)):
        raise Conflict("Another worker took over this step before its question was asked.")
    question = {"text": storable_text(text), "asked_at": tx.now}
    Question.objects.update_or_create(step_id=step.pk, answered_at=None, defaults=question)
    tx.record("step.waiting", step.step_id, waiting_for="input", question=True)
    tx.record("input.requested", step.step_id, question=True)


def answer_question(plan: Plan, step: Step, text: str, *, by: Requester) -> None:
    """Answer a step's question. Raises ParameterError for an invalid text, Conflict if the step does not wait."""
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of a plan and its answer, None while it is open."""

    step_id: int
    question: str
    answer: str | None


def exchanges_of(plan_pk: int) -> Sequence[Exchange]:
    """Return the questions of a plan so far with their answers, in order."""
    rows = Question.objects.filter(step__plan=plan_pk).order_by("pk")
    found = rows.values_list("step__step_id", "text", "answer", "answered_at")
    return [Exchange(step, text, answer if at else None) for step, text, answer, at in found]


def exchanges_for_models(plan_pk: int) -> Sequence[Exchange]:
    """Return the questions and answers of a plan, with values hidden from models replaced in the questions."""
    exchanges, left_out = exchanges_of(plan_pk), model_texts.keys_hidden_from_models(plan_pk)
    if not left_out or not exchanges:
        return exchanges
    steps = Step.objects.filter(plan=plan_pk, step_id__in=[each.step_id for each in exchanges], given_arguments="")
    parameters = {step.step_id: step.parameters_json for step in steps}
    return [
        replace(each, question=_question_for_model(each, parameters.get(each.step_id), plan_pk, left_out))
        for each in exchanges
    ]


def _question_for_model(exchange: Exchange, parameters: Any, plan_pk: int, left_out: Set[str]) -> str:
    try:
        if left_out.isdisjoint(reference.key for reference in references.find(parameters)):
            return exchange.question
        return str(model_texts.resolve_for_model(parameters, plan_pk)["question"])
    except ParameterError:  # a referenced value no longer exists
        return model_texts.VALUE_HIDDEN
