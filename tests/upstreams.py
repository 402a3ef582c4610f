"""Upstream MCP servers for tests, whose tools a test sets; `tests.upstream` is their program."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.waiting import eventually

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


class WebUpstream:
    """The upstream as an HTTP server, which keeps sessions and forgets them when it is restarted."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen([*self._offer.command, str(self.port), "sessions"])
        wait_for_port(self.port)

    def stop(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill it and start another."""
        self.stop()
        self.start()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Wait until something listens on a port of this machine."""

    def answers() -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", port)) == 0

    eventually(answers, what="the server")
