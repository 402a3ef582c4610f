"""Arguments of a call as shown to reviewers, and changes to them since the request was opened.

Texts from agents are passed on unchanged; the templates escape them and spell out hidden characters.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext

from approvals.models import ApprovalRequest, Round
from approvals.requests.lifecycle import RequestChange, find_request_change
from catalog.access.roles import user_display_name
from catalog.schemas.description import in_schema_order
from catalog.secrets.placeholders import describe_placeholders
from catalog.text import diff
from catalog.text.deceptive_text import EncodedRun, encoded_runs, inspect_text

if TYPE_CHECKING:
    from approvals.requests.privacy import SecretField


LONG_ARGUMENT_BYTES = 1024
"""From this size on (bytes), size and line count are shown so that nobody mistakes the visible part for all of it."""


# Placeholders of secrets: in text in the form that intake refuses from everyone, in JSON as `value_as_display_text`
# writes them. Any other similar text was written by an agent and is shown unchanged.
_SECRET_IN_TEXT = re.compile(r'\{"\$secret": ?"([\w.-]{1,80})"\}')
_SECRET_IN_JSON = re.compile(r'\{\s+"\$secret": "([\w.-]{1,80})"\s+\}|\{\\"\$secret\\": ?\\"([\w.-]{1,80})\\"\}')


@dataclass(frozen=True)
class ArgumentRow:
    """One argument as the call would use it; `is_json` is True if `text` is JSON of a value that is not a string.

    `is_before`, `is_after`: the text is the old or new side of the previewed change. `secret`: set if the value is a
    secret. `is_default`: the requester left the argument out. `note`: the defaults inside it, or why it is not passed.
    """

    name: str
    text: str
    is_json: bool = False
    secret: "SecretField | None" = None
    is_before: bool = False
    is_after: bool = False
    is_default: bool = False
    note: str = ""

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.text.encode(errors="replace"))

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1

    @property
    def is_long(self) -> bool:
        """True if size and line count are shown."""
        return self.size >= LONG_ARGUMENT_BYTES

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text split at secrets, as pairs of a text and the name of the secret after it; the last name is empty."""
        found, end = [], 0
        for mark in (_SECRET_IN_JSON if self.is_json else _SECRET_IN_TEXT).finditer(self.text):
            found.append((self.text[end : mark.start()], mark[mark.lastindex or 0]))
            end = mark.end()
        return [*found, (self.text[end:], "")]

    @cached_property
    def blank_stretches(self) -> list[str]:
        """Notes on the first three long runs of blank lines or spaces, which could push text out of view."""
        return [part.note for part in inspect_text(self.text) if part.kind == "nothing"][:3]

    @cached_property
    def opaque(self) -> list[EncodedRun]:
        """Encoded parts, which no reviewer can read."""
        return encoded_runs(self.text)


def render_argument(name: str, value: Any, **more: Any) -> ArgumentRow:
    """Return an `ArgumentRow` for a value; `more` are further fields."""
    return ArgumentRow(name, value_as_display_text(value), is_json=not isinstance(value, str), **more)


def value_as_display_text(value: Any) -> str:
    """Return a value for display: strings unchanged, anything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def arguments_as_lines(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return arguments as lines for a diff, in the order of the schema; multi-line strings keep their lines."""
    parts = []
    for name, value in in_schema_order(arguments, schema).items():
        if isinstance(value, str) and "\n" in value:
            parts.append("\n".join([f"{name}:", *(f"    {line}" for line in value.split("\n"))]))
        else:
            parts.append(f"{name}: {json.dumps(value, indent=2, ensure_ascii=False)}")
    return "".join(f"{part}\n" for part in parts)


@dataclass(frozen=True, slots=True)
class RenderedRequestChange:
    change: RequestChange

    @property
    def rows(self) -> diff.TextDiff | None:
        """Line-by-line comparison; None if both sides are equal."""
        schema = self.change.after.request.tool_version.input_schema
        rows = diff.diff_texts(*(_round_as_lines(each, schema) for each in (self.change.before, self.change.after)))
        return rows if rows.added or rows.removed else None


@dataclass(frozen=True, slots=True)
class RenderedEdits:
    who: str
    at: datetime
    rows: diff.TextDiff


def render_request_change(request: ApprovalRequest) -> RenderedRequestChange | None:
    """Return the changes since the request that this one replaced; None if there are none. Runs two queries."""
    change = find_request_change(request)
    return RenderedRequestChange(change) if change else None


def change_since_seen(request: ApprovalRequest, seen_digest: str) -> diff.TextDiff | None:
    """Return the changes since the round with this digest; None if no round has it or nothing has changed."""
    rounds = {each.digest: each for each in request.rounds.all()}
    seen, now = rounds.get(seen_digest), rounds.get(request.digest)
    if seen is None or now is None or seen == now:
        return None
    schema = request.tool_version.input_schema
    return diff.diff_texts(_round_as_lines(seen, schema), _round_as_lines(now, schema))


def render_edits(request: ApprovalRequest) -> RenderedEdits | None:
    """Return the edits by reviewers; None if there are none. Runs no query."""
    rounds = sorted(request.rounds.all(), key=lambda each: each.number)
    first, now = rounds[0], next(each for each in rounds if each.number == request.round_number)
    if first.arguments == now.arguments:
        return None
    editors = dict.fromkeys(
        user_display_name(each.editor) for each in rounds if each.editor and each.number <= now.number
    )
    schema = request.tool_version.input_schema
    was, becomes = (arguments_as_lines(each.arguments_json, schema) for each in (first, now))
    rows = diff.diff_texts(was, becomes)
    return RenderedEdits(" and ".join(editors), now.created_at, rows)


def effect_lines(preview: Mapping[str, Any] | None) -> str:
    """Return a preview as lines for a diff: summary, text before, text after, and rows with a line for each column."""
    shown = preview or {}
    rows = shown.get("rows") or () if shown.get("kind") == "rows" else ()
    texts = {
        gettext("(summary)"): shown.get("summary"),
        gettext("(before)"): shown.get("before"),
        gettext("(after)"): shown.get("after"),
    }
    lines = [f"{name}: {describe_placeholders(value_as_display_text(text))}\n" for name, text in texts.items() if text]
    return "".join([*lines, *map(_row_as_lines, rows)])


def _row_as_lines(row: Mapping[str, Any]) -> str:
    """Return a row as the preview shows it: its first column as head, and below it the others that have a value."""
    shown = [
        (column, describe_placeholders(value_as_display_text(value))) for column, value in row.items() if value != ""
    ]
    return "".join(
        f"    {column}: {text}\n" if number else f"{column}: {text}\n" for number, (column, text) in enumerate(shown)
    )


def _round_as_lines(round_: Round, schema: Mapping[str, Any]) -> str:
    return arguments_as_lines(round_.arguments_json, schema) + effect_lines(round_.preview_json)
