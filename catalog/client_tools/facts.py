"""Facts of a call that a coding agent runs itself, derived by rules from its input: programs, effects, paths, hosts."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from django.utils.translation import gettext, gettext_noop

from catalog.client_tools.commands import Analysis, analyse_command, ordered
from catalog.client_tools.inputs import ReadInput, changes_of_patch, edits_of, read_input
from catalog.client_tools.paths import (
    effects_of_path,
    is_absolute_directory,
    is_inside,
    is_source_file,
    resolve_path,
    unique,
)
from catalog.client_tools.programs import (
    DELETES,
    EXECUTES,
    READS,
    SEARCHES,
    SENDS,
    UNKNOWN,
    WRITES,
    host_of,
    may_be_run_by_name,
)

EFFECT_WORDS = {
    "reads": gettext_noop("reads"),
    "searches": gettext_noop("reads files it does not name"),
    "writes": gettext_noop("writes"),
    "deletes": gettext_noop("deletes"),
    "sends": gettext_noop("uses the network"),
    "pushes": gettext_noop("pushes or publishes"),
    "installs": gettext_noop("installs"),
    "executes": gettext_noop("runs code that is not seen here"),
    "outside": gettext_noop("outside of the working directory"),
    "credentials": gettext_noop("touches credentials"),
    "client_settings": gettext_noop("touches settings of the client"),
    "git": gettext_noop("touches git's own files or hooks"),
    "ci": gettext_noop("touches files of CI"),
    "unknown": gettext_noop("cannot be told"),
}
"""Effects in words for reviewers."""
AND_MORE = gettext_noop("%(effects)s, and more that cannot be told")
MAX_FACTS = 2000
"""Maximum values of a kind, for rules and pages; with more, a call is not understood."""


def effects_in_words(effects: Sequence[str], say: Callable[[str], str] = str) -> str:
    """Return effects as a phrase for reviewers. What is unknown comes last, as more than what is said.

    `say` translates. Previews are compared, so they are in one language.
    """
    known = ", ".join(say(EFFECT_WORDS[effect]) for effect in effects if effect != UNKNOWN)
    if UNKNOWN not in effects:
        return known
    return say(AND_MORE) % {"effects": known} if known else say(EFFECT_WORDS[UNKNOWN])


@dataclass(frozen=True, slots=True)
class DerivedFacts:
    """Facts of one call; each tuple is without repetition, effects are in the order of `commands.EFFECTS`.

    `paths` are absolute, with `..` resolved against the working directory that the client claims; what begins with `~`
    stays so. `understood` is True if every part of the call is known entirely: only then may a rule that allows fit.
    """

    programs: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    understood: bool = False
    is_plain: bool = False
    """True if every field of the input is known, and a command starts in the working directory."""

    @property
    def effects_in_words(self) -> str:
        return effects_in_words(self.effects, gettext)


NOT_UNDERSTOOD = DerivedFacts(effects=(UNKNOWN,))
"""Facts of a call of a tool that is not known here: it may do anything."""


def derived_facts(client: str, tool: str, input: Mapping[str, Any], cwd: str) -> DerivedFacts | None:
    """Return the facts of a call; None for a tool that is not known here. `tool` is the client's own name of it.

    Never raises, whatever the input.
    """
    found = read_input(client, tool, input)
    if found is None:
        return None
    return facts_of(found, cwd)


DIRECTORY_OF_MODEL = frozenset({("codex", "Bash")})
"""Clients and tools whose working directory is what the model has chosen for the call: a path inside may be anywhere.

