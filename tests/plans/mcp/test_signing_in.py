"""Real clients that sign in: each opens a browser, in which a stand-in for a person agrees. They come from npm."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from select import select
from time import monotonic

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User

from catalog.connections.clients import _note_unreachable
from catalog.connections.models import Connection
from config.serving.handler import ThreadedHandler
from tests.catalog.connections.oauth_client import register
from tests.npm import installed_modules
from tests.plans.mcp.conftest import serving_mcp
from tests.plans.socket_clients import session_of

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

PINNED = Path(__file__).parent / "clients" / "signing_in"
BROWSER = Path(__file__).parent / "clients" / "browser.py"
ADDRESS = re.compile(rb"http://[^\s\"'<>]*/oauth/authorize/\?[\x21-\x7e]+(?=\s)")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
CALLBACK = "http://127.0.0.1:3000/callback"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Path:
    """The installed npm packages, kept in pytest's cache until their versions change."""
    return installed_modules(request.config.cache, PINNED, "signing-in-npm")


@pytest.fixture
def served(executor: object) -> Iterator[str]:
    """The address of `/mcp` of a server with pages; nothing can be fetched from it, so that clients register."""
    _note_unreachable()
    with serving_mcp(others=ThreadedHandler()) as url:
        yield url


@pytest.fixture
def run(modules: Path, ada: User, tmp_path: Path) -> Run:
    """Return a function that runs a client in a terminal until it has ended, or has written `until`."""
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{modules / '.bin'}:{os.environ['PATH']}",
        "BROWSER_COOKIE": f"{django_settings.SESSION_COOKIE_NAME}={session_of(ada)}",
        "NO_COLOR": "1",
    }

    def run(*command: str, until: bytes = b"\0", seconds: float = 90) -> str:
        ours, theirs = pty.openpty()
        client = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path, start_new_session=True
        )
        os.close(theirs)
        written, visited, ends = b"", False, monotonic() + seconds
        while until not in written and monotonic() < ends:
            if select([ours], [], [], 0.5)[0]:
                try:
                    written += os.read(ours, 65_536)
                except OSError:  # the client has closed the terminal
                    break
            asked = ADDRESS.search(ESCAPES.sub(b"", written))
            if asked and not visited:
                visited = True
                browser = [sys.executable, str(BROWSER), asked[0].decode()]
                subprocess.run(browser, env=environment, check=True, capture_output=True)
        with suppress(ProcessLookupError):
            os.killpg(client.pid, 9)
        client.wait()
        os.close(ours)
        return written.decode(errors="replace")

    return run


def test_the_authorization_scenarios_of_the_official_suite_pass(served: str, modules: Path, run: Run) -> None:
    client = register(redirect_uris=[CALLBACK]).json()["client_id"]
    options = ["--url", served.removesuffix("/mcp"), "--client-id", client, "--resource", served]
    output = run(str(modules / ".bin" / "node"), str(modules / SUITE), "authorization", *options)
    assert "authorization-code-grant: 1 passed" in output, output[-3000:]
    assert re.search(r"Total: \d passed, 0 failed", output), output[-3000:]


def test_mcp_remote_signs_in(served: str, run: Run) -> None:
    output = run("mcp-remote-client", served, "--transport", "http-only", until=b"Connected successfully")
    assert "Connected successfully" in output, output[-3000:]
    assert Connection.objects.count() == 1


def test_codex_signs_in(served: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(f'[mcp_servers.toolgate]\nurl = "{served}"\n')
    output = run("codex", "mcp", "login", "toolgate")
    assert "Successfully logged in" in output, output[-3000:]
    assert "OAuth" in run("codex", "mcp", "list")


def test_claude_code_signs_in(served: str, run: Run) -> None:
    run("claude", "mcp", "add", "--transport", "http", "toolgate", served)
    output = run("claude", "mcp", "login", "toolgate", until=b"Authenticated with")
    assert "Authenticated with" in output, output[-3000:]
    assert "Connected" in run("claude", "mcp", "list")
