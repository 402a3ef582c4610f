"""Clients that run in processes of their own, with Node or another Python."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.npm import installed_modules

CLIENTS = Path(__file__).parent / "clients"


class Client:
    """A client in a process of its own: `call` returns what it makes of a result."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.names: list[str] = self._read()

    def call(self, name: str, arguments: Any = None) -> Any:
        """Call a tool."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"name": name, "arguments": arguments or {}}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()[-2000:] if self._process.stderr is not None else ""
        return json.loads(line)


@contextmanager
def started(command: list[str], url: str, token: str) -> Iterator[Client]:
    """Run a client while the body runs."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*command, url, token], text=True, **pipes) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


def node_client(cache: pytest.Cache, kind: str) -> list[str]:
    """Return the command of a client of Node, without address and token."""
    folder = "typescript" if kind.startswith("typescript") else "node"
    modules = installed_modules(cache, CLIENTS / folder, f"mcp-{folder}")
    return [shutil.which("node") or "node", str(CLIENTS / "node_client.mjs"), str(modules), kind]
