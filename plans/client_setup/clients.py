"""Coding agents that `connect` sets up: their files, and the entries by which they ask Toolgate first.

Claude Code, Codex and Gemini CLI run `hook_wrapper.py` as a command, opencode loads `opencode_plugin.js`. Each
client's entries fail closed: docs/decisions/0074 says why they have this form.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from plans.client_setup.codex_hooks import NoAnswer, trust_of
from plans.client_setup.configuration import (
    COPY_SUFFIX,
    PRIVATE,
    FileChange,
    Json,
    NotChanged,
    change_settings,
    parse_settings,
    read_bytes,
    real_path,
    take_back_settings,
)
from plans.client_setup.server import Route

HERE = Path(__file__).parent
WRAPPER = "toolgate_hook.py"
OWN_FOLDER = "toolgate"
HOOK_SECONDS = 600
"""Timeout of a hook: longer than the wrapper's own, because Codex and Gemini CLI run the tool after it."""
BLOCK_BEGIN = "# Written by Toolgate's command connect; --undo removes these lines."
BLOCK_END = "# End of Toolgate's lines."


@dataclass(frozen=True, slots=True)
class Setup:
    """Values to write: address without slash at its end, token, and the Python that runs the wrapper."""

    url: str
    token: str
    python: str


class CodingAgent(ABC):
    """A client: `slug` names its source and its path under `hooks/`, `program` is its command."""

    slug: ClassVar[str]
    label: ClassVar[str]
    program: ClassVar[str]
    place: ClassVar[str]
    """The environment variable that names the folder of the configuration, or one above it, in place of the home."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.home = Path(environment.get("HOME") or Path.home())

    def is_linked(self, path: Path) -> bool:
        """Return whether a link below the home, or the place that a person has named, leads to a path.

        What it leads to may stand in a repository, as dotfiles do.
        """
        top = Path(self.environment.get(self.place) or self.home)
        return path.resolve() != top.resolve() / path.relative_to(top)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of the client's configuration."""

    @property
    def settings_file(self) -> Path:
        """Address and token, readable by the user alone."""
        return self.folder / OWN_FOLDER / "toolgate.json"

    @property
    def wrapper(self) -> Path:
        return self.folder / OWN_FOLDER / WRAPPER

    def find_program(self) -> str | None:
        return shutil.which(self.program, path=self.environment.get("PATH"))

    def command(self, python: str, action: str) -> str:
        return f"{shlex.quote(python)} -I -S {shlex.quote(str(self.wrapper))} {self.slug} {action}"

    def asking_command(self, python: str) -> str:
        """Return the command of the hook that asks.

        However the wrapper ends (killed, missing, without Python), the shell ends with 2 and says something: by that
        every client refuses the tool.
        """
        return f"{self.command(python, 'ask')} || sh -c 'echo Toolgate did not allow this tool. >&2; exit 2'"

    def own_changes(self, setup: Setup) -> list[FileChange]:
        """Return the files that are Toolgate's alone. Raises NotChanged if the token might come into a repository."""
        folder = self.settings_file.parent
        is_own_link = folder.is_symlink() and not folder.resolve().is_relative_to(self.folder.resolve())
        if self.is_linked(folder) and not is_own_link:
            raise NotChanged(
                f"A link leads to {folder.resolve()}: the token in it might come into a repository. "
                f"Make {folder} a link to a folder that is in none, and run this again. Nothing was changed."
            )
        values = {"url": setup.url, "token": setup.token, **self.stored_route().document}
        settings = json.dumps(values, indent=2).encode() + b"\n"
        return [
            self._own(self.settings_file, settings, PRIVATE),
            self._own(self.wrapper, (HERE / "hook_wrapper.py").read_bytes()),
        ]

    def _own(self, path: Path, content: bytes | None, mode: int | None = None) -> FileChange:
        return FileChange(path, read_bytes(path), content, mode, secret=mode is not None, is_own=True)

    def own_removals(self) -> list[FileChange]:
        return [self._own(path, None) for path in (self.settings_file, self.wrapper)]

    def check_obstacles(self) -> None:  # noqa: B027 - not every client can turn hooks off
        """Raise NotChanged if hooks of the user do not run in this client, so that writing them would mislead."""

    @abstractmethod
    def changes(self, setup: Setup) -> list[FileChange]:
        """Return all changes that set the client up. Raises NotChanged."""

    @abstractmethod
    def removals(self) -> list[FileChange]:
        """Return all changes that take the set-up back. Raises NotChanged."""

    def stored_setup(self) -> Setup | None:
        """Return the address and token of an earlier set-up, or None."""
        stored = self._stored()
        return Setup(str(stored["url"]), str(stored["token"]), "") if {"url", "token"} <= stored.keys() else None

    def stored_route(self) -> Route:
        """Return the way to the server that a person has named beside address and token; a new set-up keeps it."""
        stored = self._stored()
        return Route(*(str(stored.get(name) or "") for name in ("proxy", "certificates")))

    def _stored(self) -> Json:
        try:
            stored = json.loads(self.settings_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}


