"""What was said around a plan, as one person may read it: the request, what its steps ask now, and the reply.

These are between who asked and Toolgate: the owner, reviewers and administrators read them, as they read the plan's
private values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.models import ApiToken
from plans.models import Plan, Question
from plans.picture import Picture
from plans.questions import waits_for_answer


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that waits for its answer; without its text for who may not read it."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a page shows; `told_by` names whose words the questions are, for they are not Toolgate's."""

    questions: Sequence[Asked] = ()
    request: str = ""
    reply: str = ""
    is_hidden: bool = False
    told_by: str = ""


def conversation_of(picture: Picture, *, may_read: bool) -> Conversation:
    """Return what was said around a plan; a query only when a step of it asks something."""
    plan = picture.plan
    waiting = {step.step.pk: step.number for step in picture.steps if waits_for_answer(step.step)}
    asked = [Asked(number, "") for number in waiting.values()]
    if not may_read:
        return Conversation(asked, is_hidden=bool(plan.request or plan.reply))
    if waiting:
        rows = Question.objects.filter(step__in=waiting, answered_at=None).order_by("step__step_id")
        asked = [Asked(waiting[row.step_id], row.text) for row in rows]
    return Conversation(asked, plan.request, plan.reply, told_by=_told_by(plan))


def _told_by(plan: Plan) -> str:
    if plan.request:
        return "Written by the planner, a language model. Tell it only what it needs, never a password."
    if plan.token is not None and plan.token.kind == ApiToken.Kind.AGENT:
        return f"Written by the agent {plan.token.name}. Tell it only what it needs, never a password."
    return "Written in the plan by whoever submitted it."


def state_of(picture: Picture) -> str:
    """Say what is to be seen of it, without a word of it: when this changes, a page asks for it again."""
    waiting = [f"{step.number}:{step.step.attempt}" for step in picture.steps if waits_for_answer(step.step)]
    return f"{' '.join(waiting)} {len(picture.plan.reply)}"
