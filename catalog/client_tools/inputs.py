"""The tools of coding agents, by client and its own name for each, and the fields of their inputs.

Field names are those of Claude Code, Codex, Gemini CLI and opencode. A field that is not listed may change what a call
does, so a call with one is not understood.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.client_tools.paths import MAX_PATH

MAX_EDITS = 200
_SUSPECT_PATH = re.compile(r"[\x00-\x1f\x7f\\]|://|^\$|^\s|\s$|^%|^[A-Za-z]:")
"""A path that a client may read in another way: with control characters, a backslash, a scheme, a drive, spaces."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool with the names of its fields by role; other fields in `harmless` change nothing that matters here."""

    kind: str
    roles: Mapping[str, tuple[str, ...]]
    harmless: frozenset[str] = frozenset()


def _tool(kind: str, harmless: str = "", **roles: str) -> ClientTool:
    return ClientTool(kind, {role: tuple(names.split()) for role, names in roles.items()}, frozenset(harmless.split()))


_READ = _tool("read", "offset limit pages start_line end_line", path="file_path filePath path absolute_path")
_LIST = _tool("list", "ignore respect_git_ignore file_filtering_options", path="path dir_path")
_GLOB = _tool(
    "glob", "case_sensitive respect_git_ignore respect_gemini_ignore", pattern="pattern", path="path dir_path"
)
_GREP = _tool(
    "search",
    "output_mode -A -B -C -n -i context type head_limit offset multiline case_sensitive fixed_strings before after "
    "max_matches_per_file total_max_matches names_only",
    pattern="pattern",
    path="path dir_path",
    glob="glob include",
)
_WRITE = _tool("write", path="file_path filePath path", content="content")
_EDIT = _tool(
    "edit",
    "replace_all replaceAll expected_replacements instruction allow_multiple",
    path="file_path filePath path",
    old="old_string oldString",
    new="new_string newString",
)
_EDITS = _tool("edits", path="file_path filePath path", edits="edits")
_PATCH = _tool("patch", patch="command input patch patchText")
_FETCH = _tool("fetch", "prompt format timeout", url="url")
_SEARCH_WEB = _tool(
    "web_search",
    "allowed_domains blocked_domains numResults livecrawl type contextMaxCharacters",
    query="query",
)
_TASKS = _tool("notes", "todos")
_SHELL = _tool("command", "timeout timeout_ms justification login", command="command cmd", directory="workdir cwd")

_CLAUDE_CODE = {
    "Bash": _tool("command", "description timeout run_in_background", command="command"),
    "Read": _READ,
    "NotebookRead": _tool("read", "cell_id", path="notebook_path"),
    "LS": _LIST,
    "Glob": _GLOB,
    "Grep": _GREP,
    "Write": _WRITE,
    "Edit": _EDIT,
    "MultiEdit": _EDITS,
    "NotebookEdit": _tool("notebook", "cell_id cell_type edit_mode", path="notebook_path", content="new_source"),
    "WebFetch": _FETCH,
    "WebSearch": _SEARCH_WEB,
    "TodoWrite": _TASKS,
    "TaskCreate": _tool("notes", "subject description activeForm metadata"),
    "TaskUpdate": _tool("notes", "taskId status subject description activeForm owner addBlocks addBlockedBy metadata"),
    "TaskGet": _tool("notes", "taskId"),
    "TaskList": _tool("notes"),
    "EnterPlanMode": _tool("notes"),
    "BashOutput": _tool("notes", "bash_id filter"),
    "TaskOutput": _tool("notes", "task_id block timeout"),
}
_CODEX = {
    "Bash": _tool("command", command="command"),
    "update_plan": _tool("notes", "explanation plan"),
    "shell": _SHELL,
    "shell_command": _SHELL,
    "local_shell": _SHELL,
    "exec_command": _tool("command", "yield_time_ms max_output_tokens", command="cmd command", directory="workdir"),
    "apply_patch": _PATCH,
    "view_image": _tool("read", path="path"),
    "web_search": _SEARCH_WEB,
}
_GEMINI_CLI = {
    "run_shell_command": _tool(
        "command", "description is_background", command="command", directory="directory dir_path"
    ),
    "read_file": _READ,
    "list_directory": _LIST,
    "glob": _GLOB,
    "search_file_content": _GREP,
    "grep_search": _GREP,
    "write_file": _WRITE,
    "replace": _EDIT,
    "web_fetch": _tool("fetch_prompt", prompt="prompt", url="url"),
    "google_web_search": _SEARCH_WEB,
    "write_todos": _TASKS,
}
_OPENCODE = {
    "bash": _tool("command", "description timeout", command="command", directory="workdir"),
    "read": _READ,
    "list": _LIST,
    "glob": _GLOB,
    "grep": _GREP,
    "write": _WRITE,
    "edit": _EDIT,
    "multiedit": _EDITS,
    "patch": _PATCH,
    "apply_patch": _PATCH,
    "webfetch": _FETCH,
    "websearch": _SEARCH_WEB,
    "todowrite": _TASKS,
    "todoread": _tool("notes"),
}
CLIENT_TOOLS: Mapping[str, Mapping[str, ClientTool]] = {
    "claude-code": _CLAUDE_CODE,
    "codex": _CODEX,
    "gemini-cli": _GEMINI_CLI,
    "opencode": _OPENCODE,
}
"""By client: another client may have a tool of the same name that does anything."""


