"""Boxes and arrows of a plan's graph as SVG. A graph may have 500, so that they are formatted once and kept."""

from functools import lru_cache

from django import template
from django.utils.html import format_html, format_html_join

from plans.web.graph import HEIGHT, UNFOLDED, WIDTH, Box, Drawing, Fold

register = template.Library()
LINE_HEIGHTS = ("20.5", "36")
NOTE_HEIGHTS = ("46", "46", "53")
"""Heights at which the tool is written, below a title of no, one or two lines."""
KEPT = 4096


@register.simple_tag
@lru_cache(maxsize=KEPT)
def graph_arrows(box: Box) -> str:
    """Render the arrows that lead to a box."""
    if not box.needs:
        return ""
    return format_html(
        '<path id="w{}" class="edge {}" data-into="arrows" data-needs="{}" marker-end="url(#ah)" d="{}"/>',
        box.step_id,
        box.arrow_look,
        " ".join(map(str, box.needs)),
        box.arrows,
    )


@register.simple_tag
def all_arrows(drawing: Drawing) -> str:
    return format_html_join("", "{}", ((graph_arrows(box),) for box in drawing.boxes))


@register.simple_tag
def all_boxes(drawing: Drawing, selected: int | None = None) -> str:
    """Render the boxes as links to their steps."""
    return format_html_join("", "{}", ((graph_box(box, drawing.fold, selected),) for box in drawing.boxes))


@register.simple_tag
def graph_box(box: Box, fold: Fold = UNFOLDED, selected: int | None = None) -> str:
    """Render a box as a link to its step, which keeps the graph folded; one of several steps leads to them unfolded."""
    members = box.node.members
    step = selected if members[1:] and selected else box.step_id
    return _link(box, fold.opening(box.step_id) if members[1:] else fold, step, is_selected=selected in members)


@lru_cache(maxsize=KEPT)
def _link(box: Box, fold: Fold, step: int, *, is_selected: bool) -> str:
    members = box.node.members
    return format_html(
        '<a id="n{0}" href="?step={1}{2}{3}" data-step="{0}"{4} data-into="boxes" class="node {5}{6}"'
        ' transform="translate({7} {8})">{9}</a>',
        box.step_id,
        step,
        f"&fold={fold}" if fold else "",
        "#g-h" if members[1:] else "",
        format_html(' data-steps="{}"', " ".join(map(str, members))) if members[1:] else "",
        box.look,
        " selected" if is_selected else "",
        box.node.x,
        box.node.y,
        _content(box),
    )


@register.simple_tag
def graph_picture(box: Box) -> str:
    """Render a box of a preview, which leads nowhere."""
    return format_html(
        '<g role="img" class="node {}" transform="translate({} {})">{}</g>',
        box.look,
        box.node.x,
        box.node.y,
        _content(box),
    )


def _content(box: Box) -> str:
    return format_html(
        '<title>{0}</title><rect class="halo" x="-4" y="-4" width="{1}" height="{2}" rx="11"/>'
        '<rect width="{3}" height="{4}" rx="8"/><svg width="{3}" height="{4}">'
        '<use href="#i-{5}" class="icon status-icon {6}" x="10" y="9" width="14" height="14"/>{7}'
        '<text class="node-note mono" x="10" y="{8}">{9}</text>{10}</svg>',
        box.says,
        WIDTH + 8,
        HEIGHT + 8,
        WIDTH,
        HEIGHT,
        box.word.icon,
        box.word.hue,
        format_html_join(
            "", '<text class="node-title" x="30" y="{}">{}</text>', zip(LINE_HEIGHTS, box.title, strict=False)
        ),
        NOTE_HEIGHTS[len(box.title)],
        box.tool,
        format_html_join(
            "",
            '<rect class="bar {}" x="{}" y="58" width="{}" height="3" rx="1"/>',
            ((stroke.look, stroke.x + 10, stroke.width) for stroke in box.strip),
        ),
    )
