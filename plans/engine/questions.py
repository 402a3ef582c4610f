"""Steps that ask the plan's author a question and wait for the answer, which becomes the step's result.

The step waits before its call and holds no resources. The answer makes it claimable; its call then passes the gate
like any other and returns the answer. A question denied by a policy is never asked.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from catalog.dispatch.serialization import storable_text
from catalog.errors import Conflict, ParameterError
from plans.documents import references
from plans.engine import model_texts
from plans.models import Question, Step
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

ASK_USER = "ask_user"
MAX_QUESTION = 2000


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
