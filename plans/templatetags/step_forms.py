"""The form of a step in the plan builder, and filters for the rows of its check."""

from collections.abc import ItemsView, Sequence
from typing import TYPE_CHECKING

from django import template
from django.contrib.auth.models import User

from plans.documents.reading import Problem
from plans.models import PlanDraft
from plans.web.compose.done_check_form import CONSTANTS, KINDS, LIST, NUMBER, ONE, OPERATORS, Condition, Operator
from plans.web.compose.step_views import open_step_form, step_form_context

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

register = template.Library()


@register.inclusion_tag("plans/compose/_step_form.html", takes_context=True)
def step_form(
    context: template.Context, draft: PlanDraft, viewer: User, number: int, problems: Sequence[Problem]
) -> dict[str, object]:
    """Draw the form of a step; `problems` are those of the draft's document."""
    form = open_step_form(draft, viewer, number, problems)
    return {} if form is None else step_form_context(draft, form) | {"csrf_token": context.get("csrf_token")}


@register.filter
def operators(_condition: Condition) -> "ItemsView[str, Operator]":
    return OPERATORS.items()


@register.filter
def value_kinds(condition: Condition) -> "list[tuple[str, StrOrPromise]]":
    """Return the types that the value of a row can have, by name."""
    return [(name, label) for name, label in KINDS.items() if condition.takes != LIST or name in ("text", "number")]


@register.filter
def has_value_field(condition: Condition) -> bool:
    return condition.takes in (LIST, NUMBER) or (condition.takes == ONE and condition.kind not in CONSTANTS)
