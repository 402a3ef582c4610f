"""What a done_check can compute: operators, functions and type names, each with a bound on time and size.

Plain JSON in, plain JSON out; nothing here knows how an expression is read.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def _signed(apply: Callable[[Number], Number]) -> Callable[[object], Number]:
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
    "abs": _signed(abs),
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
    ast.UAdd: _signed(operator.pos),
    ast.USub: _signed(operator.neg),
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
