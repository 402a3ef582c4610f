"""Processes on the test database, to be killed and started again."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

from django.conf import settings
from django.db import connection

from tests.chaos.nursery import Child, Nursery

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 1
TOLD_TO_STOP_SECONDS = 40
SERVE = ("serve", "--port", "0")


def database_url(port: int | None = None) -> str:
    """Return the URL of the test database, with another port if one is given."""
    database: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    sign_in = f"{database['USER']}:{database['PASSWORD']}@" if database["USER"] else ""
    return f"postgres://{sign_in}{database['HOST']}:{port or database['PORT'] or 5432}/{database['NAME']}"


def marks_in(effects: Path) -> Counter[tuple[str, str]]:
    """Count the lines of the sink in a folder, by call and word."""
    sink = effects / "sink"
    lines = sink.read_text().splitlines() if sink.exists() else []
    return Counter((line.split()[0], line.split()[2]) for line in lines)


class Serving:
    """`manage.py serve` on a free port, or another command; `effects` is the folder of the sink."""

    def __init__(self, effects: Path, command: tuple[str, ...] = SERVE, *, name: str = "", **environment: str) -> None:
        self.effects, self.command, self.name = effects, command, name or "log"
        self.nursery: Nursery | None = None
        self.late: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | Child | None = None
        self._said_before = 0
        self._since = 0.0
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url(),
            "SECRET_KEY": settings.SECRET_KEY,
            "TOOLGATE_AUDIT_KEY": settings.TOOLGATE_AUDIT_KEY,
            "TOOLGATE_AUDIT_CHECKPOINTS": str(settings.TOOLGATE_AUDIT_CHECKPOINTS),
            "TOOLGATE_SECRET_KEYS": ",".join(settings.TOOLGATE_SECRET_KEYS),
            "TOOLGATE_TOOLS": "tests.chaos.tools,tests.chaos.points",
            "TOOLGATE_TEST_EFFECTS": str(effects),
            "TOOLGATE_LEASE_SECONDS": str(LEASE_SECONDS),
            "TOOLGATE_WORKSPACE": str(effects / "workspace"),
            **environment,
        }

    def start(self) -> None:
        """Start it, without waiting until it is up."""
        path = self.effects / self.name
        self._said_before = path.stat().st_size if path.exists() else 0
        self._since = monotonic()
        if self.nursery is not None:
            self._process = self.nursery.fork(self.command, path, self.late)
            return
        arguments = [sys.executable, "manage.py", *self.command]
        with path.open("ab") as log:
            self._process = subprocess.Popen(arguments, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> bool:
        """Send a signal and wait for its end; return False if it had to be killed after TOLD_TO_STOP_SECONDS."""
        if self._process is None:
            return True
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=TOLD_TO_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=60)
            return False
        finally:
            self._process = None
        return True

    def tell(self, number: signal.Signals) -> None:
        """Send a signal without waiting."""
        if self._process is not None:
            self._process.send_signal(number)

    def freeze(self, *, frozen: bool) -> None:
        """Stop it with SIGSTOP, or let it continue."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def is_alive(self) -> bool:
        """Say whether it runs."""
        return self._process is not None and self._process.poll() is None

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def age(self) -> float:
        """Return the seconds since its start."""
        return monotonic() - self._since

    def log(self) -> str:
        """Return its output since its last start."""
        path = self.effects / self.name
        return path.read_bytes()[self._said_before :].decode(errors="replace") if path.exists() else ""

    def url(self) -> str | None:
        """Return the URL that it serves on; None before it is up."""
        match = re.search(r"serves on (http://\S+?)/ ", self.log())
        return match[1] if match else None

    def marks(self) -> Counter[tuple[str, str]]:
        """Count the lines of the sink, by call and word."""
        return marks_in(self.effects)
