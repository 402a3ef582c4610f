"""What was said around a plan, as one person may read it: the request, what its steps ask now, and the reply.

These are between who asked and Toolgate: the owner, reviewers and administrators read them, as they read the plan's
private values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.models import ApiToken
from plans.engine.questions import waits_for_answer
from plans.models import Question
from plans.picture import Picture, StepPicture

WITH_CARE = "Tell it only what it needs, never a password."


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that waits for its answer; without its text for who may not read it.

    `told_by` says whose words it is, for it is not Toolgate's, `read_by` which model reads the answer, if one does.
    """

    number: int
    text: str = ""
    told_by: str = ""
    read_by: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a page shows."""

    questions: Sequence[Asked] = ()
    request: str = ""
    reply: str = ""
    is_hidden: bool = False


def conversation_of(picture: Picture, *, may_read: bool) -> Conversation:
    """Return what was said around a plan; a query only when a step of it asks something."""
    plan = picture.plan
    waiting = {step.step.pk: step for step in picture.steps if waits_for_answer(step.step)}
    if not may_read:
        asked = [Asked(step.number) for step in waiting.values()]
        return Conversation(asked, is_hidden=bool(plan.request or plan.reply))
    rows = Question.objects.filter(step__in=waiting, answered_at=None).order_by("step__step_id") if waiting else ()
    asked = [_asked(picture, waiting[row.step_id], row.text) for row in rows]
    return Conversation(asked, plan.request, plan.reply)


def _asked(picture: Picture, step: StepPicture, text: str) -> Asked:
    plan = picture.plan
    if step.parent is not None:
        name = picture.by_number[step.parent].step.agent
        told_by = f"Written by the agent {name}, a language model. {WITH_CARE}"
        return Asked(step.number, text, told_by, f"the provider of the model of {name}")
    if plan.request:
        told_by = f"Written by the planner, a language model. {WITH_CARE}"
        return Asked(step.number, text, told_by, "the language model")
    if plan.token is not None and plan.token.kind == ApiToken.Kind.AGENT:
        return Asked(step.number, text, f"Written by the agent {plan.token.name}. {WITH_CARE}")
    return Asked(step.number, text, "Written in the plan by whoever submitted it.")


def state_of(picture: Picture) -> str:
    """Say what is to be seen of it, without a word of it: when this changes, a page asks for it again."""
    waiting = [f"{step.number}:{step.step.attempt}" for step in picture.steps if waits_for_answer(step.step)]
    return f"{' '.join(waiting)} {len(picture.plan.reply)}"
