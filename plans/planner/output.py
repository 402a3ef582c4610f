"""The planner's answer in the shape of contract C: reading it from the model's text, and its routing."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from catalog.core.canonical_json import parse_json
from catalog.errors import ToolgateError
from plans.llm.client import Answer
from plans.llm.failures import AnswerUnreadable

MOST_BYTES = 512 * 1024
MOST_NAMED = 20
FENCE = "```"


class PlannedCall(BaseModel):
    """One tool call that the planner requests, with its reason."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""


class PlannerOutput(BaseModel):
    """One raw answer of the planner; nothing in it has been checked against the catalog.

    `plan` is a plan document, used for goals whose steps depend on each other.
    """

    model_config = ConfigDict(extra="forbid")

    intent: str = ""
    needs_tools: bool = False
    tool_calls: list[PlannedCall] = Field(default_factory=list)
    queries: list[str] = Field(default_factory=list)
    needs_user_input: bool = False
    input_request: str | None = None
    plan: dict[str, Any] | None = None

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _take_null(cls, value: Any) -> Any:
        """Accept null as an empty list, because contract C's state uses null."""
        return [] if value is None else value


def read_output(answer: Answer) -> PlannerOutput:
    """Return the planner's answer in a model's text: the first JSON object in it.

    Raises AnswerUnreadable with a reason that is fit to be sent to the model.
    """
    text = answer.text.strip()
    # Candidates are the whole text, fenced blocks, and the text between the outermost braces.
    fenced = (block[block.find("{") :].strip() for block in text.split(FENCE)[1::2] if "{" in block)
    candidates = [each for each in (text, *fenced) if each.startswith("{")]
    if "{" in text:
        candidates.append(text[text.find("{") : text.rfind("}") + 1])
    reason = "The answer is not a JSON object."
    for each in dict.fromkeys(candidates):
        try:
            return PlannerOutput.model_validate(parse_json(each, max_bytes=MOST_BYTES))
        except ToolgateError as error:
            reason = f"The answer is not valid JSON: {error.message}"
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[:MOST_NAMED]
            problems = (f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in found)
            reason = f"The answer does not match the requested format: {'; '.join(problems)}."
            break
    raise AnswerUnreadable(reason, answer.text, answer.tokens)


Route = Literal["execute_tools", "generate_response", "execute_queries"]


State = Mapping[str, Any]


def should_execute_tools(state: State) -> Route:
    """Return the next node: for tool calls if there are any, else for a question to the user, else for searches."""
    if state.get("tool_calls"):
        return "execute_tools"
    if state.get("needs_user_input"):
        return "generate_response"
    return "execute_queries"