def client_tool(client: str, tool: str) -> ClientTool | None:
    """Return the tool of a client by its own name for it; None for other clients and tools."""
    return CLIENT_TOOLS.get(client, {}).get(tool)


@dataclass(slots=True)
class ReadInput:
    """The input of a call by the roles of its tool's fields; `doubts` say what could not be told."""

    tool: ClientTool
    values: dict[str, Any] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def text(self, role: str) -> str:
        """Return the text of a role; empty, with a doubt, if the field holds something else."""
        value = self.values.get(role, "")
        if not isinstance(value, str):
            self.doubts.append(f"The field {role} is no text.")
            return ""
        return value

    def require_texts(self, *roles: str) -> None:
        """Doubt the call for each of these roles whose field holds something other than text."""
        for role in roles:
            self.text(role)

    def path(self, role: str = "path") -> str:
        """Return the path of a role, with a doubt if a client may read it in another way."""
        text = self.text(role)
        if len(text) > MAX_PATH:
            self.doubts.append("The path is too long to be read.")
            return text[: MAX_PATH + 1]  # still too long, so that it may be any
        if _SUSPECT_PATH.search(text):
            self.doubts.append("The path may be read in more than one way.")
        return text


def read_input(client: str, tool: str, sent: Mapping[str, Any]) -> ReadInput | None:
    """Return the fields of a call by role; None if the client has no such tool that is known here."""
    known = client_tool(client, tool)
    if known is None:
        return None
    found = ReadInput(known)
    listed = set(known.harmless)
    for role, names in known.roles.items():
        given = [name for name in names if sent.get(name) is not None]
        listed.update(names)
        if len(given) > 1:
            found.doubts.append(f"The fields {', '.join(given)} say the same thing twice.")
        if given:
            found.values[role] = sent[given[0]]
    unknown = sorted(name for name in sent if name not in listed)
    if unknown:
        found.doubts.append(f"The field {unknown[0][:40]} is not known here.")
    return found


@dataclass(frozen=True, slots=True)
class SentChange:
    """A change of a file as the client sent it: `before` is text that it replaces, None where it sent none."""

    action: str  # "write", "edit", "create", "delete" or "move"
    path: str
    before: str | None
    after: str | None


def edits_of(client_input: ReadInput) -> list[SentChange]:
    """Return the edits of a MultiEdit; what has no texts is a doubt."""
    path, edits = client_input.path(), client_input.values.get("edits")
    if not isinstance(edits, list) or not 0 < len(edits) <= MAX_EDITS:
        client_input.doubts.append(f"The edits are no list of 1 to {MAX_EDITS}.")
        return [SentChange("edit", path, None, None)]
    changes = []
    for each in edits:
        fields = each if isinstance(each, Mapping) else {}
        texts = [fields.get(name, fields.get(other)) for name, other in _EDIT_NAMES]
        if not all(isinstance(text, str) for text in texts):
            client_input.doubts.append("An edit has no texts.")
            continue
        if not fields.keys() <= {name for names in _EDIT_NAMES for name in names} | {"replace_all", "replaceAll"}:
            client_input.doubts.append("An edit has a field that is not known here.")
        changes.append(SentChange("edit", path, texts[0], texts[1]))
    return changes or [SentChange("edit", path, None, None)]


_EDIT_NAMES = (("old_string", "oldString"), ("new_string", "newString"))
_DIRECTIVE = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): *(.*)")
_ACTIONS = {"Add File": "create", "Update File": "edit", "Delete File": "delete", "Move to": "move"}


def changes_of_patch(client_input: ReadInput) -> list[SentChange]:
    """Return the changes of a patch in the form of Codex; a line out of place is a doubt.

    Every line that any reader could take for the name of a file is taken for one.
    """
    given = client_input.values.get("patch", "")
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2 and given[0] == "apply_patch":
        given = given[1]
    if not isinstance(given, str):
        client_input.doubts.append("The patch is no text.")
        return []
    lines = given.strip().split("\n")
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        client_input.doubts.append("The patch does not begin and end as one.")
    changes: list[SentChange] = []
    for change in _sections(lines, client_input):
        if len(changes) >= MAX_EDITS:
            client_input.doubts.append(f"The patch changes more than {MAX_EDITS} files.")
            break
        changes.append(change)
    if any(_SUSPECT_PATH.search(change.path) or not change.path for change in changes):
        client_input.doubts.append("The path may be read in more than one way.")
    return changes


def _sections(lines: Sequence[str], client_input: ReadInput) -> Iterator[SentChange]:
    action, path = "", ""
    before: list[str] = []
    after: list[str] = []

    def change() -> SentChange:
        removed = "\n".join(before) if action in ("edit", "move") else None
        return SentChange(action, path, removed, None if action == "delete" else "\n".join(after))

    for line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is not None:
            if line.startswith(" "):
                client_input.doubts.append("A line of the patch may be the name of a file.")
            if action:
                yield change()
            # A renamed file goes on with its changes.
            action, path = _ACTIONS[directive[1]], directive[2]
            before, after = [], []
        elif line.startswith("@@"):
            before.append(line)
            after.append(line)
        elif line[:1] in ("-", "+", " ", ""):
            if line[:1] in ("-", " ", ""):
                before.append(line[1:])
            if line[:1] in ("+", " ", ""):
                after.append(line[1:])
        elif line.strip() not in ("*** Begin Patch", "*** End Patch", "*** End of File"):
            client_input.doubts.append("A line of the patch is not known here.")
    if action:
        yield change()
