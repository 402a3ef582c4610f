"""Definitions of the coding agents' own tools, as the catalog stores them: descriptions, fields, levels.

The schemas help people to read and edit calls; they are open, and require nothing: a later version of a client may send
other fields. Read from Claude Code 2.1.332, Codex 0.171.0, Gemini CLI 0.61.0 and opencode 1.18.33.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.client_tools.inputs import client_tool

CLIENT_TITLES = {"claude-code": "Claude Code", "codex": "Codex", "gemini-cli": "Gemini CLI", "opencode": "opencode"}
"""The coding agents by the names of their sources, which are also how their names begin over MCP."""
CHANGE_NOTHING = frozenset({"read", "list", "glob", "search", "notes"})
"""Kinds of tools that change nothing, so that there is nothing to undo."""


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool of a coding agent. `is_harmless` is True if it touches only what its client keeps for itself."""

    description: str
    schema: Mapping[str, Any]
    is_harmless: bool = False


def client_title(client: str) -> str:
    """Return the name of a client for people."""
    return CLIENT_TITLES.get(client, client)


def known_tool(client: str, tool: str) -> KnownTool | None:
    """Return the tool of a coding agent by the client's own name; None for other clients and tools."""
    return KNOWN_TOOLS.get(client, {}).get(tool)


def changes_nothing(client: str, tool: str) -> bool:
    """Return whether a client's tool only reads, whatever its input."""
    found = client_tool(client, tool)
    return found is not None and found.kind in CHANGE_NOTHING


def _field(title: str, description: str = "", kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, **({"description": description} if description else {}), **more}


def _known(description: str, /, *, is_harmless: bool = False, **fields: Mapping[str, Any]) -> KnownTool:
    return KnownTool(description, {"type": "object", "properties": fields}, is_harmless)


_COMMAND = _field("Command", "A shell reads it.")
_PATH = _field("Path", "Relative paths start in the working directory.")
_ABSOLUTE = _field("Path", "Absolute path of the file.")
_CONTENT = _field("Content", "The whole new content of the file.")
_OLD, _NEW = _field("Old text", "It must occur in the file exactly so."), _field("New text", "It takes its place.")
_ALL = _field("Replace all", "Every occurrence is replaced, not only one.", "boolean")
_PATTERN = _field("Pattern", "A regular expression.")
_FILES = _field("Files", "Pattern of the names of the files.")
_URL, _QUERY = _field("Address"), _field("Query")
_PURPOSE = _field("Description", "The agent's words for people; nothing is done with it.")
_MILLISECONDS = _field("Time limit", "In milliseconds.", "number")
_DIRECTORY = _field("Directory", "The command starts there; without it, in the working directory.")
_OFFSET, _LIMIT = _field("First line", "", "number"), _field("Number of lines", "", "number")
_PATCH = _field("Patch", "From “*** Begin Patch” to “*** End Patch”, with the changes of each file.")
_TASK = {"type": "object", "properties": {"content": _field("Task"), "status": _field("Status")}}
_TASKS = _field("Tasks", "", "array", items=_TASK)


def _edit(**names: str) -> dict[str, Any]:
    return {names["old"]: _OLD, names["new"]: _NEW, names["all"]: _ALL}


_SNAKE = _edit(old="old_string", new="new_string", all="replace_all")
_CAMEL = _edit(old="oldString", new="newString", all="replaceAll")
_EDITS_OF_FILE = _field("Edits", "Made in this order.", "array", items={"type": "object", "properties": _SNAKE})

_CLAUDE_CODE = {
    "Bash": _known(
        "Run a shell command.",
        command=_COMMAND,
        description=_PURPOSE,
        timeout=_MILLISECONDS,
        run_in_background=_field("In the background", "The agent goes on and reads the output later.", "boolean"),
    ),
    "Read": _known("Read a file.", file_path=_ABSOLUTE, offset=_OFFSET, limit=_LIMIT),
    "Write": _known("Create or replace a file.", file_path=_ABSOLUTE, content=_CONTENT),
    "Edit": _known("Replace a text in a file.", file_path=_ABSOLUTE, **_SNAKE),
    "MultiEdit": _known("Replace several texts in a file.", file_path=_ABSOLUTE, edits=_EDITS_OF_FILE),
    "NotebookEdit": _known(
        "Change a cell of a notebook.",
        notebook_path=_ABSOLUTE,
        cell_id=_field("Cell"),
        new_source=_field("Source", "The whole new source of the cell."),
        cell_type=_field("Type of the cell", "code or markdown."),
        edit_mode=_field("Change", "replace, insert or delete."),
    ),
    "Glob": _known("List files by a pattern of their names.", pattern=_FILES, path=_PATH),
    "Grep": _known("Search in files.", pattern=_PATTERN, path=_PATH, glob=_FILES),
    "WebFetch": _known(
        "Fetch a page, and ask a small model about it.",
        url=_URL,
        prompt=_field("Question", "The question to the small model about the page."),
    ),
    "WebSearch": _known("Search the web.", query=_QUERY),
    "Task": _known(
        "Start a subagent, whose own tools are asked about one by one.",
        description=_PURPOSE,
        prompt=_field("Task", "The instructions of the subagent."),
        subagent_type=_field("Kind of subagent"),
    ),
    "TodoWrite": _known("Write the to-do list of this session.", is_harmless=True, todos=_TASKS),
    "TaskCreate": _known(
        "Add a task to the to-do list of this session.",
        is_harmless=True,
        subject=_field("Task"),
        description=_field("Description"),
    ),
    "TaskUpdate": _known(
        "Change a task of the to-do list of this session.",
        is_harmless=True,
        taskId=_field("Task number"),
        status=_field("Status"),
    ),
    "TaskGet": _known("Read a task of the to-do list of this session.", is_harmless=True, taskId=_field("Task number")),
    "TaskList": _known("Read the to-do list of this session.", is_harmless=True),
    "EnterPlanMode": _known("Go on in plan mode, in which files are not changed.", is_harmless=True),
    "BashOutput": _known(
        "Read the output of a command in the background.", is_harmless=True, bash_id=_field("Command's id")
    ),
    "TaskOutput": _known(
        "Read the output of a subagent or a command in the background.", is_harmless=True, task_id=_field("Task's id")
    ),
}
_CLAUDE_CODE["Agent"] = _CLAUDE_CODE["Task"]  # its newer name

