"""The checks of steps: an expression over the plan's memory that says whether a step is already done."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from catalog.core.expressions import FUNCTIONS, ExpressionError, UnknownName, parse
from catalog.core.expressions import evaluate as evaluate_expression

TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, tuple)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, with a reason for the plan's history."""

    done: bool
    reason: str


def evaluate(expression: str, memory: Mapping[str, Any], *, expected_key: str | None = None) -> Verdict:
    """Evaluate a check against memory. Never raises: any error means not done, and is the reason."""
    try:
        done = bool(evaluate_expression(expression, _Names(memory, expected_key)))
    except UnknownName as unknown:
        return Verdict(done=False, reason=f"'{unknown.name}' is not in memory yet.")
    except ExpressionError as error:
        return Verdict(done=False, reason=str(error))
    return Verdict(done, f"The check {expression} is {'true' if done else 'false'}.")


def is_constant(expression: str) -> bool:
    """Return whether the check reads nothing from memory. Raises ExpressionError if it does not parse."""
    names = {node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)}
    return names <= TYPES.keys() | FUNCTIONS.keys()


@lru_cache(maxsize=4096)
def keys_read(expression: str) -> frozenset[str]:
    """Return the keys of memory that a check may read by name or as `memory["key"]`; none if it does not parse."""
    try:
        nodes = list(ast.walk(parse(expression)))
    except ExpressionError:
        return frozenset()
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - TYPES.keys() - FUNCTIONS.keys()
    members = {
        node.slice.value
        for node in nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "memory"
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    }
    return frozenset(names | members)


class _Names:
    """Name lookup: a memory key first, then the step's own value, `memory`, and the names of types."""

    def __init__(self, memory: Mapping[str, Any], expected_key: str | None) -> None:
        self.memory = memory
        self.expected_key = expected_key

    def __getitem__(self, name: str) -> Any:
        if name in self.memory:
            return self.memory[name]
        if name in ("value", "result", "results") and self.expected_key in self.memory:
            return self.memory[cast("str", self.expected_key)]
        if name == "memory":
            return self.memory
        return TYPES[name]
