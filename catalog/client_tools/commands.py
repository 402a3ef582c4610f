"""Analysis of a shell command: its parts, each with programs, effects, paths and hosts, and what cannot be told."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.client_tools.paths import (
    SENSITIVE,
    effects_of_path,
    is_absolute_directory,
    resolve_path,
    unique,
)
from catalog.client_tools.programs import EXECUTES, UNKNOWN, WRITES, DescribedPart, describe, may_be_run_by_name
from catalog.client_tools.shell_syntax import MAX_COMMAND, MAX_STEPS, TOO_MANY, SimpleCommand, Word, read_command

MAX_SCRIPTS = 50
"""Maximum texts that are read because a command hands them to a shell."""
MAX_PATHS = 2000
MAX_PATH_LETTERS = 40_000
"""Maximum characters of all paths that are judged."""
MAX_DIRECTORIES = 8
EFFECTS = (
    *("reads", "searches", "writes", "deletes", "sends", "pushes", "installs", "executes"),
    *("outside", "credentials", "client_settings", "git", "ci", "unknown"),
)
"""All effects, in the order in which facts list them."""


@dataclass(frozen=True, slots=True)
class AnalysedPart:
    """One simple command with what it does; `doubts` say what cannot be told."""

    text: str
    programs: tuple[str, ...]
    effects: tuple[str, ...]
    paths: tuple[str, ...]
    hosts: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The parts of a command; `doubts` are those about the text as a whole."""

    parts: tuple[AnalysedPart, ...]
    doubts: tuple[str, ...]

    @property
    def is_understood(self) -> bool:
        return bool(self.parts) and not self.doubts and not any(part.doubts for part in self.parts)

    @property
    def effects(self) -> tuple[str, ...]:
        found = {effect for part in self.parts for effect in part.effects}
        return ordered(found if self.is_understood else {*found, UNKNOWN})


def ordered(effects: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(effects, key=EFFECTS.index))


def analyse_command(command: str | Sequence[str], cwd: str, directory: str = "") -> Analysis:
    """Return the analysis of a command, given as text or as words that no shell reads. Never raises.

    Paths are judged by the client's working directory `cwd`; the command starts in `directory`, by default there.
    """
    doubts: dict[str, None] = {}
    if not is_absolute_directory(cwd):
        doubts["The working directory is not known."] = None
    drafts: list[DescribedPart] = []
    if isinstance(command, str):
        texts = deque([command])
    elif len(command) > MAX_STEPS or sum(map(len, command)) > MAX_COMMAND:
        return Analysis((), ("The command is too long and was not read.",))
    else:
        words = [Word(word, is_quoted=True) for word in command]
        drafts.append(describe(SimpleCommand(words=words, text=" ".join(command)[:400])))
        texts = deque(drafts[0].scripts)
    read, unread, steps = 0, 2 * MAX_COMMAND, MAX_STEPS
    while texts:
        text = texts.popleft()
        read, unread = read + 1, unread - len(text)
        if read > MAX_SCRIPTS or unread < 0 or steps <= 0:
            doubts[TOO_MANY] = None
            break
        script = read_command(text, steps)
        steps -= script.steps
        doubts.update(dict.fromkeys(script.doubts))
        for each in script.commands:
            drafts.append(describe(each))
            texts.extend(drafts[-1].scripts)
    return Analysis(tuple(_with_paths(drafts, cwd, directory or cwd, doubts)), tuple(doubts))


def _with_paths(
    parts: Sequence[DescribedPart], cwd: str, directory: str, doubts: dict[str, None]
) -> list[AnalysedPart]:
    """Return the parts with paths resolved in every directory in which one of them may run.

    Which `cd` succeeds is not known, so each is taken both ways, for every part.
    """
    directories = {resolve_path(directory, cwd): None}
    changed: list[list[str]] = []
    for part in parts:
        changed.append([resolve_path(target, each) for target in part.directories for each in directories])
        directories.update(dict.fromkeys(changed[-1]))
        if len(directories) > MAX_DIRECTORIES:
            doubts["It changes the directory too often."] = None
            directories = dict.fromkeys(list(directories)[:MAX_DIRECTORIES])
    known: dict[str, set[str]] = {}
    letters = 0
    analysed = []
    for part, paths in zip(parts, changed, strict=True):
        effects, too_many = set(part.effects), False
        for text in dict.fromkeys(part.touched):
            starts = [cwd] if text[:1] in ("/", "~") else directories
            letters += sum(len(text) + len(each) for each in starts)
            if too_many := len(paths) > MAX_PATHS or letters > MAX_PATH_LETTERS:
                break
            paths += [resolve_path(text, each) for each in starts]
        for path in (paths := list(dict.fromkeys(paths))):
            if too_many := too_many or (path not in known and len(known) >= MAX_PATHS):
                break
            if path not in known:
                known[path] = effects_of_path(path, cwd)
            effects |= known[path]
            if WRITES in part.effects and may_be_run_by_name(path):
                effects.add(EXECUTES)
        if too_many:
            doubts["It names too many paths; some were not read."] = None
            effects |= SENSITIVE  # of the others, any may be among them
        analysed.append(
            AnalysedPart(
                part.text,
                unique(part.programs),
                ordered(effects),
                unique(paths),
                unique(part.hosts),
                tuple(part.doubts),
            )
        )
    return analysed
