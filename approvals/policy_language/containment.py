"""Relations between conditions that can be proven without a call: one implies another, or no value fits both.

A relation that cannot be proven is False, so a caller that relies on True is safe.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from approvals.policy_language.conditions import FIT_WITHOUT_VALUE, Condition, Predicate
from catalog.schemas.normalization import is_large_integer

MAX_CACHED_ROWS = 4096


def implies(row: Condition, other: Condition) -> bool:
    """Return True if every value that fits `row` fits `other`, a row on the same path, and does not escape it."""
    if row.path != other.path:
        return False
    operator, wanted = row.operator, other.operator
    values = _values_of(row)
    if values is not None:
        predicate = _predicate_on_value(other)
        return all(predicate.covers({"value": value}) for value in values)
    if wanted in ("not_equals", "not_in"):
        return _refuses_all(row, _named_values(other))
    if wanted == "exists":
        return operator not in FIT_WITHOUT_VALUE
    if operator != wanted:
        return False
    narrows = _NARROWS.get(wanted)
    return row.text == other.text or (narrows is not None and narrows(row.value, other.value))


_NARROWS: Mapping[str, Callable[[Any, Any], bool]] = {
    "less_than": lambda given, bound: _number(given) <= _number(bound),
    "greater_than": lambda given, bound: _number(given) >= _number(bound),
    "starts_with": lambda given, bound: given.startswith(bound),
    "ends_with": lambda given, bound: given.endswith(bound),
}
"""Returns True for the values of two rows with the same operator if the first row is the narrower one."""


def _refuses_all(row: Condition, refused: Sequence[Any]) -> bool:
    """Return True if none of these values fits the row."""
    if row.operator == "missing":
        return True
    predicate = _predicate_on_value(row)
    return not any(predicate.matches({"value": value}) for value in refused)


def excludes(row: Condition, other: Condition) -> bool:
    """Return True if no value fits both rows, which are on the same path."""
    if row.path != other.path:
        return False
    for one, two in ((row, other), (other, row)):
        values = _values_of(one)
        if values is not None:
            predicate = _predicate_on_value(two)
            return not any(predicate.matches({"value": value}) for value in values)
        if one.operator == "missing":
            return two.operator not in FIT_WITHOUT_VALUE
    bounds = {each.operator: each.value for each in (row, other)}
    if bounds.keys() == {"less_than", "greater_than"}:
        return bool(_number(bounds["greater_than"]) >= _number(bounds["less_than"]))
    return False


def is_within(rows: Sequence[Condition], others: Iterable[Condition]) -> bool:
    """Return True if arguments that fit all of `rows` fit all of `others`."""
    return all(any(implies(row, other) for row in rows) for other in others)


def may_meet(rows: Sequence[Condition], others: Iterable[Condition]) -> bool:
    """Return False if no arguments fit both all of `rows` and all of `others`."""
    return not any(excludes(row, other) for other in others for row in rows)


@lru_cache(maxsize=MAX_CACHED_ROWS)
def _values_of(row: Condition) -> Sequence[Any] | None:
    """Return the only values that fit a row; None if there may be others."""
    return _named_values(row) if row.operator in ("equals", "in") else None


def _named_values(row: Condition) -> Sequence[Any]:
    """Return the values that fit a row that names values, or that its negation refuses: also integers as texts."""
    named = tuple(row.value or ()) if row.operator in ("in", "not_in") else (row.value,)
    return (*named, *(int(each) for each in named if is_large_integer(each)))


@lru_cache(maxsize=MAX_CACHED_ROWS)
def _predicate_on_value(row: Condition) -> Predicate:
    return Predicate((replace(row, path="value"),))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value
