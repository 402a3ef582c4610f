"""Template tags shared by all pages: icons, badges, times, diffs, visible hidden characters. All output is escaped."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.template.defaultfilters import truncatechars
from django.utils.html import escape, format_html, format_html_join
from django.utils.translation import gettext as _

from catalog.access.roles import user_display_name
from catalog.calls.statistics import Usage
from catalog.client_tools.known_tools import client_title
from catalog.core import clock
from catalog.secrets import placeholders
from catalog.text import formats
from catalog.text.deceptive_text import InspectedPart, count_hidden, inspect_text, is_plain_ascii, split_hidden
from catalog.text.diff import DiffRow, diff_texts, side_by_side, truncate_rows
from catalog.ui import labels, toasts
from catalog.ui.charts import spark_path

register = template.Library()
register.filter(client_title)
register.filter(toasts.toast_button)


@register.simple_tag
def icon(name: str, classes: str = "") -> str:
    """Render an icon of the sprite; `classes` are CSS classes for a size (icon-small) or a hue (status-icon run)."""
    return format_html('<svg class="icon {}" aria-hidden="true"><use href="#i-{}"/></svg>', classes, name)


@register.simple_tag
def safety(level: str) -> str:
    word = labels.safety_badge(level)
    return format_html('<span class="level {}">{}{}</span>', word.hue, icon(word.icon), word.label)


@register.simple_tag
def reversibility(value: str) -> str:
    word = labels.reversibility_badge(value)
    return format_html('<span class="risk {}">{}{}</span>', word.hue, icon(word.icon), word.label)


@register.simple_tag
def status(value: str, waiting_for: str | None = None, label: str = "") -> str:
    """Render a status as a pill with icon and hue; `label` replaces its text."""
    word = labels.status_badge(value, waiting_for)
    drawn = icon(word.icon, "spin" if word.icon == "run" else "")
    return format_html('<span class="status {}">{}{}</span>', word.hue, drawn, label or word.label)


@register.simple_tag
def status_icon(value: str, waiting_for: str | None = None) -> str:
    """Render only the icon of a status. The page must show the status as text next to it."""
    word = labels.status_badge(value, waiting_for)
    return icon(word.icon, f"status-icon {word.hue}{' spin' if word.icon == 'run' else ''}")


@register.simple_tag
def status_label(value: str, waiting_for: str | None = None) -> str:
    return labels.status_badge(value, waiting_for).label


@register.simple_tag
def status_hue(value: str, waiting_for: str | None = None) -> str:
    """Return the CSS class of a status: run, ok, human, danger, warn or idle."""
    return labels.status_badge(value, waiting_for).hue


@register.simple_tag
def copyable(value: str) -> str:
    """Render an id that a click copies; a long id is shortened in the middle."""
    short = value if len(value) <= 16 else f"{value[:10]}…{value[-4:]}"
    return format_html(
        '<button class="id" type="button" data-copy="{0}" title="{0}">'
        '<span class="visually-hidden">{3} </span>{1}{2}</button>',
        value,
        revealed(short),
        icon("copy"),
        _("Copy"),
    )


@register.simple_tag
def avatar(name: str, kind: str = "person") -> str:
    """Render the initials of a name: round for a person, square for a program."""
    shape = "avatar" if kind == "person" else "avatar bot"
    return format_html('<b class="{}" aria-hidden="true">{}</b>', shape, labels.name_initials(name))


@register.filter
def initials(name: str) -> str:
    return labels.name_initials(name)


@register.filter
def relative_time(moment: datetime | None) -> str:
    """Render the time since a moment, with the exact time in the tooltip; relative_time.js keeps it current."""
    if moment is None:
        return _("never")
    day = formats.format_date(moment)
    return format_html(
        '<time datetime="{}" title="{}" data-ago="{}">{}</time>',
        *_machine_and_exact(moment),
        day,
        labels.format_time_ago(moment),
    )


@register.filter
def time_left(moment: datetime | None) -> str:
    """Render the time left until a moment, with the deadline in the tooltip; relative_time.js keeps it current."""
    return _time(moment, labels.format_time_left(moment), "data-left", labels.time_left_hue(moment)) if moment else ""


@register.filter
def clock_time(moment: datetime | None) -> str:
    """Render the time to the second, with the full date in the tooltip."""
    return _time(moment, formats.format_clock_time(moment), "data-at") if moment else ""


@register.filter
def day_text(moment: date | None) -> str:
    """Return the date of a moment, such as 20 Nov 2026."""
    return formats.format_date(moment) if moment else ""


@register.filter
def short_day(moment: date | None) -> str:
    """Return the date of a moment without its year, such as 20 Nov."""
    return formats.format_day(moment) if moment else ""


@register.filter
def weekday(moment: date | None) -> str:
    """Return the date of a moment with its day of the week."""
    return formats.format_weekday(moment) if moment else ""


@register.filter
def moment_text(moment: datetime | None) -> str:
    """Return a time of the current year with its zone, such as 20 Nov, 14:30 CET."""
    return formats.format_moment(moment) if moment else ""


@register.filter
def exact_time(moment: datetime | None) -> str:
    """Return a time to the second with date and zone."""
    return formats.format_exactly(moment) if moment else ""


@register.filter
def decimal(number: float | Decimal | None, decimals: int) -> str:
    """Return a number with so many decimals, and with the separators of the reader."""
    return "" if number is None else formats.format_number(number, decimals)


def _time(moment: datetime, text: str, mark: str, hue: str = "") -> str:
    return format_html(
        '<time datetime="{}" title="{}" {}{}>{}</time>',
        *_machine_and_exact(moment),
        mark,
        format_html(' class="{}"', hue) if hue else "",
        text,
    )


def _machine_and_exact(moment: datetime) -> tuple[str, str]:
    """Return a moment in UTC for scripts, and exactly for its reader."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z", formats.format_exactly(moment)


