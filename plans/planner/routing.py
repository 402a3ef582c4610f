"""What follows from what the planner answered: tools to call, a question to the user, or searches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from plans.services import Requester

if TYPE_CHECKING:
    from plans.planner.output import PlannerOutput

Route = Literal["execute_tools", "generate_response", "execute_queries"]


def should_execute_tools(state: Mapping[str, Any]) -> Route:
    """Say what comes next: tool calls before a question to the user, and searches when there is neither."""
    if state.get("tool_calls"):
        return "execute_tools"
    if state.get("needs_user_input"):
        return "generate_response"
    return "execute_queries"


async def execute_tools(state: Mapping[str, Any]) -> dict[str, Any]:
    """Run the planner's tool calls one after the other, whatever becomes of each."""
    raise NotImplementedError


def document_of(output: "PlannerOutput", request: str, *, by: Requester) -> dict[str, Any]:
    """Return the plan document that a checked answer of the planner makes."""
    raise NotImplementedError
