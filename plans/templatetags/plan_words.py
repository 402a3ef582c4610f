"""What only the plan pages say: clocks that run, and plain text in which nothing is hidden."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html

from catalog.core import clock
from catalog.text.safety import split_hidden
from catalog.ui.labels import format_duration

register = template.Library()


@register.filter
def running_time(moment: datetime) -> str:
    """Say how long something has lasted; relative_time.js counts on."""
    seconds = max(0, int((clock.now() - moment).total_seconds()))
    return format_html(
        '<time datetime="{}" title="since {} UTC" data-since>{}</time>',
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z",
        f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        f"{seconds} s" if seconds < 60 else format_duration(seconds * 1000),
    )


@register.filter
def spelled(text: object) -> str:
    """Spell out every character that does not show, where no markup may stand."""
    return "".join(piece.text for piece in split_hidden(str(text)))
