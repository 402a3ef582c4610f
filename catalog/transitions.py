"""The one way to move a status outside the hot path: a conditional UPDATE that wins or raises Conflict."""

from typing import Any

from django.db import models

from catalog.errors import Conflict

Moves = dict[str, frozenset[str]]


def sources(moves: Moves, to: str) -> list[str]:
    """Return the statuses from which `to` may be reached, in the table's order."""
    return [status for status, targets in moves.items() if to in targets]


def try_move(queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> int:
    """Move the rows of `queryset` that may move to `to`; return how many did."""
    allowed = sources(queryset.model.MOVES, to)
    return queryset.filter(status__in=allowed).update(status=to, **fields)


def move_row(row: "models.Model", queryset: "models.QuerySet[Any]", *, to: str, **fields: Any) -> None:
    """Move the one row of `queryset`, which is `row`, and let `row` say so. Raises what `move` raises."""
    move(queryset, to=to, **fields)
    for name, value in {"status": to, **fields}.items():
        setattr(row, name, value)


def move(queryset: "models.QuerySet[Any]", *, to: str, otherwise: str = "", **fields: Any) -> None:
    """Move exactly one row to `to`. Raises Conflict, in the words of `otherwise`, when its status does not allow it."""
    if try_move(queryset, to=to, **fields) != 1:
        noun = queryset.model._meta.verbose_name
        raise Conflict(otherwise or f"This {noun} cannot become {to.replace('_', ' ')} now: its state has changed.")
