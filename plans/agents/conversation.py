"""What an agent and its model said so far, as an `AgentRun` keeps it: a list of messages, oldest first.

`{"by": "user", "text"}` is the task; `{"by": "model", "text", "calls": [{"id", "tool", "arguments"}]}` what the model
answered; `{"by": "tools", "results": [{"id", "tool", "text"}]}` what came of its calls. Secrets are never in them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter


class ToolUse(BaseModel):
    """One call that a model wants: `id` is its name in the conversation, there only once.

    `problem` says why it cannot be made as it was written; `arguments` then hold what was written, not arguments.
    """

    id: str
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    problem: str = ""


class ToolOutcome(BaseModel):
    """What came of one call, as the model is told: fenced, for it is data."""

    id: str
    tool: str
    text: str


class Task(BaseModel):
    """What the agent is to do."""

    by: Literal["user"] = "user"
    text: str


class ModelTurn(BaseModel):
    """What the model answered: text, calls or both."""

    by: Literal["model"] = "model"
    text: str = ""
    calls: list[ToolUse] = Field(default_factory=list)


class ToolOutcomes(BaseModel):
    """What came of the calls of the turn before, in its order."""

    by: Literal["tools"] = "tools"
    results: list[ToolOutcome]


Message = Annotated[Task | ModelTurn | ToolOutcomes, Field(discriminator="by")]
MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


class TurnResult(BaseModel):
    """What one asking of the model gave: the result of the tool `agent_turn`."""

    text: str = ""
    calls: list[ToolUse] = Field(default_factory=list)
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: str | None = None
    """US dollars; None where nobody knows the price."""
