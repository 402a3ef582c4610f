"""Template tags all pages share: icons, badges, times, text that hides nothing, diffs. All is escaped."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.template.defaultfilters import truncatechars
from django.utils.html import escape, format_html, format_html_join

from catalog.access.roles import user_display_name
from catalog.calls.statistics import Usage
from catalog.core import clock
from catalog.secrets import placeholders
from catalog.text.diff import DiffRow, diff_texts, side_by_side, truncate_rows
from catalog.text.safety import InspectedPart, count_hidden, inspect_text, is_plain_ascii, split_hidden
from catalog.ui import labels
from catalog.ui.charts import spark_path

register = template.Library()


@register.simple_tag
def icon(name: str, classes: str = "") -> str:
    """Draw an icon of the sprite; `classes` adds a size (i-s) or a status hue (sti run)."""
    return format_html('<svg class="i {}" aria-hidden="true"><use href="#i-{}"/></svg>', classes, name)


@register.simple_tag
def safety(level: str) -> str:
    """Draw the badge of a safety level."""
    word = labels.safety_badge(level)
    return format_html('<span class="lvl {}">{}{}</span>', word.hue, icon(word.icon), word.label)


@register.simple_tag
def reversibility(value: str) -> str:
    """Draw what it costs to take a call back: icon and word."""
    word = labels.reversibility_badge(value)
    return format_html('<span class="risk {}">{}{}</span>', word.hue, icon(word.icon), word.label)


@register.simple_tag
def status(value: str, waiting_for: str | None = None, label: str = "") -> str:
    """Draw the pill of a status; `label` replaces the word, never the icon and the hue."""
    word = labels.status_badge(value, waiting_for)
    drawn = icon(word.icon, "spin" if word.icon == "run" else "")
    return format_html('<span class="st {}">{}{}</span>', word.hue, drawn, label or word.label)


@register.simple_tag
def status_icon(value: str, waiting_for: str | None = None) -> str:
    """Draw only the icon of a status; the page must say the word beside it."""
    word = labels.status_badge(value, waiting_for)
    return icon(word.icon, f"sti {word.hue}{' spin' if word.icon == 'run' else ''}")


@register.simple_tag
def status_label(value: str, waiting_for: str | None = None) -> str:
    """Say a status in words."""
    return labels.status_badge(value, waiting_for).label


@register.simple_tag
def status_hue(value: str, waiting_for: str | None = None) -> str:
    """Name the hue class of a status: run, ok, human, danger, warn or idle."""
    return labels.status_badge(value, waiting_for).hue


@register.simple_tag
def copyable(value: str) -> str:
    """Draw an id that a press copies; the middle is cut, never the end."""
    short = value if len(value) <= 16 else f"{value[:10]}…{value[-4:]}"
    return format_html(
        '<button class="id" type="button" data-copy="{0}" title="{0}"><span class="sr">Copy </span>{1}{2}</button>',
        value,
        revealed(short),
        icon("copy"),
    )


@register.simple_tag
def avatar(name: str, kind: str = "person") -> str:
    """Draw initials: round for a person, square for a program."""
    shape = "av" if kind == "person" else "av bot"
    return format_html('<b class="{}" aria-hidden="true">{}</b>', shape, labels.name_initials(name))


@register.filter
def initials(name: str) -> str:
    """Cut a name to two letters."""
    return labels.name_initials(name)


@register.filter
def relative_time(moment: datetime | None) -> str:
    """Say how long ago, with the exact time in the tooltip; clock.js keeps it true."""
    return _time(moment, labels.format_time_ago(moment), "data-ago") if moment else "never"


@register.filter
def time_left(moment: datetime | None) -> str:
    """Say how much time is left, with the deadline in the tooltip; clock.js keeps it true."""
    return _time(moment, labels.format_time_left(moment), "data-left", labels.time_left_hue(moment)) if moment else ""


@register.filter
def clock_time(moment: datetime | None) -> str:
    """Say the time to the second, in UTC, with the full date in the tooltip."""
    return _time(moment, f"{moment.astimezone(UTC):%H:%M:%S}", "data-at") if moment else ""


def _time(moment: datetime, said: str, mark: str, hue: str = "") -> str:
    exact = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}" {}{}>{}</time>',
        f"{exact:%Y-%m-%dT%H:%M:%S}Z",
        f"{exact:%Y-%m-%d %H:%M:%S} UTC",
        mark,
        format_html(' class="{}"', hue) if hue else "",
        said,
    )


@register.filter
def duration_ms(milliseconds: float | None) -> str:
    """Say a duration given in milliseconds."""
    return "" if milliseconds is None else labels.format_duration(milliseconds)


@register.filter
def bytes_size(count: int | None) -> str:
    """Say a number of bytes."""
    return "" if count is None else labels.format_byte_size(count)


@register.filter
def is_ahead(moment: datetime | None) -> bool:
    """Say whether a moment is still to come."""
    return moment is not None and moment > clock.now()


@register.filter
def person_name(user: Any) -> str:
    """Name a person; empty for nobody."""
    return user_display_name(user) if user is not None else ""


@register.filter
def shortened(text: object, most: int) -> str:
    """Cut a text as `truncatechars` does, which looks long even at one that is short: most are, on pages of many."""
    whole = str(text)
    return whole if len(whole) <= most and whole.isascii() else truncatechars(whole, most)


@register.filter
def revealed(text: object) -> str:
    """Escape text; spell out what does not show, count stretches of nothing, mark words that imitate others."""
    whole = str(text)
    if is_plain_ascii(whole):
        return escape(whole)
    return format_html_join("", "{}", ((_render_part(part),) for part in inspect_text(whole)))


def _render_part(part: InspectedPart) -> str:
    if part.kind == "plain":
        return part.text
    note = format_html('<span class="hidden-char">{}</span>', part.note)
    if part.kind == "odd":
        return format_html('<span class="odd-word">{}</span>{}', _spell_out(part.text), note)
    return format_html("{}{}", note, "\n") if part.kind == "nothing" and "\n" in part.text else note


def _spell_out(word: str) -> str:
    pieces = ((piece.hidden, piece.text) for piece in split_hidden(word))
    spans = (format_html('<span class="hidden-char">{}</span>', text) if hidden else text for hidden, text in pieces)
    return format_html_join("", "{}", ((span,) for span in spans))


@register.filter
def in_words(text: object) -> str:
    """Say in words where a secret stood in what a tool says; pass it on to `revealed`."""
    return placeholders.describe_placeholders(str(text))


@register.filter
def locked(text: object) -> str:
    """Escape what a tool says as `revealed` does; where a secret stood is a lock, so that no words imitate it."""
    return format_html_join(
        "", "{}{}", ((revealed(said), _lock(name)) for said, name in placeholders.split_at_placeholders(str(text)))
    )


def _lock(name: str) -> str:
    return format_html('<span class="kept">{}secret {}</span>', icon("lock", "i-s"), name) if name else ""


@register.filter
def hidden_count(text: object) -> int:
    """Count the characters of a text, or of a JSON value's text, that do not show."""
    return count_hidden(text if isinstance(text, str) else pretty_json(text))


