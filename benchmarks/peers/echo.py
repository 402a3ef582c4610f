"""An MCP server with one tool that returns its arguments: nothing but the SDK.

Listens on the port in its first argument; without one it speaks over stdin and stdout. It runs in either environment.
"""

import asyncio
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOL = "echo"
SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}, "number": {"type": "integer"}}}


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    tool = types.Tool(name=TOOL, description="Return the arguments.", input_schema=SCHEMA)
    return types.ListToolsResult(tools=[tool])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content=params.arguments or {})


def make_server() -> "Server[Any]":
    """Return the server; it keeps the schema in memory, so that it need not list all tools before each call."""
    return Server("echo", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema={TOOL: SCHEMA}.get)


async def serve_stdio() -> None:
    """Serve one client over stdin and stdout."""
    server = make_server()
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = make_server().streamable_http_app(stateless_http=True)
        uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
    else:
        asyncio.run(serve_stdio())
