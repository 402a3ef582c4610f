"""Why somebody's module could not be loaded, in one line that gives nothing away: it stands on a page."""

import traceback

from catalog.errors import ToolDefinitionError

LONGEST = 300
# What these say is about code, in Python's own words or ours; any other message may hold what the module had read.
ABOUT_CODE = (ImportError, SyntaxError, NameError, AttributeError, ToolDefinitionError)


def why_broken(error: BaseException, module: str) -> str:
    """Return the kind of error, what it says where that is about code, and the line of the module it came from."""
    said = f": {_first_line(error)}" if isinstance(error, ABOUT_CODE) else ""
    line = _line(error, module)
    return f"{type(error).__name__}{said}{f' (line {line} of {module})' if line else ''}"


def _first_line(error: BaseException) -> str:
    said = str(error).strip().partition("\n")[0][:LONGEST]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in said)


def _line(error: BaseException, module: str) -> int | None:
    """Return the last line of the module itself that was at work."""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == module
    ]
    return lines[-1] if lines else None
