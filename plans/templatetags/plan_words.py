"""Tags of the plan pages: the rows of timeline and events, the strip of progress, running clocks."""

from django import template
from django.utils.html import format_html_join

from plans.web.graph import UNFOLDED, Fold
from plans.web.plan.overview import PlanOverview
from plans.web.plan.rows import (
    RowContext,
    event_lines,
    progress_segments,
    running_time,
    step_events,
    timeline_row,
)
from plans.web.resumptions import resumption_of

register = template.Library()
register.filter(running_time)
register.filter("resumption", resumption_of)
register.simple_tag(progress_segments)
register.simple_tag(step_events)
register.simple_tag(event_lines)


@register.simple_tag
def timeline_rows(overview: PlanOverview, fold: Fold = UNFOLDED, selected: int | None = None) -> str:
    """Render the rows of all steps; the selected one is marked."""
    context = RowContext(overview.timeline.now, overview.timeline.length, fold)
    return format_html_join("", "{}", ((timeline_row(step, context, selected),) for step in overview.steps))
