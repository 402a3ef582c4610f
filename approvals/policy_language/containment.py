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


def implies(condition: Condition, other_condition: Condition) -> bool:
    """Return True if every value that fits `condition` fits `other_condition` on the same path, and escapes none."""
    if condition.path != other_condition.path:
        return False
    operator, wanted = condition.operator, other_condition.operator
    values = _values_of(condition)
    if values is not None:
        predicate = _predicate_on_value(other_condition)
        return all(predicate.covers({"value": value}) for value in values)
    if wanted in ("not_equals", "not_in"):
        return _refuses_all(condition, _named_values(other_condition))
    if wanted == "exists":
        return operator not in FIT_WITHOUT_VALUE
    if operator != wanted:
        return False
    narrows = _NARROWS.get(wanted)
    return condition.text == other_condition.text or (
        narrows is not None and narrows(condition.value, other_condition.value)
    )


_NARROWS: Mapping[str, Callable[[Any, Any], bool]] = {
    "less_than": lambda given, bound: _number(given) <= _number(bound),
    "greater_than": lambda given, bound: _number(given) >= _number(bound),
    "starts_with": lambda given, bound: given.startswith(bound),
    "ends_with": lambda given, bound: given.endswith(bound),
}
"""Returns True for the values of two conditions with the same operator if the first is the narrower one."""


def _refuses_all(condition: Condition, refused: Sequence[Any]) -> bool:
    """Return True if none of these values fits the condition."""
    if condition.operator == "missing":
        return True
    predicate = _predicate_on_value(condition)
    return not any(predicate.matches({"value": value}) for value in refused)


def excludes(condition: Condition, other_condition: Condition) -> bool:
    """Return True if no value fits both conditions, which are on the same path."""
    if condition.path != other_condition.path:
        return False
    for one, two in ((condition, other_condition), (other_condition, condition)):
        values = _values_of(one)
        if values is not None:
            predicate = _predicate_on_value(two)
            return not any(predicate.matches({"value": value}) for value in values)
        if one.operator == "missing":
            return two.operator not in FIT_WITHOUT_VALUE
    bounds = {each.operator: each.value for each in (condition, other_condition)}
    if bounds.keys() == {"less_than", "greater_than"}:
        return bool(_number(bounds["greater_than"]) >= _number(bounds["less_than"]))
    return False


def is_within(conditions: Sequence[Condition], other_conditions: Iterable[Condition]) -> bool:
    """Return True if arguments that fit all of `conditions` fit all of `other_conditions`."""
    return all(
        any(implies(condition, other_condition) for condition in conditions) for other_condition in other_conditions
    )


def may_meet(conditions: Sequence[Condition], other_conditions: Iterable[Condition]) -> bool:
    """Return False if no arguments fit both all of `conditions` and all of `other_conditions`."""
    return not any(
        excludes(condition, other_condition) for other_condition in other_conditions for condition in conditions
    )


@lru_cache(maxsize=MAX_CACHED_ROWS)
def _values_of(condition: Condition) -> Sequence[Any] | None:
    """Return the only values that fit a condition; None if there may be others."""
    return _named_values(condition) if condition.operator in ("equals", "in") else None


def _named_values(condition: Condition) -> Sequence[Any]:
    """Return the values that a condition names, and the integers that it names by texts of their digits."""
    named = tuple(condition.value or ()) if condition.operator in ("in", "not_in") else (condition.value,)
    return (*named, *(int(each) for each in named if is_large_integer(each)))


@lru_cache(maxsize=MAX_CACHED_ROWS)
def _predicate_on_value(condition: Condition) -> Predicate:
    return Predicate((replace(condition, path="value"),))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value
