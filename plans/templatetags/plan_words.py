"""Filters of the plan pages: running clocks."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.translation import gettext as _

from catalog.core import clock
from catalog.text.formats import format_exactly
from catalog.ui.labels import format_duration

register = template.Library()


@register.filter
def running_time(moment: datetime) -> str:
    """Return the time since `moment` as a `<time>` element that relative_time.js keeps counting."""
    seconds = max(0, int((clock.now() - moment).total_seconds()))
    return format_html(
        '<time datetime="{}" title="{}" data-since>{}</time>',
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z",
        _("since %(time)s") % {"time": format_exactly(moment)},
        f"{seconds} s" if seconds < 60 else format_duration(seconds * 1000),
    )