class ClientWithHooks(CodingAgent):
    """A client whose hooks are in `hooks` of a JSON file: by event, groups with a matcher and their handlers."""

    asks: ClassVar[str]
    reports: ClassVar[tuple[str, ...]]
    refuses: ClassVar[tuple[str, ...]] = ()
    """Events of runs that no other event tells of, and whose end is not reported: the asking hook refuses them."""

    @property
    @abstractmethod
    def hooks_file(self) -> Path: ...

    def handler(self, command: str) -> Json:
        return {"type": "command", "command": command, "timeout": HOOK_SECONDS}

    def asking_handler(self, command: str) -> Json:
        return self.handler(command)

    def add_hooks(self, settings: Json, *, python: str) -> None:
        """Add the hooks after those that stand there; earlier ones of Toolgate are replaced."""
        self.remove_hooks(settings)
        hooks = settings.setdefault("hooks", {})
        asking = self.asking_handler(self.asking_command(python))
        reporting = self.handler(self.command(python, "report"))
        for event in (self.asks, *self.refuses, *self.reports):
            handler = reporting if event in self.reports else asking
            hooks.setdefault(event, []).append({"matcher": "*", "hooks": [handler]})

    def remove_hooks(self, settings: Json) -> None:
        """Remove Toolgate's hooks, and what is empty without them. Raises NotChanged for hooks of another form."""
        hooks = settings.get("hooks", {})
        if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
            raise NotChanged(f"hooks in {self.hooks_file} has not the form of {self.label}. Mend it first.")
        for event, groups in list(hooks.items()):
            for group in [group for group in groups if self._is_own(group)]:
                group["hooks"] = [handler for handler in group["hooks"] if not self._is_own_handler(handler)]
                if not group["hooks"]:
                    groups.remove(group)
                    if not groups:
                        del hooks[event]
        if not hooks:
            settings.pop("hooks", None)

    def _is_own(self, group: Any) -> bool:
        handlers = group.get("hooks") if isinstance(group, dict) else None
        return isinstance(handlers, list) and any(map(self._is_own_handler, handlers))

    def _is_own_handler(self, handler: Any) -> bool:
        return isinstance(handler, dict) and str(self.wrapper) in str(handler.get("command"))

    def missing_events(self) -> list[str]:
        """Return the events for which Toolgate's hook is not there."""
        try:
            hooks = parse_settings(self.hooks_file, read_bytes(self.hooks_file)).get("hooks")
        except NotChanged:
            hooks = None
        found = hooks.items() if isinstance(hooks, dict) else ()
        own = {event for event, groups in found if isinstance(groups, list) and any(map(self._is_own, groups))}
        return [event for event in (self.asks, *self.refuses, *self.reports) if event not in own]

    def stored_python(self) -> str:
        """Return the Python of the hooks that are set up; empty without them."""
        try:
            hooks = parse_settings(self.hooks_file, read_bytes(self.hooks_file)).get("hooks", {})
            own = [group for group in hooks.get(self.asks, []) if self._is_own(group)]
            return shlex.split(own[0]["hooks"][0]["command"])[0]
        except (NotChanged, LookupError, TypeError, ValueError, AttributeError):
            return ""


def managed_settings(*paths: str) -> list[tuple[Path, Json]]:
    """Return the settings that an administrator of the machine has put there."""
    found = [(Path(path), read_bytes(Path(path))) for path in paths]
    return [(path, parse_settings(path, content)) for path, content in found if content is not None]


