"""Rows of the builder's list of steps. A draft may have 500, so that they are formatted once and kept."""

from functools import lru_cache

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from catalog.templatetags.toolgate import icon, revealed, safety, shortened
from plans.web.compose.builder import BuilderPage, BuilderStep

register = template.Library()
KEPT = 4096
MAX_TITLE, MAX_TOOL, MAX_NEEDS = 200, 64, 12


@register.simple_tag
def builder_row(page: BuilderPage, step: BuilderStep) -> str:
    """Render a step as a link that opens its form."""
    assert step.number is not None  # noqa: S101 - rows without a number are none
    fold = f"&fold={page.fold}" if page.fold else ""
    address = f"{reverse('plan-draft', args=[page.draft.public_id])}?step={step.number}{fold}"
    return _row(step, address, is_selected=page.step is not None and page.step.number == step.number)


@lru_cache(maxsize=KEPT)
def _row(step: BuilderStep, address: str, *, is_selected: bool) -> str:
    marks: list[str] = []
    if step.proposed:
        marks.append(format_html('<span class="tag proposed">{}</span>', _("proposed")))
    if step.level and step.level != "safe":
        marks.append(safety(step.level))
    if step.worst:
        is_error = step.worst == "error"
        says = _("has an error") if is_error else _("has a warning")
        sign = icon("dangerous", "status-icon danger") if is_error else icon("cautious", "status-icon warn")
        marks.append(format_html('{}<span class="visually-hidden">{}</span>', sign, says))
    needs = ", ".join(map(str, step.needs[:MAX_NEEDS])) + "…" * (len(step.needs) > MAX_NEEDS)
    return format_html(
        '<a id="s{0}" data-item data-step="{0}" href="{1}" hx-get="{1}" hx-target="#step-slot" hx-swap="outerHTML"'
        ' hx-push-url="true"{2}><span class="number mono">{0}</span> <span class="title">{3}</span>'
        ' <span class="tool mono">{4}{5}</span> <span class="marks-of-step">{6}</span>{7}</a>',
        step.number,
        address,
        format_html(' aria-current="{}"', "true") if is_selected else "",
        revealed(shortened(step.title, MAX_TITLE)),
        icon("bot", "icon-small") if step.is_agent else "",
        revealed(shortened(step.tool, MAX_TOOL)),
        format_html_join("", "{}", ((each,) for each in marks)),
        format_html(' <span class="needs subtext">{}</span>', _("after %(steps)s") % {"steps": needs}) if needs else "",
    )
