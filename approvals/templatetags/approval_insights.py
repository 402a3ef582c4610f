"""How the figures of the insights are said."""

from django import template

from catalog.ui.labels import say_duration

register = template.Library()
NOTHING = "\N{EN DASH}"


@register.filter
def percent(share: float | None) -> str:
    """Say a share: 96 %; an en dash of nothing. All is said only of all, nothing only of nothing."""
    if share is None:
        return NOTHING
    return f"{share if share in (0, 1) else min(0.99, max(0.01, share)):.0%}".replace("%", " %")


@register.filter
def seconds(span: float | None) -> str:
    """Say a span: 12 s, 4 min 09 s; an en dash of nothing."""
    return NOTHING if span is None else say_duration(span * 1000)
