"""Clients that agents use, and the configuration by which each one reaches the MCP server.

The texts are read from the guides in `docs/connect/`, which show them with placeholders for address and token.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from toolgate.places import SHIPPED_DIR

GUIDES = SHIPPED_DIR / "docs" / "connect"
ADDRESS = "https://toolgate.example.org"
"""Stands for the address of this server."""
TOKEN = "tg_your-token"  # noqa: S105 - stands for the text of a token
FIRST_CLIENT = "claude-code"
ABOUT = {
    FIRST_CLIENT: "In a terminal, for all your projects",
    "claude": "On the web, in Claude Desktop and on phones; signs in",
    "chatgpt": "On the web, in developer mode; signs in",
    "claude-desktop": "Through mcp-remote, which needs Node.js",
    "cursor": "In mcp.json of your home folder",
    "vs-code": "In mcp.json of a folder; the token is asked for",
    "codex": "In config.toml; the token is an environment variable",
    "gemini-cli": "In a terminal, for all your projects",
    "opencode": "In a terminal, for all your projects",
    "openai-agents": "Python: openai-agents",
    "pydantic-ai": "Python: pydantic-ai",
    "langchain": "Python: langchain 1.4 or newer",
    "python": "toolgate_client, without a model",
    "curl": "MCP by hand, or REST",
}
"""Text beside the name of each client, in the order of the page."""


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """A call of a safe tool that ships with Toolgate: for snippets with arguments in JSON, for models in words."""

    tool: str
    arguments: str
    task: str


EXAMPLES = (
    ExampleCall(
        "render_text", '{"template": "Hello, {name}.", "values": {"name": "Toolgate"}}', "Say hello to Toolgate"
    ),
    ExampleCall("say_hello", '{"name": "Toolgate"}', "Say hello to Toolgate"),
    ExampleCall("list_files", '{"path": "."}', "List the files of the workspace"),
    ExampleCall("describe_symbol", '{"symbol": "json.dumps"}', "Describe json.dumps"),
)
"""Calls for the snippets, best first. The guides show the first one; each of the others is of another set."""
LIMITS = "What the gate cannot do:"
"""Line of a guide before the list of limits; each is one line of plain text."""
SNIPPET = re.compile(r"([^\n]+):\n\n```(\w+)\n(.*?)^```\n\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text to copy: `place` says where it belongs, `language` is the language of its Markdown fence."""

    place: str
    language: str
    text: str

    def filled(self, address: str, token: str = TOKEN, example: ExampleCall = EXAMPLES[0]) -> "Snippet":
        shown, text = EXAMPLES[0], self.text.replace(ADDRESS, address).replace(TOKEN, token)
        for old, new in ((shown.task, example.task), (shown.arguments, example.arguments), (shown.tool, example.tool)):
            text = text.replace(old, new)
        return Snippet(self.place, self.language, text)


@dataclass(frozen=True, slots=True)
class McpClient:
    """A client: what to copy, what to do afterwards, and how calls wait for people.

    `sign_in` and `sign_in_then` are the same for signing in; empty if the client cannot. A client without `snippets`
    takes no token. `gate`, `gate_then` and `gate_limits` are about the tools that a coding agent runs itself: what to
    copy, what follows, and what the gate cannot do; empty for other clients.
    """

    slug: str
    label: str
    about: str
    sign_in: tuple[Snippet, ...]
    sign_in_then: str
    snippets: tuple[Snippet, ...]
    then: str
    waiting: str
    gate: tuple[Snippet, ...] = ()
    gate_then: str = ""
    gate_limits: tuple[str, ...] = ()

    @classmethod
    def read(cls, slug: str, about: str) -> Self:
        """Read a client's guide.

        The title is the label. The sections Signing in, Configuration and Gate its own tools begin with the snippets,
        each after a line that names its place, and a paragraph on what to do then. The first paragraph of the section
        on waiting is `waiting`.
        """
        guide = (GUIDES / f"{slug}.md").read_text(encoding="utf-8")
        sign_in, sign_in_then = _read_section(guide, "Signing in")
        snippets, then = _read_section(guide, "Configuration")
        _, waiting = _read_section(guide, "When a call waits for a person")
        gate, gate_then = _read_section(guide, "Gate its own tools")
        _, _, limits = guide.partition(f"\n{LIMITS}\n\n")
        gate_limits = tuple(line.removeprefix("- ") for line in limits.partition("\n\n")[0].splitlines())
        label = guide.partition("\n")[0].removeprefix("# ")
        return cls(slug, label, about, sign_in, sign_in_then, snippets, then, waiting, gate, gate_then, gate_limits)


def _read_section(guide: str, title: str) -> tuple[tuple[Snippet, ...], str]:
    """Return the snippets with which a section of a guide begins, and the paragraph after them; empty without it."""
    _, _, section = guide.partition(f"\n## {title}\n\n")
    snippets, end = [], 0
    while found := SNIPPET.match(section, end):
        snippets.append(Snippet(*found.groups()))
        end = found.end()
    return tuple(snippets), " ".join(section[end:].partition("\n\n")[0].split())


CLIENTS: Mapping[str, McpClient] = {slug: McpClient.read(slug, about) for slug, about in ABOUT.items()}
