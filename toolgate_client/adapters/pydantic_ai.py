"""Pydantic AI: `Agent(…, capabilities=[GatedTools(AsyncClient())])` asks Toolgate before each of the agent's tools."""

from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_core import to_json, to_jsonable_python

from toolgate_client import AsyncClient, NotAllowed
from toolgate_client.client import is_same_json


@dataclass
class GatedTools(AbstractCapability[Any]):
    """A capability: every tool of the agent runs when Toolgate allows it; the model reads a refusal as a failure."""

    client: AsyncClient

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return GatedToolset(toolset, self.client)


@dataclass
class GatedToolset(WrapperToolset[Any]):
    client: AsyncClient

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        given = to_jsonable_python(tool_args)

        def run(approved: dict[str, Any]) -> Any:
            is_same = is_same_json(approved, given)
            arguments = tool_args if is_same else tool.args_validator.validate_json(to_json(approved))
            return self.wrapped.call_tool(name, arguments, ctx, tool)

        try:
            return await self.client.run(name, given, run)
        except NotAllowed as refusal:
            raise ToolFailed(refusal.message) from refusal
