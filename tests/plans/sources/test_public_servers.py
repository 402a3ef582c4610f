"""Public MCP servers of npm and PyPI, asked directly and through Toolgate: the same blocks arrive."""

import asyncio
import re
import subprocess
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from catalog.access.tokens import create_token
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Tool
from catalog.sources import mcp_client
from tests.approvals.factories import add_policy
from tests.conftest import forget_what_was_read
from tests.http_server import serving
from tests.npm import installed_modules
from tests.plans.mcp.conftest import connected, serving_mcp
from tests.python_environments import installed_python

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

PINNED = Path(__file__).parent / "servers"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
UNHELD = {"edit_file": {"safety_level": "cautious", "reason": "The test only asks for the difference."}}
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["Wrote a program."]}


def npm(package: str, *arguments: str) -> Callable[[pytest.Cache], Callable[[Path], list[str]]]:
    """Return the command of a server of npm, with `{folder}` among its arguments."""

    def command(cache: pytest.Cache) -> Callable[[Path], list[str]]:
        script = installed_modules(cache, PINNED, "mcp-servers") / f"@modelcontextprotocol/{package}/dist/index.js"
        return lambda folder: ["node", str(script), *(each.format(folder=folder) for each in arguments)]

    return command


def pypi(module: str, *arguments: str) -> Callable[[pytest.Cache], Callable[[Path], list[str]]]:
    """Return the command of a server of PyPI."""

    def command(cache: pytest.Cache) -> Callable[[Path], list[str]]:
        python = installed_python(cache, PINNED / "public.lock")
        return lambda folder: [str(python), "-m", module, *arguments]

    return command


