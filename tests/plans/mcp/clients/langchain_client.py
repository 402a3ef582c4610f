"""Call the tools of an MCP server with LangChain's adapter; print what it listed and what each call returned.

Runs in an environment of its own, from `langchain.lock`: the adapter needs an older MCP SDK than Toolgate.
"""

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient

NEXT = "approval_result"


async def main(url: str, token: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Make the calls one after the other; ask for the outcome of one that is pending."""
    headers = {"Authorization": f"Bearer {token}"}
    client = MultiServerMCPClient({"toolgate": {"transport": "streamable_http", "url": url, "headers": headers}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    outcomes = []
    for name, arguments in calls:
        text = await call(tools, name, arguments)
        while '"pending_approval"' in text[-1]:
            pending = json.loads(text[-1])
            text = await call(tools, NEXT, {"approval_id": pending["approval_id"], "wait_seconds": 4})
        outcomes.append(text)
    json.dump({"listed": sorted(tools), "outcomes": outcomes}, sys.stdout)


async def call(tools: dict[str, Any], name: str, arguments: dict[str, Any]) -> list[str]:
    """Return the status of a tool's message and its texts."""
    message = await tools[name].ainvoke({"type": "tool_call", "id": "call", "name": name, "args": arguments})
    return [message.status, *(block["text"] for block in message.content)]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
