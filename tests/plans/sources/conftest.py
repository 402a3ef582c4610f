"""Sources of these tests: an upstream MCP server whose tools a test sets."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog.inventory.sources import create_source, sync_source
from catalog.sources import mcp_client

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
READ = {"name": "read_page", "description": "Read a page", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}}
DROP = {"name": "drop_page", "description": "Delete a page", "inputSchema": TEXT}


class Offer:
    """An upstream: a call sets the tools it offers; `command` starts it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.command = [sys.executable, "-m", "tests.upstream", str(file)]
        self(READ, DROP)

    def __call__(self, *tools: Mapping[str, Any]) -> None:
        self.file.write_text(json.dumps(tools))


@pytest.fixture
def offer(tmp_path):
    """Return an upstream with one safe and one dangerous tool."""
    return Offer(tmp_path / "offered.json")


@pytest.fixture
def source(transactional_db, admin, offer):
    """Return a source with the upstream's tools, imported."""
    made = create_source(
        {"name": "wiki", "kind": "mcp", "command": offer.command, "trusted": True}, by=admin, any_command=True
    )
    sync_source(made)
    yield made
    mcp_client.run_on_loop(mcp_client.close_connection(made.pk), 10)


class WebUpstream:
    """The upstream as an HTTP server, which keeps sessions and forgets them when it is restarted."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen([*self._offer.command, str(self.port), "sessions"])

        def answers() -> bool:
            with socket.socket() as trial:
                return trial.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(answers)

    def stop(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill it and start another."""
        self.stop()
        self.start()


@pytest.fixture
def web_source(transactional_db, admin, offer, settings):
    """Return a source whose upstream is an HTTP server, and that server."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    upstream = WebUpstream(offer)
    made = create_source({"name": "wiki", "kind": "mcp", "url": upstream.url, "trusted": True}, by=admin)
    sync_source(made)
    yield made, upstream
    mcp_client.close_connections()
    upstream.stop()


def wait_until(is_done: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition; fail if it does not come true."""
    until = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < until, "It did not happen in time."
        time.sleep(0.05)
