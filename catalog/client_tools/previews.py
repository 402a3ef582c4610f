"""Previews of calls that a coding agent runs itself, computed from what the client sent.

The files themselves are not known: a diff compares the texts that the client sent, and its summary says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.client_tools.commands import AnalysedPart, ordered
from catalog.client_tools.facts import EFFECT_WORDS, analysis_of, effects_in_words, facts_of
from catalog.client_tools.inputs import ReadInput, SentChange, changes_of_patch, edits_of, read_input
from catalog.client_tools.paths import unique
from catalog.results import Preview

MAX_ROWS = 100
MAX_NAME = 200
MAX_LISTED = 8
AS_SENT = "as sent; the file itself is not known here"


def preview(client: str, tool: str, input: Mapping[str, Any], cwd: str) -> Preview | None:
    """Return the preview of a call; None for a tool that is not known of this client. Never raises."""
    found = read_input(client, tool, input)
    if found is None:
        return None
    return _PREVIEWS[found.tool.kind](tool, found, cwd)


PLAIN_EFFECTS = {"reads", "searches", "unknown"}
"""Effects that the summary of a command leaves out."""


def _of_command(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    analysis = analysis_of(client_input, cwd)
    programs = unique(program for part in analysis.parts for program in part.programs)
    listed = ", ".join(_cut(program, 40) for program in programs[:MAX_LISTED])
    more = f" and {len(programs) - MAX_LISTED} more" if len(programs) > MAX_LISTED else ""
    summary = f"Run {listed}{more}" if programs else "Run a command that could not be read"
    # Requests of the same program are told apart by what they do; everything is in the rows below.
    found = {effect for part in analysis.parts for effect in part.effects}
    effects = effects_in_words(ordered(found - PLAIN_EFFECTS))
    summary += f": {effects}" if effects else ""
    rows = [_row_of_part(part) for part in analysis.parts[:MAX_ROWS]]
    if len(analysis.parts) > MAX_ROWS:
        rows.append(_row(f"{len(analysis.parts) - MAX_ROWS} more parts are not listed", "", "", ""))
    if analysis.doubts:
        rows.append(_row("The command as a whole", EFFECT_WORDS["unknown"], "", " ".join(analysis.doubts[:MAX_LISTED])))
    return Preview(summary, "rows", rows=tuple(rows))


def _row_of_part(part: AnalysedPart) -> dict[str, str]:
    effects = effects_in_words(part.effects)
    touched = [*part.paths, *part.hosts]
    more = [f"and {len(touched) - MAX_LISTED} more"] if len(touched) > MAX_LISTED else []
    listed = ", ".join([*(_cut(each) for each in touched[:MAX_LISTED]), *more])
    return _row(part.text, effects or "nothing by itself", listed, " ".join(part.doubts[:MAX_LISTED]))


def _row(part: str, effects: str, touched: str, doubts: str) -> dict[str, str]:
    return {"Part": part, "Does": effects, "Paths and hosts": touched, "Cannot be told": doubts}


def _cut(text: str, longest: int = MAX_NAME) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _of_write(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    summary = f"Create or replace {_cut(client_input.path())} ({AS_SENT})"
    return Preview(summary, "diff", before="", after=client_input.text("content"))


def _of_edit(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    summary = f"Edit {_cut(client_input.path())} ({AS_SENT})"
    return Preview(summary, "diff", before=client_input.text("old"), after=client_input.text("new"))


def _of_edits(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    changes = edits_of(client_input)
    count = f"{len(changes)} edit{'' if len(changes) == 1 else 's'}"
    return _of_changes(f"Make {count} in {_cut(client_input.path())} ({AS_SENT})", changes)


def _of_patch(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    changes = changes_of_patch(client_input)
    if not changes:
        return Preview("Apply a patch that could not be read", "none")
    paths = unique(change.path for change in changes)
    listed = ", ".join(_cut(path, 80) for path in paths[:MAX_LISTED])
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return _of_changes(f"Patch {listed}{more} ({AS_SENT})", changes)


def _of_changes(summary: str, changes: Sequence[SentChange]) -> Preview:
    """Return one diff of all changes, each under a line that names its file."""
    before, after = [], []
    for change in changes:
        head = f"=== {change.action} {change.path}"
        before += [head, *([change.before] if change.before is not None else [])]
        after += [head, *([change.after] if change.after is not None else [])]
    return Preview(summary, "diff", before="\n".join(before) + "\n", after="\n".join(after) + "\n")


def _of_fetch(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    hosts = facts_of(client_input, cwd).hosts
    host = ", ".join(_cut(host, 100) for host in hosts[:MAX_LISTED]) or "a host that cannot be told"
    rows = [{"Host": _cut(each), "Does": EFFECT_WORDS["sends"]} for each in hosts[:MAX_ROWS]]
    return Preview(f"Fetch from {host}", "rows" if rows else "none", rows=tuple(rows))


def _of_web_search(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    return Preview("Search the web", "text", after=client_input.text("query"))


def _of_path(verb: str) -> Callable[[str, ReadInput, str], Preview]:
    def of_path(tool: str, client_input: ReadInput, cwd: str) -> Preview:
        facts = facts_of(client_input, cwd)
        effects = effects_in_words(facts.effects)
        rows = [{"Path": _cut(path), "Does": effects} for path in facts.paths]
        return Preview(f"{verb} {_cut(client_input.path() or '.')}", "rows" if rows else "none", rows=tuple(rows))

    return of_path


def _of_notes(tool: str, client_input: ReadInput, cwd: str) -> Preview:
    return Preview(f"Use {tool}, which touches only what the client keeps for itself", "none")


_PREVIEWS: Mapping[str, Callable[[str, ReadInput, str], Preview]] = {
    "command": _of_command,
    "read": _of_path("Read"),
    "list": _of_path("List"),
    "glob": _of_path("List files in"),
    "search": _of_path("Search in"),
    "write": _of_write,
    "notebook": _of_write,
    "edit": _of_edit,
    "edits": _of_edits,
    "patch": _of_patch,
    "fetch": _of_fetch,
    "fetch_prompt": _of_fetch,
    "web_search": _of_web_search,
    "notes": _of_notes,
}
