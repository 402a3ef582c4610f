"""History of a client in the style of Jepsen: invoke, then ok, fail, or info if the result is unknown.

Each line of the file is one JSON object. `ok`: it was acknowledged, so it must be there. `fail`: it was refused, so it
must not be. `info`: no answer, or one that says nothing; either may be true, but never twice.
"""

import json
from pathlib import Path
from typing import Literal

from catalog.core import clock

Kind = Literal["invoke", "ok", "fail", "info"]


class History:
    """The lines of one run, in memory and in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, str]] = []

    def add(self, kind: Kind, action: str, key: str, **more: str) -> None:
        """Add a line for a request: its action, its Idempotency-Key and its result."""
        line = {"type": kind, "f": action, "key": key, "at": clock.now().isoformat(), **more}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def count(self, kind: Kind, action: str | None = None) -> int:
        """Return how many lines of a kind there are, of one action or of all."""
        return sum(line["type"] == kind and action in (None, line["f"]) for line in self.lines)

    def acknowledged(self, action: str) -> dict[str, str]:
        """Return the id that each acknowledged key was answered with."""
        return {line["key"]: line["id"] for line in self.lines if (line["type"], line["f"]) == ("ok", action)}

    def refused(self, action: str) -> set[str]:
        """Return the keys that were refused and never acknowledged."""
        keys = {line["key"] for line in self.lines if (line["type"], line["f"]) == ("fail", action)}
        return keys - self.acknowledged(action).keys()
