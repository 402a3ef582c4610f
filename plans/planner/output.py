"""What the planner answers, as contract C has it, and which way the answer goes."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class PlannedCall(BaseModel):
    """One tool call that the planner wants, and why."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""


class PlannerOutput(BaseModel):
    """One answer of the planner, as it gave it: nothing in it has been checked against the catalog.

    `plan` is a plan document as it is submitted, for goals that need steps which depend on each other.
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
        """Take null for no calls: contract C's state has it so."""
        return [] if value is None else value


Route = Literal["execute_tools", "generate_response", "execute_queries"]


State = Mapping[str, Any]


def should_execute_tools(state: State) -> Route:
    """Say what comes next: tool calls before a question to the user, and searches when there is neither."""
    if state.get("tool_calls"):
        return "execute_tools"
    if state.get("needs_user_input"):
        return "generate_response"
    return "execute_queries"
