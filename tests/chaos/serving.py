"""Processes over the test's own database, to be killed and started again."""

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
    """Return the URL of the database that this test works on, by another port of this machine if one is given."""
    database: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    sign_in = f"{database['USER']}:{database['PASSWORD']}@" if database["USER"] else ""
    return f"postgres://{sign_in}{database['HOST']}:{port or database['PORT'] or 5432}/{database['NAME']}"


def marks_in(effects: Path) -> Counter[tuple[str, str]]:
    """Count the marks that tools left in a folder, by call and word."""
    sink = effects / "sink"
    lines = sink.read_text().splitlines() if sink.exists() else []
    return Counter((line.split()[0], line.split()[2]) for line in lines)


class Serving:
    """`manage.py serve` on a free port, or another command; `effects` is where its tools leave their marks."""

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
            "TOOLGATE_SECRET_KEYS": ",".join(settings.TOOLGATE_SECRET_KEYS),
            "TOOLGATE_TOOLS": "tests.chaos.tools,tests.chaos.points",
            "TOOLGATE_TEST_EFFECTS": str(effects),
            "TOOLGATE_LEASE_SECONDS": str(LEASE_SECONDS),
            "TOOLGATE_WORKSPACE": str(effects / "workspace"),
            **environment,
        }

    def start(self) -> None:
        """Start it; it serves a moment later."""
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
        """End it as a power cut would; nothing in it can react."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> bool:
        """Send a signal that ends it, and see to its end; False when it took too long and had to be killed."""
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
        """Send a signal; what comes of it is to be seen."""
        if self._process is not None:
            self._process.send_signal(number)

    def freeze(self, *, frozen: bool) -> None:
        """Stop it where it is, or let it go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def is_alive(self) -> bool:
        """Say whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def code(self) -> int | None:
        """Return what it ended with; None while it has not."""
        return self._process.poll() if self._process is not None else None

    def age(self) -> float:
        """Return for how many seconds it has been there."""
        return monotonic() - self._since

    def log(self) -> str:
        """Return what it said since it was last started."""
        path = self.effects / self.name
        return path.read_bytes()[self._said_before :].decode(errors="replace") if path.exists() else ""

    def url(self) -> str | None:
        """Return where it serves; None until it says so."""
        said = re.search(r"serves on (http://\S+?)/ ", self.log())
        return said[1] if said else None

    def marks(self) -> Counter[tuple[str, str]]:
        """Count the marks that tools left, by call and word."""
        return marks_in(self.effects)
