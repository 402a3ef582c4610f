"""Clients that agents use, and the configuration by which each one reaches the MCP server.

The one source of these texts: the page Connect an agent fills in address and token, and `docs/connect/` shows them with
the placeholders. A test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ADDRESS = "https://toolgate.example.org"
"""Stands for the address of this server."""
TOKEN = "tg_your-token"  # noqa: S105 - stands for the text of a token
EXAMPLE_TOOL = "render_text"
"""The tool that the snippets call."""
EXPORT = f"export TOOLGATE_TOKEN='{TOKEN}'"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text to copy: `place` says where it belongs, `language` is that of a Markdown fence."""

    place: str
    language: str
    text: str

    @property
    def holds_token(self) -> bool:
        """True if the text contains the token itself."""
        return TOKEN in self.text

    def filled(self, address: str, token: str = TOKEN) -> "Snippet":
        """Return the snippet for the server at this address, with this token."""
        return Snippet(self.place, self.language, self.text.replace(ADDRESS, address).replace(TOKEN, token))


@dataclass(frozen=True, slots=True)
class McpClient:
    """A client: what to copy, what to do then, and how its calls wait for people."""

    slug: str
    label: str
    about: str
    snippets: tuple[Snippet, ...]
    then: str
    waiting: str


CLAUDE_CODE = McpClient(
    "claude-code",
    "Claude Code",
    "In a terminal, for all your projects",
    (
        Snippet(
            "In a terminal",
            "sh",
            f"""\
claude mcp add --transport http --scope user toolgate {ADDRESS}/mcp \\
  --header "Authorization: Bearer {TOKEN}"
""",
        ),
    ),
    "Run claude mcp list, then ask Claude to use one of Toolgate's tools.",
    "Claude Code shows the progress of a call and waits while it comes; Toolgate answers after 50 seconds at most. "
    "If nobody has decided by then, Claude reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

CLAUDE_DESKTOP = McpClient(
    "claude-desktop",
    "Claude Desktop",
    "Through mcp-remote, which needs Node.js",
    (
        Snippet(
            "claude_desktop_config.json (Settings, Developer, Edit Config)",
            "json",
            f"""\
{{
  "mcpServers": {{
    "toolgate": {{
      "command": "npx",
      "args": ["-y", "mcp-remote", "{ADDRESS}/mcp", "--header", "Authorization:${{TOOLGATE_HEADER}}"],
      "env": {{"TOOLGATE_HEADER": "Bearer {TOKEN}"}}
    }}
  }}
}}
""",
        ),
    ),
    "Restart Claude Desktop, then ask Claude to use one of Toolgate's tools.",
    "Claude Desktop gives up on a call after one to four minutes; Toolgate answers before that, after 50 seconds at "
    "most. "
    "If nobody has decided by then, Claude reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

CURSOR = McpClient(
    "cursor",
    "Cursor",
    "In mcp.json of your home folder",
    (
        Snippet(
            "~/.cursor/mcp.json",
            "json",
            f"""\
{{
  "mcpServers": {{
    "toolgate": {{
      "url": "{ADDRESS}/mcp",
      "headers": {{"Authorization": "Bearer {TOKEN}"}}
    }}
  }}
}}
""",
        ),
    ),
    "Turn the server on in Cursor's settings, then ask the agent to use one of Toolgate's tools.",
    "Toolgate answers after 50 seconds if Cursor asks for progress, and after 4 seconds if it does not. "
    "If nobody has decided by then, the agent reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

VS_CODE = McpClient(
    "vs-code",
    "VS Code",
    "In mcp.json of a folder; the token is asked for",
    (
        Snippet(
            ".vscode/mcp.json",
            "json",
            f"""\
{{
  "inputs": [
    {{"type": "promptString", "id": "toolgate-token", "description": "Token for Toolgate", "password": true}}
  ],
  "servers": {{
    "toolgate": {{
      "type": "http",
      "url": "{ADDRESS}/mcp",
      "headers": {{"Authorization": "Bearer ${{input:toolgate-token}}"}}
    }}
  }}
}}
""",
        ),
        Snippet("When VS Code asks for the token", "text", f"{TOKEN}\n"),
    ),
    "Start the server with the command MCP: List Servers, then use agent mode.",
    "VS Code has no time limit of its own in mcp.json; Toolgate answers after 50 seconds at most. "
    "If nobody has decided by then, the agent reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

CODEX = McpClient(
    "codex",
    "Codex",
    "In config.toml; the token is an environment variable",
    (
        Snippet(
            "~/.codex/config.toml",
            "toml",
            f"""\
[mcp_servers.toolgate]
url = "{ADDRESS}/mcp"
bearer_token_env_var = "TOOLGATE_TOKEN"
tool_timeout_sec = 120
""",
        ),
        Snippet("In the shell that starts Codex", "sh", f"{EXPORT}\n"),
    ),
    "Run codex mcp list, then ask Codex to use one of Toolgate's tools.",
    "Codex asks for progress, and with tool_timeout_sec = 120 it waits; Toolgate answers after 50 seconds at most. "
    "If nobody has decided by then, Codex reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

OPENAI_AGENTS = McpClient(
    "openai-agents",
    "OpenAI Agents SDK",
    "Python: openai-agents",
    (
        Snippet("In a shell", "sh", f"pip install openai-agents\n{EXPORT}\n"),
        Snippet(
            "agent.py",
            "python",
            f"""\
import asyncio
import os

from agents import Agent, Runner
from agents.mcp import MCPServerStreamableHttp


async def main() -> None:
    async with MCPServerStreamableHttp(
        name="toolgate",
        params={{
            "url": "{ADDRESS}/mcp",
            "headers": {{"Authorization": f"Bearer {{os.environ['TOOLGATE_TOKEN']}}"}},
            "timeout": 60,
        }},
        client_session_timeout_seconds=60,
    ) as toolgate:
        agent = Agent(name="assistant", mcp_servers=[toolgate])
        result = await Runner.run(agent, "Say hello to Toolgate with the tool render_text.")
        print(result.final_output)


asyncio.run(main())
""",
        ),
    ),
    "Run agent.py; it needs OPENAI_API_KEY, or another model of the SDK.",
    "The SDK asks for no progress, so Toolgate answers after 4 seconds; by default the SDK gives up after 5, and "
    "client_session_timeout_seconds=60 leaves room for longer waits with approval_result. "
    "If nobody has decided by then, the model reads that the call is pending and asks for the outcome.",
)

PYDANTIC_AI = McpClient(
    "pydantic-ai",
    "Pydantic AI",
    "Python: pydantic-ai",
    (
        Snippet("In a shell", "sh", f'pip install "pydantic-ai-slim[mcp,openai]"\n{EXPORT}\n'),
        Snippet(
            "agent.py",
            "python",
            f"""\
import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

toolgate = MCPToolset(
    "{ADDRESS}/mcp",
    headers={{"Authorization": f"Bearer {{os.environ['TOOLGATE_TOKEN']}}"}},
)


async def main() -> None:
    async with Agent("openai:gpt-5", toolsets=[toolgate]) as agent:
        result = await agent.run("Say hello to Toolgate with the tool render_text.")
        print(result.output)


asyncio.run(main())
""",
        ),
    ),
    "Run agent.py; it needs OPENAI_API_KEY, or another model in place of openai:gpt-5.",
    "Pydantic AI asks for progress and waits for up to 5 minutes; Toolgate answers after 50 seconds at most. "
    "If nobody has decided by then, the model reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

LANGCHAIN = McpClient(
    "langchain",
    "LangChain",
    "Python: langchain 1.4 or newer",
    (
        Snippet("In a shell", "sh", f'pip install "langchain[mcp,openai]"\n{EXPORT}\n'),
        Snippet(
            "agent.py",
            "python",
            f"""\
import asyncio
import os

from fastmcp import Client
from langchain.agents import create_agent
from langchain.mcp import MCPAdapter


async def main() -> None:
    client = Client("{ADDRESS}/mcp", auth=os.environ["TOOLGATE_TOKEN"])
    async with MCPAdapter(client) as toolgate:
        agent = create_agent("openai:gpt-5", await toolgate.list_tools())
        question = "Say hello to Toolgate with the tool render_text."
        result = await agent.ainvoke({{"messages": [{{"role": "user", "content": question}}]}})
        print(result["messages"][-1].content)


asyncio.run(main())
""",
        ),
    ),
    "Run agent.py; it needs OPENAI_API_KEY, or another model in place of openai:gpt-5.",
    "LangChain asks for no progress, so Toolgate answers after 4 seconds. "
    "If nobody has decided by then, the model reads that the call is pending and asks for the outcome with "
    "approval_result.",
)

PYTHON = McpClient(
    "python",
    "Python",
    "The mcp package, without a model",
    (
        Snippet("In a shell", "sh", f'pip install "mcp>=2.3"\n{EXPORT}\n'),
        Snippet(
            "call.py",
            "python",
            f"""\
import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HEADERS = {{"Authorization": f"Bearer {{os.environ['TOOLGATE_TOKEN']}}"}}


async def show(seconds: float, total: float | None, message: str | None) -> None:
    print(f"{{seconds:.0f}} s: {{message}}")


async def main() -> None:
    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=httpx2.Timeout(30, read=300)) as http,
        Client(streamable_http_client("{ADDRESS}/mcp", http_client=http)) as client,
    ):
        arguments = {{"template": "Hello, {{name}}.", "values": {{"name": "Toolgate"}}}}
        result = await client.call_tool("render_text", arguments, progress_callback=show)
        print(result.structured_content)


asyncio.run(main())
""",
        ),
    ),
    "Run call.py; it calls a safe tool and prints its result.",
    "With progress_callback a call waits for up to 50 seconds and reports progress; without it Toolgate answers after "
    "4 seconds. "
    "If nobody has decided by then, the result has the status pending_approval and an approval_id: call "
    "approval_result with that.",
)

CURL = McpClient(
    "curl",
    "curl",
    "MCP by hand, or REST",
    (
        Snippet(
            "In a shell",
            "sh",
            f"""\
{EXPORT}
curl -sN {ADDRESS}/mcp \\
  -H "Authorization: Bearer $TOOLGATE_TOKEN" \\
  -H "Content-Type: application/json" \\
  -H "Accept: application/json, text/event-stream" \\
  -d '{{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
       "params": {{"name": "render_text",
                  "arguments": {{"template": "Hello, {{name}}.", "values": {{"name": "Toolgate"}}}}}}}}'
""",
        ),
    ),
    "Run it; the answer is a line that begins with data:.",
    "Without a progress token Toolgate answers a call that waits for a person after 4 seconds. "
    "The answer has the status pending_approval and an approval_id: call approval_result with that, and with "
    "wait_seconds of up to 50.",
)

CLIENTS: Mapping[str, McpClient] = {
    client.slug: client
    for client in (
        CLAUDE_CODE,
        CLAUDE_DESKTOP,
        CURSOR,
        VS_CODE,
        CODEX,
        OPENAI_AGENTS,
        PYDANTIC_AI,
        LANGCHAIN,
        PYTHON,
        CURL,
    )
}