class ClaudeCode(ClientWithHooks):
    slug, label, program, place = "claude-code", "Claude Code", "claude", "CLAUDE_CONFIG_DIR"
    asks, reports = "PreToolUse", ("PostToolUse", "PostToolUseFailure", "PermissionDenied")
    refuses = ("PreSkillShellCommand",)

    @property
    def folder(self) -> Path:
        return Path(self.environment.get("CLAUDE_CONFIG_DIR") or self.home / ".claude")

    @property
    def hooks_file(self) -> Path:
        return self.folder / "settings.json"

    @property
    def mcp_file(self) -> Path:
        own = self.environment.get("CLAUDE_CONFIG_DIR")
        return (Path(own) if own else self.home) / ".claude.json"

    def asking_handler(self, command: str) -> Json:
        """Return a handler that also blocks where it fails or is too slow. An HTTP hook would pass an empty answer."""
        return self.handler(command) | {"onFailure": "block"}

    def check_obstacles(self) -> None:
        managed = managed_settings(
            "/etc/claude-code/managed-settings.json",
            "/Library/Application Support/ClaudeCode/managed-settings.json",
        )
        for path, settings in managed:
            for name in ("allowManagedHooksOnly", "disableAllHooks"):
                if settings.get(name):
                    raise NotChanged(f"{path} sets {name}: hooks of users do not run. Add the hooks there.")
        if parse_settings(self.hooks_file, read_bytes(self.hooks_file)).get("disableAllHooks"):
            raise NotChanged(f"{self.hooks_file} sets disableAllHooks: no hook runs. Remove it first.")

    def changes(self, setup: Setup) -> list[FileChange]:
        return [
            *self.own_changes(setup),
            change_settings(self.hooks_file, partial(self.add_hooks, python=setup.python), self.remove_hooks),
            change_settings(self.mcp_file, partial(self._add_server, setup=setup), self._remove_server),
        ]

    def _add_server(self, settings: Json, *, setup: Setup) -> None:
        entry = {
            "type": "http",
            "url": f"{setup.url}/mcp",
            "headersHelper": self.command(setup.python, "headers"),
        }
        add_server(self.mcp_file, settings, entry, "headersHelper", str(self.wrapper))

    def _remove_server(self, settings: Json) -> None:
        remove_server(settings, name="headersHelper", mark=str(self.wrapper))

    def removals(self) -> list[FileChange]:
        stored = self.stored_setup() or Setup("", "", "")
        setup = Setup(stored.url, stored.token, self.stored_python())
        add_hooks = partial(self.add_hooks, python=setup.python)
        return [
            take_back_settings(self.hooks_file, self.remove_hooks, add_hooks),
            take_back_settings(self.mcp_file, self._remove_server, partial(self._add_server, setup=setup)),
            *self.own_removals(),
        ]


def add_server(path: Path, settings: Json, entry: Json, name: str, mark: str) -> None:
    """Add the entry of Toolgate's MCP server; one that somebody else wrote stays."""
    servers = settings.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise NotChanged(f"mcpServers in {path} is not an object. Mend it first.")
    if _has_mark(servers.get("toolgate", entry), name, mark):
        servers["toolgate"] = entry


def remove_server(settings: Json, *, name: str, mark: str) -> None:
    servers = settings.get("mcpServers")
    if isinstance(servers, dict) and _has_mark(servers.get("toolgate"), name, mark):
        del servers["toolgate"]
        if not servers:
            del settings["mcpServers"]


def _has_mark(entry: object, name: str, mark: str) -> bool:
    return isinstance(entry, dict) and mark in str(entry.get(name))


