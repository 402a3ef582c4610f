"""OpenAI Agents SDK: `Agent(…, tools=[gated_tool(tool, AsyncClient())])` asks Toolgate before the tool runs."""

import json
from dataclasses import replace
from typing import Any

from agents import FunctionTool

from toolgate_client import AsyncClient, NotAllowed


def gated_tool(tool: FunctionTool, client: AsyncClient) -> FunctionTool:
    """Return a tool that runs when Toolgate allows it, with the approved arguments; a refusal is its result.

    An exception that the SDK turns into a text for the model is reported as that text.
    """

    async def invoke(context: Any, text: str) -> Any:
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return "The arguments are no JSON object. Nothing ran."
        try:
            return await client.run(
                tool.name, arguments, lambda approved: tool.on_invoke_tool(context, json.dumps(approved))
            )
        except NotAllowed as refusal:
            return refusal.message

    return replace(tool, on_invoke_tool=invoke)
