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
from approvals.requests.lifecycle import RequestChange, find_request_change
from catalog.access.roles import user_display_name
from catalog.secrets.placeholders import describe_placeholders
from catalog.text import diff
from catalog.text.safety import EncodedRun, approval_claims, confusable_words, count_hidden, encoded_runs, inspect_text

if TYPE_CHECKING:
    from approvals.requests.privacy import SecretField


LONG_ARGUMENT_BYTES = 1024
"""From this size on (bytes) a value is shown with its size and lines, so that nobody takes a part for the whole."""


# What stands for a secret: in a text only as intake refuses it to everyone, in JSON as `as_text` writes it. Whatever
# else looks like it is what an agent wrote, and is shown as that.
_SECRET_IN_TEXT = re.compile(r'\{"\$secret": ?"([\w.-]{1,80})"\}')
_SECRET_IN_JSON = re.compile(r'\{\s+"\$secret": "([\w.-]{1,80})"\s+\}|\{\\"\$secret\\": ?\\"([\w.-]{1,80})\\"\}')


@dataclass(frozen=True)
class ArgumentRow:
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
        return self.size >= LONG_ARGUMENT_BYTES

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in pieces, each with the name of the secret that stood after it; empty after the last."""
        found, end = [], 0
        for mark in (_SECRET_IN_JSON if self.is_json else _SECRET_IN_TEXT).finditer(self.text):
            found.append((self.text[end : mark.start()], mark[mark.lastindex or 0]))
            end = mark.end()
        return [*found, (self.text[end:], "")]

    @cached_property
    def blank_stretches(self) -> list[str]:
        """The first long stretches of nothing in it, each counted: a change draws empty lines one by one."""
        return [part.note for part in inspect_text(self.text) if part.kind == "nothing"][:3]

    @cached_property
    def opaque(self) -> list[EncodedRun]:
        """What of it nobody can read."""
        return encoded_runs(self.text)


@dataclass(frozen=True, slots=True)
class ArgumentWarnings:
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


def argument_warnings(arguments: Mapping[str, Any], reason: str) -> ArgumentWarnings:
    """Return what is to be said about the arguments and the reason of a call."""
    texts = [*_texts_in(arguments), reason]
    hidden, odd = sum(map(count_hidden, texts)), sum(len(confusable_words(text)) for text in texts)
    return ArgumentWarnings(hidden, odd, approval_claims("\n".join(texts)))


def render_argument(name: str, value: Any, **more: Any) -> ArgumentRow:
    """Return an argument with the text of its value, and with more fields of it."""
    return ArgumentRow(name, value_as_display_text(value), is_json=not isinstance(value, str), **more)


def value_as_display_text(value: Any) -> str:
    """Return a value as a person reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def arguments_as_lines(arguments: Mapping[str, Any]) -> str:
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
class RenderedRequestChange:
    """Why a request was opened anew; `rows` compares what was asked and shown before with what is now."""

    change: RequestChange

    @property
    def rows(self) -> diff.TextDiff | None:
        """Both sides, line by line; None where both read the same."""
        rows = diff.diff_texts(_round_as_lines(self.change.before), _round_as_lines(self.change.after))
        return rows if rows.added or rows.removed else None


@dataclass(frozen=True, slots=True)
class RenderedEdits:
    """Arguments as reviewers left them: by whom, when last, and `rows` that compare them with what was asked for."""

    who: str
    at: datetime
    rows: diff.TextDiff


def render_request_change(request: ApprovalRequest) -> RenderedRequestChange | None:
    """Return what changed since the request that this one replaces was open; None where nothing did; two queries."""
    change = find_request_change(request)
    return RenderedRequestChange(change) if change else None


def change_since_seen(request: ApprovalRequest, seen_digest: str) -> diff.TextDiff | None:
    """Return what changed since somebody looked at a request, by the digest that they saw; None when it was not its."""
    rounds = {each.digest: each for each in request.rounds.all()}
    seen, now = rounds.get(seen_digest), rounds.get(request.digest)
    return diff.diff_texts(_round_as_lines(seen), _round_as_lines(now)) if seen and now and seen != now else None


def render_edits(request: ApprovalRequest) -> RenderedEdits | None:
    """Return what reviewers changed of the arguments since they were asked for; None where nobody did; no query."""
    rounds = sorted(request.rounds.all(), key=lambda each: each.number)
    first, now = rounds[0], next(each for each in rounds if each.number == request.round_number)
    if first.arguments == now.arguments:
        return None
    editors = dict.fromkeys(
        user_display_name(each.editor) for each in rounds if each.editor and each.number <= now.number
    )
    rows = diff.diff_texts(arguments_as_lines(first.arguments_json), arguments_as_lines(now.arguments_json))
    return RenderedEdits(" and ".join(editors), now.created_at, rows)


def effect_lines(preview: Mapping[str, Any] | None) -> str:
    """Return what a tool shows of its effect as lines to compare: what it says, what is there, what it makes of it."""
    shown = preview or {}
    rows = shown.get("rows") or () if shown.get("kind") == "rows" else ()
    told = {
        "(what the tool says)": shown.get("summary"),
        "(what is there)": shown.get("before"),
        "(what it makes of it)": shown.get("after"),
    }
    lines = [f"{name}: {describe_placeholders(value_as_display_text(text))}\n" for name, text in told.items() if text]
    return "".join([*lines, *(f"(row) {describe_placeholders(json.dumps(row, ensure_ascii=False))}\n" for row in rows)])


def _round_as_lines(round_: Round) -> str:
    return arguments_as_lines(round_.arguments_json) + effect_lines(round_.preview_json)