Read from Codex 0.171.0: the `workdir` of a command is the `cwd` of its hook.
"""


def facts_finder(
    client: str, client_tool: str, input: Mapping[str, Any], cwd: str
) -> Callable[[], DerivedFacts] | None:
    """Return a function that derives the facts once, when a policy asks for them; None for a call that runs here.

    `client` is the name of the client, and `client_tool` its own name of the tool, empty for other tools. A tool that
    is not known may do anything.
    """

    def find() -> DerivedFacts:
        facts = derived_facts(client, client_tool, input, cwd) or NOT_UNDERSTOOD
        if (client, client_tool) not in DIRECTORY_OF_MODEL:
            return facts
        return replace(facts, effects=ordered({*facts.effects, UNKNOWN}), understood=False, is_plain=False)

    return cache(find) if client_tool else None


def facts_of(client_input: ReadInput, cwd: str) -> DerivedFacts:
    facts = _DERIVATIONS[client_input.tool.kind](client_input, cwd)
    directory = client_input.path("directory")
    starts_inside = not directory or is_inside(resolve_path(directory, cwd), cwd)
    is_plain = not client_input.doubts and starts_inside and is_absolute_directory(cwd)
    return replace(facts, is_plain=is_plain)


def analysis_of(client_input: ReadInput, cwd: str) -> Analysis:
    """Return the analysis of a command; its working directory may be given beside it."""
    command = client_input.values.get("command", "")
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        analysis = analyse_command(command, cwd, client_input.path("directory"))
    else:
        analysis = analyse_command(client_input.text("command"), cwd, client_input.path("directory"))
    return Analysis(analysis.parts, unique((*analysis.doubts, *client_input.doubts)))


def _of_command(client_input: ReadInput, cwd: str) -> DerivedFacts:
    analysis = analysis_of(client_input, cwd)
    parts, effects = analysis.parts, set(analysis.effects)
    if directory := client_input.path("directory"):
        effects |= effects_of_path(resolve_path(directory, cwd), cwd)
    return _facts(
        effects,
        programs=[program for part in parts for program in part.programs],
        paths=[path for part in parts for path in part.paths],
        hosts=[host for part in parts for host in part.hosts],
        understood=analysis.is_understood,
    )


def _facts(
    effects: Iterable[str],
    *,
    understood: bool,
    programs: Sequence[str] = (),
    paths: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> DerivedFacts:
    values = [unique(programs), unique(paths), unique(hosts)]
    understood = understood and max(map(len, values)) <= MAX_FACTS
    found = set(effects) or {READS}
    found |= set() if understood else {UNKNOWN}
    shown = [each[:MAX_FACTS] for each in values]
    return DerivedFacts(shown[0], ordered(found), shown[1], shown[2], understood)


def _of_paths(client_input: ReadInput, cwd: str, paths: Sequence[str], *effects: str) -> DerivedFacts:
    resolved = [resolve_path(path, cwd) for path in paths]
    touched = {effect for path in resolved for effect in effects_of_path(path, cwd)}
    if WRITES in effects and any(map(may_be_run_by_name, resolved)):
        touched.add(EXECUTES)
    understood = is_absolute_directory(cwd) and bool(paths) and not client_input.doubts
    return _facts({*effects, *touched}, paths=resolved, understood=understood)


def _of_one_path(*effects: str) -> Callable[[ReadInput, str], DerivedFacts]:
    def derive(client_input: ReadInput, cwd: str) -> DerivedFacts:
        path = client_input.path()
        client_input.require_texts("content", "old", "new")
        return _of_paths(client_input, cwd, [path] if path else [], *effects)

    return derive


def _of_list(client_input: ReadInput, cwd: str) -> DerivedFacts:
    return _of_paths(client_input, cwd, [client_input.path() or "."], READS)


def _of_glob(client_input: ReadInput, cwd: str) -> DerivedFacts:
    """Names of files are listed; a pattern may lead out of the directory by `..`, `~` or its alternatives."""
    base, pattern = client_input.path() or ".", client_input.path("pattern")
    if ".." in pattern or re.search(r"[{,][/~]", pattern) or not pattern:
        client_input.doubts.append("The pattern may lead elsewhere.")
    beside = pattern if pattern.startswith(("/", "~")) else f"{base}/{pattern}"
    return _of_paths(client_input, cwd, [base, beside], READS)


def _of_search(client_input: ReadInput, cwd: str) -> DerivedFacts:
    """Content of files that the call does not name is read, unless it names one of source code, or their ending."""
    base, pattern = client_input.path() or ".", client_input.text("glob")
    client_input.require_texts("pattern")
    is_narrow = is_source_file(base) or (
        re.fullmatch(r"[\w*./-]*\*\.\w+", pattern) is not None and is_source_file(f"x.{pattern.rpartition('.')[2]}")
    )
    if ".." in pattern or pattern.startswith(("/", "~")):
        client_input.doubts.append("The pattern may lead elsewhere.")
    return _of_paths(client_input, cwd, [base], READS, *(() if is_narrow else (SEARCHES,)))


def _of_edits(client_input: ReadInput, cwd: str) -> DerivedFacts:
    paths = unique(change.path for change in edits_of(client_input) if change.path)
    return _of_paths(client_input, cwd, paths, WRITES)


def _of_patch(client_input: ReadInput, cwd: str) -> DerivedFacts:
    changes = changes_of_patch(client_input)
    effects = {WRITES} | ({DELETES} if any(each.action in ("delete", "move") for each in changes) else set())
    return _of_paths(client_input, cwd, [each.path for each in changes], *effects)


def _of_fetch(client_input: ReadInput, cwd: str) -> DerivedFacts:
    url = client_input.text("url")
    host = host_of(url)
    plain = re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?([/?#][^\s\\]*)?", url, re.I)
    return _facts({SENDS}, hosts=[host] if host else [], understood=bool(plain and host) and not client_input.doubts)


def _of_fetch_prompt(client_input: ReadInput, cwd: str) -> DerivedFacts:
    """The addresses stand in a text for a model, which may choose others."""
    text = f"{client_input.text('prompt')} {client_input.text('url')}"[:100_000]
    hosts = [host for url in re.findall(r"https?://[^\s'\"<>)]+", text) if (host := host_of(url))]
    return _facts({SENDS}, hosts=hosts, understood=False)


def _of_web_search(client_input: ReadInput, cwd: str) -> DerivedFacts:
    client_input.require_texts("query")
    return _facts({SENDS}, understood=not client_input.doubts)


def _of_notes(client_input: ReadInput, cwd: str) -> DerivedFacts:
    """Notes that the client keeps for itself, such as a to-do list: no file is touched."""
    return _facts({READS}, understood=not client_input.doubts)


_DERIVATIONS: Mapping[str, Callable[[ReadInput, str], DerivedFacts]] = {
    "command": _of_command,
    "read": _of_one_path(READS),
    "write": _of_one_path(WRITES),
    "edit": _of_one_path(WRITES),
    "notebook": _of_one_path(WRITES),
    "list": _of_list,
    "glob": _of_glob,
    "search": _of_search,
    "edits": _of_edits,
    "patch": _of_patch,
    "fetch": _of_fetch,
    "fetch_prompt": _of_fetch_prompt,
    "web_search": _of_web_search,
    "notes": _of_notes,
}
