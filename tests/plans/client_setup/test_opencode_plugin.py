"""The plugin that runs in opencode: only an explicit decision lets a tool run. It runs here in Node."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plans import client_setup
from tests.certificates import server_context, write_authority
from tests.http_server import serving
from tests.plans.client_setup.answers import AnsweringServer, as_json, doubtful

PLUGIN = Path(client_setup.__file__).parent / "opencode_plugin.js"
DRIVER = Path(__file__).parent / "opencode_driver.mjs"
ALLOW = {"decision": "allow", "args": {"command": "echo edited"}}
READ_AS_ALLOWED = ("key twice",)
"""JSON.parse takes the last of repeated keys."""


def run_plugin(folder: Path, urls: list[str], *, seconds: float = 0.5, **environment: str) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("There is no Node.")
    for name in ("plugin", "toolgate"):
        (folder / name).mkdir()
    # Node takes a module by its ending; opencode takes both.
    plugin = folder / "plugin" / "toolgate.mjs"
    plugin.write_text(PLUGIN.read_text().replace("const SECONDS = 590;", f"const SECONDS = {seconds};"))
    command = [node, str(DRIVER), str(plugin), str(folder / "toolgate" / "toolgate.json"), *urls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_doubtful_answer_refuses(tmp_path: Path) -> None:
    answers = {name: each for name, each in doubtful(ALLOW).items() if name not in READ_AS_ALLOWED}
    answers |= {
        "allow": as_json(ALLOW),
        "deny": as_json({"decision": "deny", "message": "No."}),
        "wait": as_json({"decision": "wait"}),
        "allow without arguments": as_json({"decision": "allow"}),
        "allow with a text": as_json({"decision": "allow", "args": "echo"}),
    }
    with serving(AnsweringServer(answers)) as server:
        urls = {name: server.url(name) for name in answers if name != "allow"}
        down = ["http://127.0.0.1:1", "gopher://x", server.url("allow").replace("http:", "https:")]
        outcomes = run_plugin(tmp_path, [*down, *urls.values()])
    assert {url for url, outcome in outcomes.items() if not outcome.get("refused")} == set()
    assert outcomes[urls["deny"]] == {"refused": "No."}


@pytest.mark.parametrize("certificate", ["trusted", "signed by itself", "of another host"])
def test_a_certificate_in_doubt_refuses_unasked(tmp_path: Path, certificate: str) -> None:
    trusted = tmp_path / "authority.pem"
    authority = write_authority(trusted)
    context = server_context(
        tmp_path,
        None if certificate == "signed by itself" else authority,
        host="elsewhere.example" if certificate == "of another host" else "localhost",
    )
    server = AnsweringServer({"allow": as_json(ALLOW)})
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"https://localhost:{server.server_port}/allow"
        outcome = run_plugin(tmp_path, [url], seconds=30, NODE_EXTRA_CA_CERTS=str(trusted))[url]
    is_trusted = certificate == "trusted"
    assert (not outcome.get("refused"), bool(server.taken)) == (is_trusted, is_trusted)


@pytest.mark.parametrize(
    ("environment", "is_refused"),
    [
        ({}, False),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, True),
        ({"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "example.org"}, True),
        ({"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "example.org, 127.0.0.1"}, False),
        ({"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "no_proxy": ""}, True),
        ({"HTTPS_PROXY": "http://127.0.0.1:9"}, False),
    ],
    ids=str,
)
def test_a_proxy_of_the_environment_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_refused: bool
) -> None:
    """opencode's runtime would use it, unlike Node."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(AnsweringServer({"allow": as_json(ALLOW)})) as server:
        outcome = run_plugin(tmp_path, [server.url("allow")], seconds=30, **environment)[server.url("allow")]
    assert (not server.taken, "names a proxy" in outcome.get("refused", "")) == (is_refused, is_refused)


def test_nothing_runs_unasked_under_the_name_of_toolgate(tmp_path: Path) -> None:
    """Neither an MCP server of the project nor a tool of its own."""
    with serving(AnsweringServer({"deny": as_json({"decision": "deny", "message": "No."})})) as server:
        found = run_plugin(tmp_path, [server.url("deny")], seconds=30, TRY_NAMES="1")
    assert found["asked"] == "refused"
    assert found["mcp"]["toolgate"]["url"] == f"{server.url('deny')}/mcp"
    assert found["mcp"]["other"] == {}


def test_without_settings_it_refuses(tmp_path: Path) -> None:
    assert run_plugin(tmp_path, [""])[""]["refused"]


def test_an_allowed_call_runs_with_the_approved_input_and_its_failure_is_reported_once(tmp_path: Path) -> None:
    with serving(AnsweringServer({"allow": as_json(ALLOW)})) as server:
        outcomes = run_plugin(tmp_path, [server.url("allow")])
    assert outcomes[server.url("allow")] == {"args": {"command": "echo edited"}}
    asked, reported = server.taken
    assert asked[:2] == ("/allow/api/v1/hooks/opencode/", "Bearer tg_of-the-agent")
    call = {"tool": "bash", "sessionID": "ses_1", "callID": "call_1"}
    assert json.loads(asked[2]) == {
        "hook_event_name": "tool.execute.before",
        "input": call,
        "output": {"args": {"command": "rm x", "description": "y"}},
        "directory": "/projects/notes",
    }
    assert json.loads(reported[2])["hook_event_name"] == "tool.execute.error"