_CODEX_SHELL = _known("Run a shell command.", workdir=_DIRECTORY, timeout_ms=_MILLISECONDS)
_CODEX = {
    "Bash": _known("Run a shell command.", command=_COMMAND),
    "shell": _CODEX_SHELL,  # its command is a list of words or a text
    "shell_command": _known("Run a shell command.", command=_COMMAND, workdir=_DIRECTORY, timeout_ms=_MILLISECONDS),
    "local_shell": _CODEX_SHELL,
    "exec_command": _known("Run a shell command.", cmd=_COMMAND, workdir=_DIRECTORY),
    "apply_patch": _known("Change files by a patch.", command=_PATCH),
    "view_image": _known("Read an image.", path=_PATH),
    "web_search": _known("Search the web.", query=_QUERY),
    "update_plan": _known(
        "Write the plan of this session.",
        is_harmless=True,
        explanation=_field("Explanation"),
        plan=_field("Steps", "", "array", items={"type": "object"}),
    ),
}

_GEMINI_CLI = {
    "run_shell_command": _known("Run a shell command.", command=_COMMAND, description=_PURPOSE, directory=_DIRECTORY),
    "read_file": _known(
        "Read a file.", file_path=_PATH, start_line=_OFFSET, end_line=_field("Last line", "", "number")
    ),
    "list_directory": _known("List a directory.", dir_path=_PATH),
    "glob": _known("List files by a pattern of their names.", pattern=_FILES, dir_path=_PATH),
    "grep_search": _known("Search in files.", pattern=_PATTERN, dir_path=_PATH),
    "search_file_content": _known("Search in files.", pattern=_PATTERN, dir_path=_PATH, include=_FILES),
    "write_file": _known("Create or replace a file.", file_path=_PATH, content=_CONTENT),
    "replace": _known(
        "Replace a text in a file.",
        file_path=_PATH,
        instruction=_field("Instruction", "The agent's words for the change."),
        old_string=_OLD,
        new_string=_NEW,
    ),
    "web_fetch": _known("Fetch pages that a text for a model names.", prompt=_field("Question", "With the addresses.")),
    "google_web_search": _known("Search the web.", query=_QUERY),
    "write_todos": _known("Write the to-do list of this session.", is_harmless=True, todos=_TASKS),
}

_OPENCODE = {
    "bash": _known(
        "Run a shell command.", command=_COMMAND, description=_PURPOSE, timeout=_MILLISECONDS, workdir=_DIRECTORY
    ),
    "read": _known("Read a file.", filePath=_PATH, offset=_OFFSET, limit=_LIMIT),
    "write": _known("Create or replace a file.", filePath=_PATH, content=_CONTENT),
    "edit": _known("Replace a text in a file.", filePath=_PATH, **_CAMEL),
    "patch": _known("Change files by a patch.", patchText=_PATCH),
    "apply_patch": _known("Change files by a patch.", patchText=_PATCH),
    "list": _known("List a directory.", path=_PATH),
    "glob": _known("List files by a pattern of their names.", pattern=_FILES, path=_PATH),
    "grep": _known("Search in files.", pattern=_PATTERN, path=_PATH, include=_FILES),
    "webfetch": _known("Fetch a page.", url=_URL, format=_field("Format", "text, markdown or html.")),
    "websearch": _known("Search the web.", query=_QUERY),
    "task": _known(
        "Start a subagent, whose own tools are asked about one by one.",
        description=_PURPOSE,
        prompt=_field("Task", "The instructions of the subagent."),
        subagent_type=_field("Kind of subagent"),
    ),
    "todowrite": _known("Write the to-do list of this session.", is_harmless=True, todos=_TASKS),
    "todoread": _known("Read the to-do list of this session.", is_harmless=True),
}

KNOWN_TOOLS: Mapping[str, Mapping[str, KnownTool]] = {
    "claude-code": _CLAUDE_CODE,
    "codex": _CODEX,
    "gemini-cli": _GEMINI_CLI,
    "opencode": _OPENCODE,
}