@register.filter
def pretty_json(value: Any) -> str:
    """Write a JSON value with two spaces of indent; pass it on to `revealed` where an agent wrote it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def coloured_json(value: Any) -> str:
    """Draw a JSON value of ours in colours; the text is that of `pretty_json`."""
    pieces = (_coloured_token(match.lastgroup, match[0]) for match in _TOKENS.finditer(pretty_json(value)))
    return format_html_join("", "{}", ((piece,) for piece in pieces))


@register.filter
def document_text(document: Any) -> str:
    """Draw what a provider is sent: text as it is, JSON in colours; what does not show is spelled out in text only."""
    return revealed(document) if isinstance(document, str) else coloured_json(document)


@register.filter
def at(members: Mapping[str, Any] | None, name: str) -> Any:
    """Return a member by a name that is known only here; empty when there is none."""
    return members.get(name, "") if isinstance(members, Mapping) else ""


@register.filter
def concat(text: str, more: object) -> str:
    """Return one text behind another; `add` would count where both are numbers."""
    return f"{text}{more}"


@register.filter
def grouped(number: int) -> str:
    """Write a count as people do: 10,020."""
    return f"{number:,}"


@register.filter
def percent(part: float | None) -> str:
    """Say a part of 1 in hundredths; None is a dash."""
    return "-" if part is None else f"{100 * part:.1f}".removesuffix(".0") + "%"


_TOKENS = re.compile(
    r'(?P<k>"(?:[^"\\]|\\.)*"(?=:))|(?P<s>"(?:[^"\\]|\\.)*")|(?P<n>\btrue\b|\bfalse\b|\bnull\b|-?\d[\d.eE+-]*)|[^"\w-]+|.'
)


def _coloured_token(kind: str | None, text: str) -> str:
    return format_html('<span class="{}">{}</span>', kind, text) if kind else text


@register.filter
def spark(usage: Usage) -> str:
    """Return the path of a line through the calls of each day."""
    return spark_path(usage)


register.filter("drawn", truncate_rows)
register.filter("beside", side_by_side)


@register.filter
def marked(row: DiffRow | None) -> str:
    """Return a line of a diff with its changes marked, and a note if it lacks its newline; white space shows there."""
    if not row:
        return ""
    tag = {"add": "ins", "del": "del"}.get(row.kind)
    parts = (
        format_html("<{0}>{1}</{0}>", tag, revealed(part.text)) if tag and part.changed else revealed(part.text)
        for part in row.segments
    )
    note = format_html(' <span class="hidden-char">no newline at the end</span>') if row.lacks_newline else ""
    return format_html("{}{}", format_html_join("", "{}", ((part,) for part in parts)), note)


@register.filter
def in_textarea(text: object) -> str:
    """Return a text to stand right after the start tag of a textarea, where HTML drops one newline."""
    return f"\n{text}"


@register.filter
def skipped_lines(row: DiffRow) -> str:
    """Return the text of a row that stands for lines which are not drawn."""
    if row.kind == "gap":
        return f"{row.skipped} unchanged lines"
    return format_html(
        "<strong>{} lines, {}, are too many to be drawn here. Changed lines are among them.</strong>",
        row.skipped,
        bytes_size(row.size),
    )


@register.inclusion_tag("catalog/_diff.html")
def diff(before: str | None, after: str | None, label: str = "content") -> dict[str, object]:
    """Draw what changes between two texts; None means no file."""
    return {"change": diff_texts(before, after), "label": label}