def git_calls(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return calls about the repository in the folder."""
    repository = {"repo_path": str(folder)}
    return [
        ("git_status", repository),
        ("git_log", repository | {"max_count": 1}),
        ("git_show", repository | {"revision": "HEAD"}),
        ("git_show", repository | {"revision": "nothing"}),
        ("git_diff_unstaged", repository),
    ]


def file_calls(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return calls about the files in the folder."""
    return [
        ("list_directory", {"path": str(folder)}),
        ("read_text_file", {"path": str(folder / "a.txt")}),
        ("read_media_file", {"path": str(folder / "pixel.png")}),
        ("read_multiple_files", {"paths": [str(folder / "a.txt"), str(folder / "none.txt")]}),
        ("search_files", {"path": str(folder), "pattern": "*.txt"}),
        ("edit_file", {"path": str(folder / "a.txt"), "edits": [{"oldText": "one", "newText": "two"}], "dryRun": True}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_text_file", {"path": str(folder / "none.txt")}),
    ]


def page_calls(address: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return calls about pages of a web server."""
    page = f"{address}/page.html"
    return [
        ("fetch", {"url": page}),
        ("fetch", {"url": page, "raw": True, "max_length": 20}),
        ("fetch", {"url": f"{address}/none.html"}),
    ]


TIME_CALLS = [
    ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
    ("convert_time", {"source_timezone": "UTC", "time": "25:00", "target_timezone": "Asia/Tokyo"}),
    ("get_current_time", {"timezone": "Nowhere/Land"}),
]
MEMORY_CALLS = [
    ("create_entities", {"entities": [ENTITY]}),
    ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["Met Babbage."]}]}),
    ("read_graph", {}),
    ("search_nodes", {"query": "program"}),
    ("open_nodes", {"names": ["Nobody"]}),
    ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
]
EVERYTHING_CALLS = [
    ("echo", {"message": "hello"}),
    ("get-sum", {"a": 2, "b": 0.5}),
    ("get-tiny-image", {}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-resource-links", {"count": 2}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
    ("get-structured-content", {"location": "Chicago"}),
    ("trigger-long-running-operation", {"duration": 1, "steps": 2}),
]


class Pages(SimpleHTTPRequestHandler):
    """The files of a folder over HTTP."""

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a text, an image and a page, which is a git repository as well."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "a.txt").write_text("one\n")
    (made / "page.html").write_text("<html><body><h1>Title</h1><p>A <b>bold</b> word.</p></body></html>")
    (made / "pixel.png").write_bytes(b64decode(PIXEL))
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for arguments in (["init", "-q"], ["add", "a.txt"], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", "-C", str(made), *arguments], check=True)
    return made


async def answers_of(client: Client, names: Mapping[str, str], calls: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    """Return the results of calls; `names` has the name of each tool."""
    found = [await client.call_tool(names[name], dict(arguments)) for name, arguments in calls]
    return [plain(each.model_dump(mode="json", by_alias=True, exclude_none=True)) for each in found]


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a client reads: content without the times at which it was made, structured content, `isError`."""
    for block in result["content"]:
        resource = block.get("resource", {})
        if "blob" in resource:
            resource["blob"] = CLOCK.sub("", b64decode(resource["blob"]).decode())
        if "text" in resource:
            resource["text"] = CLOCK.sub("", resource["text"])
    kept = {name: each for name, each in result.items() if name in ("content", "structuredContent")}
    return kept | {"isError": bool(result.get("isError"))}


CLOCK = re.compile(r"\d+:\d\d:\d\d [AP]M")


SERVERS = {
    "time": (pypi("mcp_server_time", "--local-timezone", "UTC"), lambda place: TIME_CALLS),
    "git": (pypi("mcp_server_git"), git_calls),
    "fetch": (pypi("mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"), page_calls),
    "filesystem": (npm("server-filesystem", "{folder}"), file_calls),
    "memory": (npm("server-memory"), lambda place: MEMORY_CALLS),
    "everything": (npm("server-everything", "stdio"), lambda place: EVERYTHING_CALLS),
}


@pytest.fixture(params=SERVERS)
def server(request, folder):
    """The name of a server, the command that starts it, and what makes its calls."""
    way, calls_in = SERVERS[request.param]
    return request.param, way(request.config.cache)(folder), calls_in


def test_the_same_blocks_arrive(server, folder, executor, admin, ada):
    name, command, calls_in = server
    add_policy(0, effect="allow")
    handler = partial(Pages, directory=str(folder))
    with serving(HTTPServer(("127.0.0.1", 0), handler)) as pages, serving_mcp() as url:
        calls = calls_in(f"http://127.0.0.1:{pages.server_port}" if name == "fetch" else folder)
        ours = {"MEMORY_FILE_PATH": str(folder.parent / "ours.json")} if name == "memory" else {}
        settings = {"name": name, "kind": "mcp", "command": command, "trusted": True, "env": ours, "tools": UNHELD}
        source = create_source(settings, by=admin, any_command=True)
        assert sync_source(source).problems == []
        forget_what_was_read()
        names = {(tool.definition or {})["upstream"]: tool.name for tool in Tool.objects.filter(source=source)}
        token = create_token(user=ada, kind="agent", scopes=["calls:create"])[1]

        async def ask_both() -> tuple[Any, Any]:
            theirs = {"MEMORY_FILE_PATH": str(folder.parent / "theirs.json")} if name == "memory" else None
            program = StdioServerParameters(command=command[0], args=command[1:], env=theirs)
            async with Client(stdio_client(program)) as client:
                direct = await answers_of(client, {each: each for each, _ in calls}, calls)
            async with connected(url, token) as client:
                return direct, await answers_of(client, names, calls)

        direct, through = asyncio.run(ask_both())
        mcp_client.close_connections()
    differences = {
        f"{number} {calls[number][0]}": (mine, others)
        for number, (mine, others) in enumerate(zip(through, direct, strict=True))
        if not arrives_whole(mine, others)
    }
    assert differences == {}


def arrives_whole(mine: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether a result begins with all of another's blocks; one block of JSON may follow (docs/sources.md)."""
    blocks = others["content"]
    fields = ("isError",) if others["isError"] else ("isError", "structuredContent")
    is_same = all(mine.get(each) == others.get(each) for each in fields)
    return is_same and mine["content"][: len(blocks)] == blocks and len(mine["content"]) <= len(blocks) + 1
