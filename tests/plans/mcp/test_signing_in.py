"""Real clients from npm: each connects with a token and by signing in, where a stand-in for a person agrees."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from select import select
from time import monotonic

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from catalog.connections.clients import _note_unreachable
from catalog.models import ApiToken
from config.serving.handler import ThreadedHandler
from tests.catalog.connections.oauth_client import register
from tests.npm import installed_modules
from tests.plans.mcp.client_processes import CLIENTS
from tests.plans.mcp.conftest import serving_mcp
from tests.plans.socket_clients import session_of

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

ADDRESS = re.compile(rb"http://[^\s\"'<>]*/oauth/authorize/\?[\x21-\x7e]+(?=\s)")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
CALLBACK = "http://127.0.0.1:3000/callback"
OPENCODE = "opencode-linux-x64-baseline/bin"
OFFLINE = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}
SAY = {"template": "hello", "values": {}}
Run = Callable[..., str]


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Path:
    """The installed npm packages, kept in pytest's cache until their versions change."""
    return installed_modules(request.config.cache, CLIENTS / "signing_in", "signing-in-npm")


@pytest.fixture
def served(executor: object) -> Iterator[str]:
    """The address of `/mcp` of a server with pages; nothing can be fetched from it, so that clients register."""
    _note_unreachable()
    with serving_mcp(others=ThreadedHandler()) as url:
        yield url


@pytest.fixture
def token(ada: User) -> str:
    """An agent's token."""
    return create_token(user=ada, kind="agent", scopes=["calls:create"])[1]


@pytest.fixture
def run(modules: Path, ada: User, token: str, tmp_path: Path) -> Run:
    """Return a function that runs a client in a terminal until it has ended, or has written `until`.

    `keys` names texts, and what is typed once when they appear. The terminal is wide, so that no address is wrapped.
    """
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{modules / '.bin'}:{modules / OPENCODE}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
        "BROWSER_COOKIE": f"{django_settings.SESSION_COOKIE_NAME}={session_of(ada)}",
        "TOOLGATE_TOKEN": token,
        "GEMINI_API_KEY": "none",
        "MCP_INSPECTOR_SECRET_STORE": "memory",
        **OFFLINE,
    }

    def run(
        *command: str, until: bytes = b"\0", keys: Mapping[bytes, bytes] | None = None, seconds: float = 180
    ) -> str:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 600))
        client = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path, start_new_session=True
        )
        os.close(theirs)
        written, visited, untyped, ends = b"", False, dict(keys or {}), monotonic() + seconds
        while until not in written and monotonic() < ends:
            if select([ours], [], [], 0.5)[0]:
                try:
                    written += os.read(ours, 65_536)
                except OSError:  # the client has closed the terminal
                    break
            text = ESCAPES.sub(b"", written)
            for each in [each for each in untyped if each in text]:
                os.write(ours, untyped.pop(each))
            asked = ADDRESS.search(text)
            if asked and not visited:
                visited = True
                browser = [sys.executable, str(CLIENTS / "browser.py"), asked[0].decode()]
                subprocess.run(browser, env=environment, check=True, capture_output=True)
        with suppress(ProcessLookupError):
            os.killpg(client.pid, 9)
        client.wait()
        os.close(ours)
        return ESCAPES.sub(b"", written).decode(errors="replace")

    return run


def both_were_used() -> bool:
    """Return True if the token and one connection were used."""
    used = ApiToken.objects.exclude(last_used_at=None)
    return used.filter(connection=None).count() == 1 == used.exclude(connection=None).count()


def test_the_authorization_scenarios_of_the_official_suite_pass(served: str, modules: Path, run: Run) -> None:
    client = register(redirect_uris=[CALLBACK]).json()["client_id"]
    options = ["--url", served.removesuffix("/mcp"), "--client-id", client, "--resource", served]
    output = run(str(modules / ".bin" / "node"), str(modules / SUITE), "authorization", *options)
    assert "authorization-code-grant: 1 passed" in output, output[-3000:]
    assert re.search(r"Total: \d passed, 0 failed", output), output[-3000:]


def test_mcp_remote(served: str, token: str, run: Run) -> None:
    for header in (["--header", f"Authorization: Bearer {token}"], []):
        command = ["mcp-remote-client", served, "--transport", "http-only", *header]
        output = run(*command, until=b"Connected successfully")
        assert "Connected successfully" in output, output[-3000:]
    assert both_were_used()


def test_inspector(served: str, token: str, run: Run) -> None:
    method = ["--method", "tools/call", "--tool-name", "render_text", "--tool-args-json", json.dumps(SAY)]
    for header in (["--header", f"Authorization: Bearer {token}", "--stored-auth-only"], []):
        output = run("mcp-inspector", "--cli", served, *method, *header)
        assert '"result": "hello"' in output, output[-3000:]
    assert both_were_used()


def test_claude_code(served: str, token: str, run: Run) -> None:
    add = ["claude", "mcp", "add", "--transport", "http", "--scope", "user"]
    run(*add, "by-token", served, "--header", f"Authorization: Bearer {token}")
    run(*add, "signed-in", served)
    output = run("claude", "mcp", "login", "signed-in", until=b"Authenticated with")
    assert "Authenticated with" in output, output[-3000:]
    output = run("claude", "mcp", "list")
    assert output.count("Connected") == 2, output
    assert both_were_used()


def test_codex(served: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(f'[mcp_servers.signed-in]\nurl = "{served}"\n')
    run("codex", "mcp", "add", "by-token", "--url", served, "--bearer-token-env-var", "TOOLGATE_TOKEN")
    output = run("codex", "mcp", "login", "signed-in")
    assert "Successfully logged in" in output, output[-3000:]
    requests = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "tests", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "mcpServerStatus/list", "params": {}},
    ]
    typed = "".join(json.dumps(each) + "\n" for each in requests).encode()
    output = run("codex", "app-server", keys={b"": typed}, until=b'"nextCursor"')
    assert output.count('"serverInfo":{"name":"toolgate"') == 2, output[-3000:]
    assert both_were_used()


def test_gemini_cli(served: str, token: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(GEMINI))
    add = ["gemini", "mcp", "add", "--transport", "http", "--scope", "user"]
    run(*add, "by-token", served, "--header", f"Authorization: Bearer {token}")
    run(*add, "signed-in", served)
    sign_in = ["gemini", "-i", "/mcp auth signed-in"]
    output = run(*sign_in, keys={b"Do you want to continue?": b"\r"}, until=b"Successfully authenticated")
    assert "Successfully authenticated" in output, output[-3000:]
    output = run("gemini", "mcp", "list")
    assert output.count("Connected") == 2, output
    assert both_were_used()


def test_opencode(served: str, token: str, run: Run, modules: Path) -> None:
    if not (modules / OPENCODE).exists():
        pytest.skip("opencode is pinned for Linux on x64 alone.")
    run("opencode", "mcp", "add", "by-token", "--url", served, "--header", f"Authorization=Bearer {token}")
    run("opencode", "mcp", "add", "signed-in", "--url", served)
    run("opencode", "mcp", "auth", "signed-in")
    output = run("opencode", "mcp", "list")
    assert output.count(" connected") == 2, output
    assert both_were_used()
