"""The tool that asks the person whose plan it is; it needs no model, so any plan may have such a step.

The step waits with `plans.engine.questions`; when its call runs there is an answer, and that is what it gives back.
"""

from typing import Annotated

from pydantic import Field

from catalog.context import ToolContext
from catalog.errors import ToolError
from catalog.tools import tool
from plans.engine.questions import MAX_QUESTION
from plans.models import Question

QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, description="What the person is asked")]


@tool(categories=["planner"], returns_private_data=True, retry_safe=True)
def ask_user(question: QuestionText, *, context: ToolContext) -> str:
    """Ask the person whose plan this is, and wait for their answer; the answer is the result."""
    asked = Question.objects.filter(step__plan__public_id=context.plan_id, step__step_id=context.step_id or 0)
    given = asked.exclude(answered_at=None).last()
    if given is None:
        raise ToolError("Only a step of a plan waits for an answer: put ask_user into a plan, and start that.")
    return given.answer
