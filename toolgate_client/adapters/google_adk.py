"""Google ADK: `LlmAgent(…, tools=[gated_tool(tool, AsyncClient())])` asks Toolgate before the tool runs."""

from collections.abc import Callable
from copy import copy
from typing import Any

from google.adk.tools import BaseTool, FunctionTool

from toolgate_client import AsyncClient, NotAllowed


def gated_tool(tool: BaseTool | Callable[..., Any], client: AsyncClient) -> BaseTool:
    """Return a tool that runs when Toolgate allows it, with the approved arguments; a refusal is its result."""
    inner = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    gated = copy(inner)

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        try:
            return await client.run(
                inner.name, args, lambda approved: inner.run_async(args=approved, tool_context=tool_context)
            )
        except NotAllowed as refusal:
            return {"error": refusal.message}

    gated.run_async = run_async
    return gated
