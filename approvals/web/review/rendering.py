"""Arguments of a call as reviewers read them, and the changes since the request was opened.

Each argument is shown in full, with its size, and with a warning for each part that cannot be read. Changes are those
from the request that this one replaces, and those that reviewers made. Texts of agents are passed on unchanged; the
templates escape them and spell out hidden characters.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from approvals.models import ApprovalRequest, Round
from approvals.requests.lifecycle import Change, change_before
from catalog.access.roles import name_of
from catalog.secrets.placeholders import in_words
from catalog.text import diff
from catalog.text.safety import Opaque, claims_in, count_hidden, odd_words, opaque_in, truth_of

if TYPE_CHECKING:
    from approvals.requests.privacy import SecretField


LONG = 1024
"""From this size on (bytes) a value is shown with its size and lines, so that nobody takes a part for the whole."""


# What stands for a secret: in a text only as intake refuses it to everyone, in JSON as `as_text` writes it. Whatever
# else looks like it is what an agent wrote, and is shown as that.
_IN_TEXT = re.compile(r'\{"\$secret": ?"([\w.-]{1,80})"\}')
_IN_JSON = re.compile(r'\{\s+"\$secret": "([\w.-]{1,80})"\s+\}|\{\\"\$secret\\": ?\\"([\w.-]{1,80})\\"\}')


@dataclass(frozen=True)
class Argument:
    """One argument as it would be used; `is_json` tells its text from one that is JSON itself.

    `is_before`, `is_after`: the change below begins, ends with its text. `secret`: it is one as a whole.
    """

    name: str
    text: str
    is_json: bool = False
    secret: "SecretField | None" = None
    is_before: bool = False
    is_after: bool = False
    is_default: bool = False

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.text.encode(errors="replace"))

    @property
    def lines(self) -> int:
        """Lines of the text."""
        return self.text.count("\n") + 1

    @property
    def is_long(self) -> bool:
        """Say whether the size is worth saying."""
        return self.size >= LONG

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in pieces, each with the name of the secret that stood after it; empty after the last."""
        found, end = [], 0
        for mark in (_IN_JSON if self.is_json else _IN_TEXT).finditer(self.text):
            found.append((self.text[end : mark.start()], mark[mark.lastindex or 0]))
            end = mark.end()
        return [*found, (self.text[end:], "")]

    @cached_property
    def nothings(self) -> list[str]:
        """The first long stretches of nothing in it, each counted: a change draws empty lines one by one."""
        return [part.note for part in truth_of(self.text) if part.kind == "nothing"][:3]

    @cached_property
    def opaque(self) -> list[Opaque]:
        """What of it nobody can read."""
        return opaque_in(self.text)


@dataclass(frozen=True, slots=True)
class Warnings:
    """What is to be said before anybody reads what an agent wrote.

    `hidden` counts characters that do not show, `odd` words that may be read as others; `claims` are phrases that say
    what only Toolgate could know.
    """

    hidden: int
    odd: int
    claims: list[str]

    @property
    def any(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.hidden or self.odd or self.claims)


def warnings_about(arguments: Mapping[str, Any], reason: str) -> Warnings:
    """Return what is to be said about the arguments and the reason of a call."""
    texts = [*_texts_in(arguments), reason]
    hidden, odd = sum(map(count_hidden, texts)), sum(len(odd_words(text)) for text in texts)
    return Warnings(hidden, odd, claims_in("\n".join(texts)))


def argument(name: str, value: Any, **more: Any) -> Argument:
    """Return an argument with the text of its value, and with more fields of it."""
    return Argument(name, as_text(value), is_json=not isinstance(value, str), **more)


def as_text(value: Any) -> str:
    """Return a value as a person reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def as_lines(arguments: Mapping[str, Any]) -> str:
    """Return arguments as lines to compare, texts as they are: a changed line of a long text is one changed line."""
    parts = []
    for name, value in sorted(arguments.items()):
        if isinstance(value, str) and "\n" in value:
            parts.append("\n".join([f"{name}:", *(f"    {line}" for line in value.split("\n"))]))
        else:
            parts.append(f"{name}: {json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)}")
    return "".join(f"{part}\n" for part in parts)


def _texts_in(value: Any) -> list[str]:
    """Return every text and name inside a JSON value."""
    if isinstance(value, Mapping):
        return [text for name, inner in value.items() for text in (name, *_texts_in(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts_in(inner)]
    return [value] if isinstance(value, str) else []


@dataclass(frozen=True, slots=True)
class Drifted:
    """Why a request was opened anew; `rows` compares what was asked and shown before with what is now."""

    change: Change

    @property
    def rows(self) -> diff.Change | None:
        """Both sides, line by line; None where both read the same."""
        rows = diff.diff_texts(_as_lines(self.change.before), _as_lines(self.change.after))
        return rows if rows.added or rows.removed else None


@dataclass(frozen=True, slots=True)
class Revised:
    """Arguments as reviewers left them: by whom, when last, and `rows` that compare them with what was asked for."""

    who: str
    at: datetime
    rows: diff.Change


def drifted(request: ApprovalRequest) -> Drifted | None:
    """Return what changed since the request that this one replaces was open; None where nothing did; two queries."""
    change = change_before(request)
    return Drifted(change) if change else None


def seen_before(request: ApprovalRequest, seen_digest: str) -> diff.Change | None:
    """Return what changed since somebody looked at a request, by the digest that they saw; None when it was not its."""
    rounds = {each.digest: each for each in request.rounds.all()}
    seen, now = rounds.get(seen_digest), rounds.get(request.digest)
    return diff.diff_texts(_as_lines(seen), _as_lines(now)) if seen and now and seen != now else None


def revised(request: ApprovalRequest) -> Revised | None:
    """Return what reviewers changed of the arguments since they were asked for; None where nobody did; no query."""
    rounds = sorted(request.rounds.all(), key=lambda each: each.number)
    first, now = rounds[0], next(each for each in rounds if each.number == request.round_number)
    if first.arguments == now.arguments:
        return None
    editors = dict.fromkeys(name_of(each.editor) for each in rounds if each.editor and each.number <= now.number)
    rows = diff.diff_texts(as_lines(first.arguments_json), as_lines(now.arguments_json))
    return Revised(" and ".join(editors), now.created_at, rows)


def effect_lines(preview: Mapping[str, Any] | None) -> str:
    """Return what a tool shows of its effect as lines to compare: what it says, what is there, what it makes of it."""
    shown = preview or {}
    rows = shown.get("rows") or () if shown.get("kind") == "rows" else ()
    told = {
        "(what the tool says)": shown.get("summary"),
        "(what is there)": shown.get("before"),
        "(what it makes of it)": shown.get("after"),
    }
    lines = [f"{name}: {in_words(as_text(text))}\n" for name, text in told.items() if text]
    return "".join([*lines, *(f"(row) {in_words(json.dumps(row, ensure_ascii=False))}\n" for row in rows)])


def _as_lines(round_: Round) -> str:
    return as_lines(round_.arguments_json) + effect_lines(round_.preview_json)
