"""Servers of npm as upstreams: `server-everything` over stdio and HTTP, `server-filesystem` over stdio."""

import json
import subprocess
from pathlib import Path

import pytest

from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Tool
from catalog.sources import mcp_client
from tests.builders import approve, call_of, make_plan, step, work_off
from tests.catalogs import imported_tool
from tests.npm import installed_modules
from tests.upstreams import free_port, wait_for_port

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

PINNED = Path(__file__).parent / "servers"
EVERYTHING = "@modelcontextprotocol/server-everything/dist/index.js"
FILESYSTEM = "@modelcontextprotocol/server-filesystem/dist/index.js"


@pytest.fixture(scope="module")
def modules(request):
    """Return the folder of the installed packages, kept in pytest's cache until their versions change."""
    return installed_modules(request.config.cache, PINNED, "mcp-servers")


def run(ada, rosa, tool, parameters):
    """Return the call of a plan with one step, approved if it waits."""
    plan = work_off(make_plan(ada, step(1, tool, parameters=parameters)))
    if call_of(plan).status == "held":
        approve(plan, rosa)
        work_off(plan)
    return call_of(plan)


@pytest.fixture
def everything(modules, settings):
    """Return a function that gives a source's way to the server, `stdio` or `http`; it ends with the test."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    started = []

    def way(transport):
        command = ["node", str(modules / EVERYTHING)]
        if transport == "stdio":
            return {"command": [*command, "stdio"]}
        port = free_port()
        environment = {"PORT": str(port), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        started.append(subprocess.Popen([*command, "streamableHttp"], env=environment, stderr=subprocess.DEVNULL))
        wait_for_port(port)
        return {"url": f"http://127.0.0.1:{port}/mcp"}

    yield way
    mcp_client.close_connections()
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_everything_is_imported_and_called(everything, admin, ada, rosa, transport):
    source = create_source({"name": "every", "kind": "mcp", **everything(transport)}, by=admin, any_command=True)
    changes = sync_source(source)
    assert len(changes.added) >= 8 and changes.problems == []
    assert not sync_source(source)
    echo = imported_tool("echo", source).name
    assert "hello" in json.dumps(run(ada, rosa, echo, {"message": "hello"}).response)


def test_files_are_read_and_written_after_approval(modules, admin, ada, rosa, tmp_path):
    command = ["node", str(modules / FILESYSTEM), str(tmp_path)]
    source = create_source(
        {"name": "files", "kind": "mcp", "command": command, "trusted": True}, by=admin, any_command=True
    )
    assert sync_source(source).problems == []
    names = {(tool.definition or {})["upstream"]: tool.name for tool in Tool.objects.filter(source=source)}
    wrote = run(ada, rosa, names["write_file"], {"path": str(tmp_path / "a.txt"), "content": "hello"})
    assert wrote.status == "completed" and (tmp_path / "a.txt").read_text() == "hello"
    assert "hello" in json.dumps(run(ada, rosa, names["read_text_file"], {"path": str(tmp_path / "a.txt")}).response)
    outside = run(ada, rosa, names["read_text_file"], {"path": "/etc/passwd"})
    assert (outside.status, outside.error_kind) == ("failed", "upstream_error")
    mcp_client.close_connections()
