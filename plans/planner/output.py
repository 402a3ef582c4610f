"""The planner's answer in the shape of contract C, and its routing."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


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
        """Accept null as an empty list, as contract C's state uses it."""
        return [] if value is None else value


Route = Literal["execute_tools", "generate_response", "execute_queries"]


State = Mapping[str, Any]


def should_execute_tools(state: State) -> Route:
    """Return the next node: tool calls come before a question to the user; without either, searches."""
    if state.get("tool_calls"):
        return "execute_tools"
    if state.get("needs_user_input"):
        return "generate_response"
    return "execute_queries"
