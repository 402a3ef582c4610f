"""A serving process over the test's own database, to be killed and started again."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 1


def database_url() -> str:
    """Return the URL of the database that this test works on."""
    database: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    sign_in = f"{database['USER']}:{database['PASSWORD']}@" if database["USER"] else ""
    return f"postgres://{sign_in}{database['HOST']}:{database['PORT'] or 5432}/{database['NAME']}"


class Serving:
    """`manage.py serve` on a free port; `effects` is where its tools leave their marks."""

    def __init__(self, effects: Path, **environment: str) -> None:
        self.effects = effects
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            "DATABASE_URL": database_url(),
            "SECRET_KEY": settings.SECRET_KEY,
            "TOOLGATE_AUDIT_KEY": settings.TOOLGATE_AUDIT_KEY,
            "TOOLGATE_TOOLS": "tests.chaos.tools",
            "TOOLGATE_TEST_EFFECTS": str(effects),
            "TOOLGATE_LEASE_SECONDS": str(LEASE_SECONDS),
            "TOOLGATE_WORKSPACE": str(effects / "workspace"),
            **environment,
        }

    def start(self) -> None:
        """Start it; it serves a moment later."""
        command = [sys.executable, "manage.py", "serve", "--port", "0"]
        with (self.effects / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a power cut would; nothing in it can react."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=60)
            self._process = None

    def log(self) -> str:
        """Return what it said."""
        return (self.effects / "log").read_text(errors="replace")

    def url(self) -> str | None:
        """Return where it serves; None until it says so."""
        said = re.search(r"serves on (http://\S+?)/ ", self.log())
        return said[1] if said else None

    def marks(self) -> Counter[tuple[str, str]]:
        """Count the marks that tools left, by call and word."""
        sink = self.effects / "sink"
        lines = sink.read_text().splitlines() if sink.exists() else []
        return Counter((line.split()[0], line.split()[2]) for line in lines)