@register.filter
def duration_ms(milliseconds: float | None) -> str:
    return "" if milliseconds is None else labels.format_duration(milliseconds)


@register.filter
def bytes_size(count: int | None) -> str:
    return "" if count is None else labels.format_byte_size(count)


@register.filter
def is_ahead(moment: datetime | None) -> bool:
    return moment is not None and moment > clock.now()


@register.filter
def person_name(user: Any) -> str:
    return user_display_name(user) if user is not None else ""


@register.filter
def shortened(text: object, most: int) -> str:
    """Truncate like `truncatechars`, but fast for short texts, because pages have many of them."""
    whole = str(text)
    return whole if len(whole) <= most and whole.isascii() else truncatechars(whole, most)


@register.filter
def revealed(text: object) -> str:
    """Escape text; spell out hidden characters, count long blank stretches, mark words that imitate others."""
    whole = str(text)
    if is_plain_ascii(whole):
        return escape(whole)
    return format_html_join("", "{}", ((_render_part(part),) for part in inspect_text(whole)))


@register.filter
def spelled(text: object) -> str:
    """Return text with hidden characters spelled out, for places without markup."""
    return "".join(piece.text for piece in split_hidden(str(text)))


@register.filter
def joined(texts: Iterable[object], separator: str = ", ") -> str:
    """Join texts, each rendered like `revealed`. Django's `join` escapes, so `revealed` after it would escape again."""
    return format_html_join(separator, "{}", ((revealed(text),) for text in texts))


def _render_part(part: InspectedPart) -> str:
    if part.kind == "plain":
        return part.text
    note = format_html('<span class="hidden-char">{}</span>', part.note)
    if part.kind == "odd":
        pieces = ((piece.hidden, piece.text) for piece in split_hidden(part.text))
        spans = (
            format_html('<span class="hidden-char">{}</span>', text) if hidden else text for hidden, text in pieces
        )
        return format_html(
            '<span class="odd-word">{}</span>{}', format_html_join("", "{}", ((span,) for span in spans)), note
        )
    return format_html("{}{}", note, "\n") if part.kind == "nothing" and "\n" in part.text else note


@register.filter
def in_words(text: object) -> str:
    return placeholders.describe_placeholders(str(text))


@register.filter
def locked(text: object) -> str:
    """Escape a tool's text like `revealed`. Placeholders of secrets become lock icons, which no text can imitate."""
    pieces = []
    for part, name in placeholders.split_at_placeholders(str(text)):
        lock = ""
        if name:
            label = _("secret %(name)s") % {"name": name}
            lock = format_html('<span class="kept">{}{}</span>', icon("lock", "icon-small"), label)
        pieces.append((revealed(part), lock))
    return format_html_join("", "{}{}", pieces)


@register.filter
def hidden_count(text: object) -> int:
    return count_hidden(text if isinstance(text, str) else pretty_json(text))


