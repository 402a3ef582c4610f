"""Tool that asks the plan's owner a question (`plans.engine.questions`); it needs no model."""

from typing import Annotated

from pydantic import Field

from catalog.context import ToolContext
from catalog.errors import ToolError
from catalog.tools import tool
from plans.engine.questions import MAX_QUESTION
from plans.models import Question

QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, description="The question")]


@tool(categories=["planner"], returns_private_data=True, retry_safe=True)
def ask_user(question: QuestionText, *, context: ToolContext) -> str:
    """Ask the person whose plan this is, and wait for their answer; the answer is the result."""
    questions = Question.objects.filter(step__plan__public_id=context.plan_id, step__step_id=context.step_id or 0)
    given = questions.exclude(answered_at=None).last()
    if given is None:
        raise ToolError("ask_user works only as a step of a plan. Add it to a plan and start the plan.")
    return given.answer
