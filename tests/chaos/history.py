"""What a client did and was told, as Jepsen writes it down: invoke, then ok, fail, or info when nobody can know.

Each line of the file is one JSON object. `ok`: it was acknowledged, so it must be there. `fail`: it was refused, so it
must not be. `info`: no answer, or one that says nothing; either may be true, but never twice.
"""

import json
from pathlib import Path
from typing import Literal

from catalog import clock

Kind = Literal["invoke", "ok", "fail", "info"]


class History:
    """The lines of one run, in memory and in a file that survives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, str]] = []

    def add(self, kind: Kind, action: str, key: str, **more: str) -> None:
        """Write one line: what was done (`action`), under which Idempotency-Key, and what is known of it."""
        line = {"type": kind, "f": action, "key": key, "at": clock.now().isoformat(), **more}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def count(self, kind: Kind, action: str | None = None) -> int:
        """Return how many lines of a kind there are, of one action or of all."""
        return sum(line["type"] == kind and action in (None, line["f"]) for line in self.lines)

    def acknowledged(self, action: str) -> dict[str, str]:
        """Return the id that each key was answered with."""
        return {line["key"]: line["id"] for line in self.lines if (line["type"], line["f"]) == ("ok", action)}

    def refused(self, action: str) -> set[str]:
        """Return the keys that were refused and never acknowledged."""
        told = {line["key"] for line in self.lines if (line["type"], line["f"]) == ("fail", action)}
        return told - self.acknowledged(action).keys()
