"""Filters of the form of a step: the choices of a row of its check."""

from collections.abc import ItemsView
from typing import TYPE_CHECKING

from django import template

from plans.web.compose.done_check_form import CONSTANTS, KINDS, LIST, NUMBER, ONE, OPERATORS, Condition, Operator

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

register = template.Library()


@register.filter
def operators(_row: Condition) -> "ItemsView[str, Operator]":
    return OPERATORS.items()


@register.filter
def value_kinds(row: Condition) -> "list[tuple[str, StrOrPromise]]":
    """Return the types that the value of a row can have, by name."""
    return [(name, label) for name, label in KINDS.items() if row.takes != LIST or name in ("text", "number")]


@register.filter
def has_value_field(row: Condition) -> bool:
    return row.takes in (LIST, NUMBER) or (row.takes == ONE and row.kind not in CONSTANTS)
