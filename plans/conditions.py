"""The expression language of `done_check`: a whitelisted evaluator over a plan's memory, without `eval`.

Allows literals, names, comparison, `is`, `in`, and/or/not, arithmetic, subscripts, slices and FUNCTIONS, all bounded in
time and size; no attributes, comprehensions, f-strings or keyword arguments. Reasons never contain a value.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from simpleeval import EvalWithCompoundTypes  # type: ignore[import-untyped]

MAX_BITS = 4096
MAX_LENGTH = 256 * 1024
MAX_EXPONENT = 1000

TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, tuple)}

Number = int | float


def _bounded(number: Number) -> Number:
    if isinstance(number, int) and number.bit_length() > MAX_BITS:
        raise OverflowError
    return number


def _arithmetic(compute: Callable[[Number, Number], Any]) -> Callable[[object, object], Number]:
    def operate(left: object, right: object) -> Number:
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise TypeError
        return _bounded(compute(_bounded(left), _bounded(right)))

    return operate


def _power(base: Number, exponent: Number) -> Number:
    bits = base.bit_length() if isinstance(base, int) else 1
    if abs(exponent) > MAX_EXPONENT or bits * abs(exponent) > MAX_BITS:
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError
    return result


_sum_of_two = _arithmetic(operator.add)


def _add(left: Any, right: Any) -> Any:
    if type(left) is not type(right) or not isinstance(left, str | list | tuple):
        return _sum_of_two(left, right)
    if len(left) + len(right) > MAX_LENGTH:
        raise OverflowError
    return left + right


def _signed_operator(apply: Callable[[Number], Number]) -> Callable[[object], Number]:
    def operate(value: object) -> Number:
        if not isinstance(value, int | float):
            raise TypeError
        return apply(value)

    return operate


def _total(values: Sequence[object]) -> Number:
    total: Number = 0
    for value in values:
        total = _sum_of_two(total, value)
    return total


def _text(value: object) -> str:
    text = str(value)
    if len(text) > MAX_LENGTH:
        raise OverflowError
    return text


def _is_instance(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": len,
    "any": any,
    "all": all,
    "min": min,
    "max": max,
    "sum": _total,
    "abs": _signed_operator(abs),
    "bool": bool,
    "int": int,
    "str": _text,
    "float": float,
    "isinstance": _is_instance,
}

OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _add,
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.FloorDiv: _arithmetic(operator.floordiv),
    ast.Mod: _arithmetic(operator.mod),
    ast.Pow: _arithmetic(_power),
    ast.UAdd: _signed_operator(operator.pos),
    ast.USub: _signed_operator(operator.neg),
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}


MAX_CHARACTERS = 500
MAX_DEPTH = 20


class ConditionError(ValueError):
    """The expression is not allowed by the language; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, with a reason for the plan's history."""

    done: bool
    reason: str


def evaluate(expression: str, memory: Mapping[str, Any], *, expected_key: str | None = None) -> Verdict:
    """Evaluate a check against memory; any error means not done, with the reason. Never raises."""
    try:
        parsed = parse(expression)
        done = bool(_Evaluator(_Names(memory, expected_key)).eval(expression, parsed))
    except ConditionError as problem:
        return Verdict(done=False, reason=str(problem))
    except _ERRORS as error:
        return Verdict(done=False, reason=_explain(error))
    return Verdict(done, f"The check {expression} is {'true' if done else 'false'}.")


@lru_cache(maxsize=4096)
def parse(expression: str) -> ast.expr:
    """Return the expression's tree. Raises ConditionError if it does not parse or uses a forbidden element."""
    if len(expression) > MAX_CHARACTERS:
        raise ConditionError(f"A check may have at most {MAX_CHARACTERS} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConditionError("The check is not an expression, such as: revenue is not None") from None
    _check_node(tree, MAX_DEPTH)
    return tree


def is_constant(expression: str) -> bool:
    """Return whether the check reads nothing from memory. Raises ConditionError if it does not parse."""
    names = {node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)}
    return names <= TYPES.keys() | FUNCTIONS.keys()


def _check_node(node: ast.AST, depth: int) -> None:
    if depth == 0:
        raise ConditionError(f"A check may nest at most {MAX_DEPTH} levels deep.")
    if type(node) not in _NODES and type(node) not in _UNCHECKED_NODES:
        raise ConditionError(f"A check may not use {_NODE_NAMES.get(type(node), type(node).__name__)}.")
    if isinstance(node, ast.Call):
        _check_call(node)
    if isinstance(node, ast.Constant) and type(node.value) not in _LITERALS:
        raise ConditionError(f"A check may not use {type(node.value).__name__} literals.")
    if isinstance(node, ast.Dict) and None in node.keys:
        raise ConditionError("A check may not use ** to unpack.")
    for child in ast.iter_child_nodes(node):
        _check_node(child, depth if type(child) in _UNCHECKED_NODES else depth - 1)


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise ConditionError(f"A check may call only {', '.join(sorted(FUNCTIONS))}.")
    if node.keywords:
        raise ConditionError("A check may not name arguments in a call.")


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
        if name in TYPES:
            return TYPES[name]
        raise _Unknown(name)


class _Unknown(Exception):
    """An undefined name."""


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval's node handlers with our own tables; created per evaluation, so its costly defaults are skipped."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.operators = OPERATORS
        self.functions = FUNCTIONS

    def _eval(self, node: ast.AST) -> Any:
        return _NODES[type(node)](self, node)

    def _eval_name(self, node: ast.Name) -> Any:
        return self.names[node.id]


_NODES: Mapping[type[ast.AST], Callable[[_Evaluator, Any], Any]] = {
    ast.Constant: lambda _, node: node.value,
    ast.Name: _Evaluator._eval_name,
    ast.List: _Evaluator._eval_list,
    ast.Tuple: _Evaluator._eval_tuple,
    ast.Dict: _Evaluator._eval_dict,
    ast.BoolOp: _Evaluator._eval_boolop,
    ast.UnaryOp: _Evaluator._eval_unaryop,
    ast.BinOp: _Evaluator._eval_binop,
    ast.Compare: _Evaluator._eval_compare,
    ast.Call: _Evaluator._eval_call,
    ast.Subscript: _Evaluator._eval_subscript,
    ast.Slice: _Evaluator._eval_slice,
}
_UNCHECKED_NODES = frozenset({ast.And, ast.Or, ast.Load, *OPERATORS})
_LITERALS = frozenset({str, int, float, bool, type(None)})
_NODE_NAMES: Mapping[type[ast.AST], str] = {
    ast.Attribute: "attributes or methods; write value['key'] instead of value.key",
    ast.Lambda: "lambda",
    ast.IfExp: "if and else",
    ast.JoinedStr: "f-strings",
    ast.NamedExpr: "assignment",
    ast.Starred: "* to unpack",
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "comprehensions"),
}
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (ZeroDivisionError, "it divides by zero"),
    (OverflowError, "a number, string or list in it becomes too large"),
    (LookupError, "a key or position that it reads does not exist"),
    (ValueError, "a string in it is not a number"),
    (TypeError, "it combines values of incompatible types"),
    (RecursionError, "a value in it is nested too deeply"),
)
_ERRORS: tuple[type[Exception], ...] = (_Unknown, *(kind for kind, _ in _REASONS))


def _explain(error: Exception) -> str:
    if isinstance(error, _Unknown):
        return f"'{error}' is not in memory yet."
    reason = next(text for kind, text in _REASONS if isinstance(error, kind))
    return f"The check could not be evaluated: {reason}."