class Codex(ClientWithHooks):
    slug, label, program, place = "codex", "Codex", "codex", "CODEX_HOME"
    asks, reports = "PreToolUse", ("PostToolUse",)

    @property
    def folder(self) -> Path:
        return Path(self.environment.get("CODEX_HOME") or self.home / ".codex")

    @property
    def hooks_file(self) -> Path:
        return self.folder / "hooks.json"

    @property
    def config_file(self) -> Path:
        return real_path(self.folder / "config.toml")

    @property
    def key_of_hooks(self) -> Path:
        """The path by which Codex names the hooks: it resolves the folder where CODEX_HOME names it."""
        own = self.environment.get("CODEX_HOME")
        return (Path(own).resolve() if own else self.folder) / "hooks.json"

    def check_obstacles(self) -> None:
        requirements = Path("/etc/codex/requirements.toml")
        if parse_toml(requirements, read_bytes(requirements)).get("allow_managed_hooks_only"):
            raise NotChanged(f"{requirements} sets allow_managed_hooks_only: add the hooks there.")
        config = parse_toml(self.config_file, read_bytes(self.config_file))
        features = config.get("features")
        if isinstance(features, dict) and features.get("hooks") is False:
            raise NotChanged(f"{self.config_file} turns hooks off ([features] hooks). Remove it first.")

    def changes(self, setup: Setup) -> list[FileChange]:
        hooks = change_settings(self.hooks_file, partial(self.add_hooks, python=setup.python), self.remove_hooks)
        return [*self.own_changes(setup), hooks, self._config_change(setup, hooks.after or b"")]

    def _config_change(self, setup: Setup, hooks: bytes) -> FileChange:
        """Return the change of config.toml: the trust in Toolgate's hooks, and the MCP server."""
        before = read_bytes(self.config_file)
        text = without_block((before or b"").decode("utf-8"))
        config = parse_toml(self.config_file, text.encode())
        lines = []
        if "toolgate" not in config.get("mcp_servers", {}):
            helper = json.dumps(self.command(setup.python, "headers"))
            lines += ["[mcp_servers.toolgate]", f'url = "{setup.url}/mcp"', f"http_headers_helper = {helper}"]
            lines += [f"tool_timeout_sec = {HOOK_SECONDS}"]
        stored = config.get("hooks", {}).get("state", {})
        for key, trusted in self.trust(hooks).items():
            if key in stored:
                raise NotChanged(f"{self.config_file} has a state for the hook {key} already. Remove it first.")
            lines += [f"[hooks.state.{json.dumps(key)}]", f'trusted_hash = "{trusted}"']
        after = with_block(text, lines)
        parse_toml(self.config_file, after.encode())
        return FileChange(
            self.config_file, before, after.encode(), keeps_copy=BLOCK_BEGIN.encode() not in (before or b"")
        )

    def trust(self, hooks: bytes) -> dict[str, str]:
        """Return key and hash of Toolgate's hooks, as Codex computes them; empty where there is no Codex."""
        program = self.find_program()
        if program is None:
            return {}
        groups = parse_settings(self.hooks_file, hooks)["hooks"]
        own = {
            f":{snake_case(event)}:{index}:0"
            for event, each in groups.items()
            for index, group in enumerate(each)
            if self._is_own(group)
        }
        try:
            found = trust_of(program, hooks, self.key_of_hooks, self.environment)
        except NoAnswer:
            return {}
        return {key: trusted for key, trusted in found.items() if any(key.endswith(ending) for ending in own)}

    def removals(self) -> list[FileChange]:
        before = read_bytes(self.config_file)
        after: bytes | None = without_block((before or b"").decode("utf-8")).encode()
        copy = read_bytes(self.config_file.with_name(self.config_file.name + COPY_SUFFIX))
        if copy is not None and copy.rstrip() == (after or b"").rstrip():
            after = copy
        elif not after:
            after = None
        holds_block = BLOCK_BEGIN.encode() in (copy or b"")  # as a copy of an earlier version may
        add_hooks = partial(self.add_hooks, python=self.stored_python())
        return [
            take_back_settings(self.hooks_file, self.remove_hooks, add_hooks),
            FileChange(self.config_file, before, after, drops_copy=holds_block),
            *self.own_removals(),
        ]


def snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def parse_toml(path: Path, content: bytes | None) -> Json:
    """Parse a TOML file; an absent one is `{}`. Raises NotChanged."""
    try:
        return tomllib.loads((content or b"").decode("utf-8"))
    except ValueError as error:
        raise NotChanged(f"{path} is not valid TOML ({error}). Mend it first; nothing was changed.") from None


def with_block(text: str, lines: list[str]) -> str:
    if not lines:
        return text
    space = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return "\n".join([text + space + BLOCK_BEGIN, *lines, BLOCK_END, ""])


def without_block(text: str) -> str:
    """Return a TOML text without Toolgate's lines, as it was before they were added."""
    before, begin, rest = text.partition(BLOCK_BEGIN)
    _, end, after = rest.partition(f"{BLOCK_END}\n")
    if not begin or not end:
        return text
    return before.removesuffix("\n") + after


