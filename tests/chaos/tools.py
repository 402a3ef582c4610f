"""Tools whose effects are counted outside the database: each run appends lines to a file, the sink.

Loaded by serving processes through TOOLGATE_TOOLS; the folder of the files is in TOOLGATE_TEST_EFFECTS.
"""

import os
from pathlib import Path
from time import sleep

from catalog.testing import clean_registry
from catalog.tools import Preview, ToolContext, tool
from tests.chaos import points


def effects() -> Path:
    """Return the folder of the sink."""
    return Path(os.environ["TOOLGATE_TEST_EFFECTS"])


def mark(context: ToolContext, word: str) -> None:
    """Append one line to the sink atomically."""
    line = f"{context.call_id} {context.attempt} {word}\n"
    sink = os.open(effects() / "sink", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(sink, line.encode())
    os.close(sink)


def work(context: ToolContext, seconds: float, gate: str | None) -> str:
    """Begin, wait for the given time or until the file `gate` exists, and end."""
    points.reach("effect-begins", "before")
    mark(context, "began")
    points.reach("effect-begins", "after")
    sleep(seconds)
    while gate is not None and not (effects() / gate).exists():
        sleep(0.02)
    points.reach("effect-done", "before")
    mark(context, "ended")
    points.reach("effect-done", "after")
    return "done"


with clean_registry():

    @tool
    def safe_work(seconds: float = 0.0, gate: str | None = None, *, context: ToolContext) -> str:
        """Do work that may be repeated."""
        return work(context, seconds, gate)

    @tool(safety_level="cautious", retry_safe=False)
    def cautious_work(seconds: float = 0.0, gate: str | None = None, *, context: ToolContext) -> str:
        """Do work that must not be repeated, without approval."""
        return work(context, seconds, gate)

    @tool(safety_level="dangerous", retry_safe=True, reversibility="restorable")
    def dangerous_work(seconds: float = 0.0, gate: str | None = None, *, context: ToolContext) -> str:
        """Do work that must not be repeated, with approval."""
        return work(context, seconds, gate)

    @dangerous_work.preview
    def _(seconds: float = 0.0, gate: str | None = None, *, context: ToolContext) -> Preview:
        return Preview("Do it", "text", state_token="as it was")


TOOLS = (safe_work, cautious_work, dangerous_work)
AT_MOST_ONCE = ("cautious_work", "dangerous_work")
"""The tools whose calls never start a second time by themselves."""