@register.filter
def pretty_json(value: Any) -> str:
    """Return a JSON value indented by two spaces, not escaped; if an agent wrote it, apply `revealed` too."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def coloured_json(value: Any) -> str:
    """Render a JSON value that Toolgate wrote itself, in colours; the text equals that of `pretty_json`."""
    tokens = [(match.lastgroup, match[0]) for match in _TOKENS.finditer(pretty_json(value))]
    pieces = (format_html('<span class="{}">{}</span>', kind, text) if kind else text for kind, text in tokens)
    return format_html_join("", "{}", ((piece,) for piece in pieces))


@register.filter
def document_text(document: Any) -> str:
    return revealed(document) if isinstance(document, str) else coloured_json(document)


@register.filter
def at(members: Mapping[str, Any] | None, name: str) -> Any:
    """Return the member with this name, which a template may compute; an empty text if there is none."""
    return members.get(name, "") if isinstance(members, Mapping) else ""


@register.filter
def concat(text: str, more: object) -> str:
    """Return two texts joined; Django's `add` would add them if both look like numbers."""
    return f"{text}{more}"


@register.filter
def grouped(number: int) -> str:
    return formats.format_number(number)


@register.filter
def percent(part: float | None) -> str:
    """Return a fraction as a percentage, or a dash for None."""
    if part is None:
        return "-"
    rounded = round(100 * part, 1)
    return formats.format_number(rounded, 0 if rounded.is_integer() else 1) + "%"


_TOKENS = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=:))|(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\btrue\b|\bfalse\b|\bnull\b|-?\d[\d.eE+-]*)|[^"\w-]+|.'
)


@register.filter
def spark(usage: Usage) -> str:
    return spark_path(usage)


register.filter("drawn", truncate_rows)
register.filter("beside", side_by_side)


@register.filter
def marked(row: DiffRow | None) -> str:
    """Render the text of a diff line: changed parts in `ins` or `del`, and a note if the final newline is missing."""
    if not row:
        return ""
    tag = {"add": "ins", "del": "del"}.get(row.kind)
    parts = [
        format_html("<{0}>{1}</{0}>", tag, revealed(part.text)) if tag and part.changed else revealed(part.text)
        for part in row.segments
    ]
    if row.lacks_newline:
        parts.append(format_html(' <span class="hidden-char">{}</span>', _("no newline at the end")))
    return parts[0] if len(parts) == 1 else format_html_join("", "{}", ((part,) for part in parts))


@register.filter
def in_textarea(text: object) -> str:
    """Return a text to put into a textarea. It begins with a newline, because HTML drops the first one."""
    return f"\n{text}"


@register.filter
def skipped_lines(row: DiffRow) -> str:
    if row.kind == "gap":
        return f"{row.skipped} unchanged lines"
    return format_html(
        "<strong>{} lines, {}, are not shown. Changed lines may be among them.</strong>",
        row.skipped,
        bytes_size(row.size),
    )


_DIFF_LINE = (
    '<tr%s><td class="line-number">{}</td><td class="line-number">{}</td><td class="sign">%s</td><td>{}</td></tr>'
)
# A diff has hundreds of lines, and escaping takes most of the time of each: the constant parts need none.
DIFF_LINES = {
    "add": _DIFF_LINE % (' class="add"', "+"),
    "del": _DIFF_LINE % (' class="del"', "\u2212"),
    "same": _DIFF_LINE % ("", ""),
}
NO_NUMBER = format_html("{}", "")


@register.simple_tag
def diff_rows(rows: Sequence[DiffRow], address: str = "") -> str:
    """Render the rows of a diff without a template, as there are many; a cut links to its lines at `address`."""
    return format_html_join("", "{}", ((_diff_row(row, address),) for row in rows))


def _diff_row(row: DiffRow, address: str) -> str:
    if row.kind not in ("gap", "cut"):
        return format_html(DIFF_LINES[row.kind], row.old or NO_NUMBER, row.new or NO_NUMBER, marked(row))
    load = ""
    if row.kind == "cut" and address:
        url = f"{address}?from={row.start}"
        load = format_html(
            ' <a class="button compact" href="{0}" hx-get="{0}" hx-target="closest tr" hx-swap="outerHTML">{1}</a>',
            url,
            _("Show the next lines"),
        )
    return format_html(
        '<tr class="gap"{}><td class="line-number"></td><td class="line-number"></td><td class="sign"></td>'
        "<td>{}{}</td></tr>",
        format_html(' data-unshown="{}"', row.skipped) if row.kind == "cut" else "",
        skipped_lines(row),
        load,
    )


@register.inclusion_tag("catalog/_diff.html")
def diff(before: str | None, after: str | None, label: str = "content") -> dict[str, object]:
    """Render the difference between two texts; None means that there is no file."""
    return {"change": diff_texts(before, after), "label": label}