class GeminiCli(ClientWithHooks):
    slug, label, program, place = "gemini-cli", "Gemini CLI", "gemini", "GEMINI_CLI_HOME"
    asks, reports = "BeforeTool", ("AfterTool",)
    MARK = "Toolgate (written by its command connect)"

    @property
    def folder(self) -> Path:
        return Path(self.environment.get("GEMINI_CLI_HOME") or self.home) / ".gemini"

    @property
    def hooks_file(self) -> Path:
        return self.folder / "settings.json"

    def handler(self, command: str) -> Json:
        return {"type": "command", "name": "toolgate", "command": command, "timeout": HOOK_SECONDS * 1000}

    def check_obstacles(self) -> None:
        paths = (
            self.environment.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or "/etc/gemini-cli/settings.json",
            "/Library/Application Support/GeminiCli/settings.json",
            str(self.hooks_file),
        )
        for path, settings in managed_settings(*paths):
            switches = settings.get("hooksConfig")
            if not isinstance(switches, dict):
                continue
            disabled = switches.get("disabled")
            if switches.get("enabled") is False or (isinstance(disabled, list) and "toolgate" in disabled):
                raise NotChanged(f"{path} turns hooks off (hooksConfig). Change it first.")

    @property
    def hides_token(self) -> bool:
        """True if the file may stand in a repository, so that the token stays in the environment."""
        return self.is_linked(self.hooks_file)

    def changes(self, setup: Setup) -> list[FileChange]:
        mode = None if self.hides_token else PRIVATE
        change = change_settings(self.hooks_file, partial(self._add, setup=setup), self._remove, mode=mode)
        return [*self.own_changes(setup), change]

    def _add(self, settings: Json, *, setup: Setup) -> None:
        self.add_hooks(settings, python=setup.python)
        token = "$TOOLGATE_TOKEN" if self.hides_token else setup.token
        entry = {
            "httpUrl": f"{setup.url}/mcp",
            "headers": {"Authorization": f"Bearer {token}"},
            "timeout": HOOK_SECONDS * 1000,
            "description": self.MARK,
        }
        add_server(self.hooks_file, settings, entry, "description", self.MARK)

    def _remove(self, settings: Json) -> None:
        self.remove_hooks(settings)
        remove_server(settings, name="description", mark=self.MARK)

    def removals(self) -> list[FileChange]:
        stored = self.stored_setup() or Setup("", "", "")
        setup = Setup(stored.url, stored.token, self.stored_python())
        add = partial(self._add, setup=setup)
        return [take_back_settings(self.hooks_file, self._remove, add), *self.own_removals()]


class OpenCode(CodingAgent):
    """The plugin asks, and adds the MCP server itself: nothing is merged into opencode's own files."""

    slug, label, program, place = "opencode", "opencode", "opencode", "XDG_CONFIG_HOME"

    @property
    def folder(self) -> Path:
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config") / "opencode"

    @property
    def plugin(self) -> Path:
        return self.folder / "plugin" / "toolgate.js"

    def own_changes(self, setup: Setup) -> list[FileChange]:
        plugin = (HERE / "opencode_plugin.js").read_bytes()
        return [super().own_changes(setup)[0], self._own(self.plugin, plugin)]

    def own_removals(self) -> list[FileChange]:
        return [self._own(path, None) for path in (self.settings_file, self.plugin)]

    def changes(self, setup: Setup) -> list[FileChange]:
        return self.own_changes(setup)

    def removals(self) -> list[FileChange]:
        return self.own_removals()


CODING_AGENTS: Mapping[str, type[CodingAgent]] = {
    agent.slug: agent for agent in (ClaudeCode, Codex, GeminiCli, OpenCode)
}


def find_python() -> str:
    """Return a Python for the wrapper: 3.9 or newer, and best one that outlives this program's environment.

    Raises NotChanged if there is none, and on Windows, where the hooks' shell is not there.
    """
    if os.name != "posix":
        raise NotChanged("The hooks need a POSIX shell: macOS, Linux, or Windows with WSL.")
    found = [shutil.which("python3", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin"), shutil.which("python3")]
    check = "import sys, json, ssl, urllib.request; sys.exit(sys.version_info < (3, 9))"
    for python in [*filter(None, found), os.path.realpath(sys.executable)]:
        try:
            done = subprocess.run([python, "-I", "-S", "-c", check], capture_output=True, timeout=20)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return python
    raise NotChanged("There is no Python 3.9 or newer for the hook. Install python3.")
