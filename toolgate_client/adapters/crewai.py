"""CrewAI: `Agent(…, tools=[gated_tool(tool, Client())])` asks Toolgate before the tool runs."""

from typing import Any

from crewai.tools import BaseTool
from pydantic_core import to_jsonable_python

from toolgate_client import Client, NotAllowed

SHARED = ("name", "description", "args_schema", "result_schema", "result_as_answer", "max_usage_count")


class GatedTool(BaseTool):
    """A tool that runs when Toolgate allows it, with the approved arguments; a refusal is its result.

    CrewAI's own hooks do not fit: an exception in one of them lets the tool run.
    """

    wrapped: BaseTool
    client: Client

    def _run(self, **arguments: Any) -> Any:
        given = to_jsonable_python(arguments)
        try:
            return self.client.run(self.name, given, lambda approved: self.wrapped.run(**approved))
        except NotAllowed as refusal:  # CrewAI makes a call that raises again, up to six times
            return refusal.message


def gated_tool(tool: BaseTool, client: Client) -> GatedTool:
    """Return the gated form of a tool. Its results are not cached: a refusal is not for ever."""
    shared = {name: getattr(tool, name) for name in SHARED}
    return GatedTool(wrapped=tool, client=client, cache_function=lambda *_: False, **shared)
