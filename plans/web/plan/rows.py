"""Rows of a plan's page as HTML: steps beside the bars of the timeline, lines of events, and the strip of progress.

A page may have 500 of them, and its socket sends them: as templates they take three times as long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.core import clock
from catalog.templatetags.toolgate import clock_time, icon, revealed, shortened
from catalog.text.formats import ReaderFormats, current_reader, format_exactly
from catalog.ui.labels import NO_VALUE, format_duration
from plans.web.graph import UNFOLDED, Fold
from plans.web.plan.event_list import EventRow
from plans.web.plan.overview import StepOverview

TITLE_LENGTH, EVENT_LENGTH = 200, 300
KEPT = 4096
MOST_SEGMENTS = 80
MARKED = format_html(' aria-current="{}"', "true")
SKIPPED = format_html(
    '<svg x="1%" y="15" width="10" height="10" overflow="visible"><path class="skip" d="{}"/></svg>',
    "M5 0 10 5 5 10 0 5z",
)


@dataclass(frozen=True, slots=True)
class RowContext:
    """Values common to all rows of a timeline: the present in percent of the axis, its seconds, the graph's fold."""

    now: float | None
    length: float
    fold: Fold = UNFOLDED


def timeline_row(step: StepOverview, context: RowContext, selected: int | None = None) -> str:
    """Render the row of a step as a link to it, which keeps the graph folded."""
    number, is_skipped = step.number, step.step.skipped
    bars = format_html_join(
        "",
        '<rect class="bar {}" x="{}%" y="15" width="{}%" height="10"{} rx="3"/>',
        (
            (bar.look, f"{bar.offset:g}", f"{bar.width:g}", " data-open" if bar.is_open else "")
            for bar in step.timeline_bars
        ),
    )
    return format_html(
        '<a class="row{under}" id="s{number}" data-item data-step="{number}" data-into="steps"{before}'
        ' href="?step={number}{fold}" hx-get="?step={number}"{current}><span class="step-name">'
        '<span class="step-number">{number}</span>{icon}<span class="step-title">{title}</span></span>'
        '<span class="step-status">{label}</span><svg class="lane" data-seconds="{length}" aria-hidden="true">'
        '{skipped}{bars}{now}</svg><span class="duration">{duration}</span></a>',
        under=" under" if step.parent else "",
        number=number,
        before=format_html(' data-before="s{}"', step.before) if step.before else "",
        fold=f"&fold={context.fold}" if context.fold else "",
        current=MARKED if number == selected else "",
        icon=_status_icon(step.word.icon, step.word.hue),
        title=revealed(shortened(step.step.title, TITLE_LENGTH)),
        label=step.label,
        length=context.length,
        skipped=SKIPPED if is_skipped else "",
        bars=bars,
        now=format_html('<line class="now" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>', f"{context.now:g}")
        if context.now
        else "",
        duration=_duration(step),
    )


def _duration(step: StepOverview) -> str:
    if step.took_ms is not None:
        return format_duration(step.took_ms)
    if step.since:
        return running_time(step.since)
    return NO_VALUE if step.step.skipped else ""


def running_time(moment: datetime | None) -> str:
    """Return the time since `moment` as a `<time>` element that relative_time.js keeps counting."""
    if moment is None:
        return ""
    seconds = max(0, int((clock.now() - moment).total_seconds()))
    return format_html(
        '<time datetime="{}" title="{}" data-since>{}</time>',
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z",
        _("since %(time)s") % {"time": format_exactly(moment)},
        f"{seconds} s" if seconds < 60 else format_duration(seconds * 1000),
    )


@lru_cache(maxsize=64)
def _status_icon(name: str, hue: str) -> str:
    return icon(name, f"status-icon {hue}{' spin' if name == 'run' else ''}")


def step_events(address: str, rows: Iterable[EventRow], kind: str = "") -> str:
    """Render the lines of steps in the list at the address of their plan's page, filtered by a kind of event."""
    reader = current_reader()
    return format_html_join("", "{}", ((step_event(address, row, reader, kind),) for row in rows))


@lru_cache(maxsize=KEPT)
def step_event(address: str, row: EventRow, reader: ReaderFormats, kind: str = "", *, is_new: bool = False) -> str:
    """Render the newest event of a step. It opens to show the others, which the page fetches, or a link to them."""
    step = row.line.step_id or 0
    content = _event_content(row)
    if row.count > 1:
        content = format_html(
            '<details><summary>{content}<span class="event-count">{count}</span></summary>'
            '<div id="lines-{step}" hx-get="{address}?of={step}{kind}" hx-trigger="lines" hx-target="this"'
            ' hx-swap="innerHTML">'
            '<a class="target" href="{address}?of={step}{kind}#e-h">{show}</a></div></details>',
            content=content,
            count=ngettext("%(count)s event", "%(count)s events", row.count) % {"count": row.count},
            step=step,
            address=address,
            kind=f"&event={kind}" if kind else "",
            show=_("Show the events of this step"),
        )
    else:
        content = format_html('<div class="event-line">{}</div>', content)
    return format_html(
        '<li id="g{}" data-into="events" data-at="start" data-moves{} title="#{} {}">{}</li>',
        step,
        format_html(' class="{}"', "new") if is_new else "",
        row.line.seq,
        row.line.type,
        content,
    )


def event_lines(rows: Iterable[EventRow]) -> str:
    """Render single events."""
    lines = ((row.line.seq, row.line.seq, row.line.type, _event_content(row)) for row in rows)
    return format_html_join("", '<li class="event-line" id="e{}" title="#{} {}">{}</li>', lines)


def _event_content(row: EventRow) -> str:
    line, said = row.line, row.line.said
    return format_html(
        '{}{}<span><span class="break">{}</span>{}{}</span><span class="sequence">{}</span>',
        clock_time(line.at),
        icon(said.icon, f"status-icon {said.hue}"),
        revealed(shortened(said.text, EVENT_LENGTH)),
        format_html(" <b>{}</b>", said.stress) if said.stress else "",
        format_html(' <code class="break">{}</code>', revealed(shortened(said.code, TITLE_LENGTH)))
        if said.code
        else "",
        line.seq,
    )


WIDE_HUES = frozenset({"danger", "warn", "human"})
"""Hues of segments that are drawn some pixels wide, however many steps there are."""


def progress_segments(steps: Sequence[StepOverview]) -> str:
    """Render one segment for each step with the hue of its status, or of many steps one for each run of a hue."""
    hues = ["skip" if step.step.skipped else step.word.hue for step in steps]
    if len(hues) <= MOST_SEGMENTS:
        return format_html_join("", '<i class="{}"></i>', ((hue,) for hue in hues))
    runs, begin = [], 0
    for hue, members in groupby(hues):
        runs.append((hue, begin, length := len(list(members))))
        begin += length
    runs.sort(key=lambda run: run[0] in WIDE_HUES)  # drawn over their neighbours
    return format_html(
        '<svg viewBox="0 0 {} 1" preserveAspectRatio="none">{}</svg>',
        len(hues),
        format_html_join("", '<rect class="{}" x="{}" width="{}" height="1"/>', runs),
    )
