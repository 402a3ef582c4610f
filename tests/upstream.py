"""An MCP server for tests: its tools are read from a JSON file at each request, so that a test can change them.

Run as `python -m tests.upstream FILE [PORT [sessions]]`: over stdio, or over HTTP on a port of this machine, with or
without sessions. Each tool is an
object with `name`, and optionally `description`, `inputSchema`, `outputSchema`, `annotations`, `does`, `sink`, and
`answer`, the whole result of a call.
`does` is what a call does: `echo` its arguments (the default), `fail`, `exit`, `hang`, `pause`, `flood`, `announce`
that the tools changed, `write and exit`, or `write and wait` until the file `gate` is there.
Arguments are appended to the file `sink`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

ANY_OBJECT = {"type": "object"}


def offered(path: Path) -> list[dict[str, Any]]:
    """Return the tools that the file names now."""
    return list(json.loads(path.read_text()))


def build(path: Path) -> Server[Any]:
    """Return a server that offers the tools of a file."""

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        fields = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
        tools = [
            types.Tool.model_validate({"inputSchema": ANY_OBJECT} | {key: tool[key] for key in fields if key in tool})
            for tool in offered(path)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        tool = next(each for each in offered(path) if each["name"] == params.name)
        if tool.get("does") == "announce":
            await bus.publish(ToolsListChanged())
        return await act(tool, params.arguments or {})

    bus = InMemorySubscriptionBus()
    listen = ListenHandler(bus)
    return Server("upstream", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen)


async def act(tool: dict[str, Any], arguments: dict[str, Any]) -> types.CallToolResult:
    """Do what a tool does."""
    does = tool.get("does", "echo")
    if does == "fail":
        return types.CallToolResult(content=[types.TextContent(type="text", text="It did not work.")], is_error=True)
    if does == "exit":
        os._exit(1)
    if does == "hang":
        await asyncio.sleep(60)
    if does == "pause":
        await asyncio.sleep(1)
    if does == "flood":
        return types.CallToolResult(content=[types.TextContent(type="text", text="x" * 3_000_000)])
    if "sink" in tool:
        with Path(tool["sink"]).open("a") as sink:
            sink.write(json.dumps(arguments) + "\n")
        if does == "write and exit":
            os._exit(1)
        while does == "write and wait" and not Path(tool["gate"]).exists():
            await asyncio.sleep(0.02)
    if "answer" in tool:
        return types.CallToolResult.model_validate(tool["answer"])
    said = tool.get("result", arguments)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=json.dumps(said))], structured_content=said
    )


async def over_stdio(path: Path) -> None:
    """Serve until stdin ends."""
    server = build(path)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        app = build(Path(sys.argv[1])).streamable_http_app(stateless_http="sessions" not in sys.argv)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        asyncio.run(over_stdio(Path(sys.argv[1])))
