"""A client of Python as a process of one test: `python python_client.py KIND URL TOKEN`.

KIND is `python_sdk`, `fastmcp` or `openai_agents`. Prints the names of the tools; then, for each line
`{"name", "arguments"}` of its input, the result as the client returns it, or `{"error"}` with what it raises.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def python_sdk(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[list[str], Call]]:
    """Connect the SDK's client."""
    httpx, transport = import_module("httpx2"), import_module("mcp.client.streamable_http")
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        import_module("mcp").Client(transport.streamable_http_client(url, http_client=http)) as client,
    ):
        listed = await client.list_tools()
        yield [tool.name for tool in listed.tools], client.call_tool


@asynccontextmanager
async def fastmcp(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[list[str], Call]]:
    """Connect fastmcp's client."""
    transport = import_module("fastmcp.client.transports").StreamableHttpTransport(url, headers=headers)
    async with import_module("fastmcp").Client(transport) as client:

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await client.call_tool_mcp(name, arguments)

        yield [tool.name for tool in await client.list_tools()], call


@asynccontextmanager
async def openai_agents(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[list[str], Call]]:
    """Connect the client of the OpenAI Agents SDK."""
    params = {"url": url, "headers": headers, "timeout": 60}
    async with import_module("agents.mcp").MCPServerStreamableHttp(params=params) as server:
        yield [tool.name for tool in await server.list_tools()], server.call_tool


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(kind: str, url: str, token: str) -> None:
    """Answer lines until the input ends."""
    async with globals()[kind](url, {"Authorization": f"Bearer {token}"}) as (names, call):
        say(json.dumps(names))
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            try:
                result = await call(order["name"], order["arguments"])
                say(result.model_dump_json(by_alias=True, exclude_none=True))
            except Exception as error:  # noqa: BLE001 - the test sees it
                say(json.dumps({"error": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
