"""The expression language of `done_check` and the tool `eval_form`: literals, names, operators and FUNCTIONS.

The cost of an operation is charged to a budget before it runs, so every expression ends within milliseconds.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import isfinite
from typing import Any, Protocol

from simpleeval import EvalWithCompoundTypes  # type: ignore[import-untyped]

MAX_CHARACTERS = 500
MAX_DEPTH = 20
MAX_BITS = 4096
MAX_LENGTH = 256 * 1024
MAX_EXPONENT = 1000
MAX_DIGITS = 15
MAX_COST = 250_000
"""Maximum cost of an evaluation: one for each value handled, and one more for each 32 characters or bits of it."""
CHARACTERS_PER_COST = 32
BITS_PER_COST = 32
MIN_CHARACTERS = 3
"""Minimum characters that a unit of cost has as text: a digit, a comma and a space."""

Number = int | float
_CONTAINERS = (list, dict, tuple)


class ExpressionError(ValueError):
    """The expression is not allowed, or evaluating it failed. The message says why without repeating a value."""


class UnknownName(ExpressionError):
    def __init__(self, name: str) -> None:
        super().__init__(f"The name '{name}' is not defined. Write the value itself.")
        self.name = name


class Names(Protocol):
    """Look-up of the names in an expression; raises KeyError for an undefined name."""

    def __getitem__(self, name: str, /) -> Any: ...


class CostExceeded(Exception):
    """The expression costs more than MAX_COST."""


class Budget:
    def __init__(self, left: int = MAX_COST) -> None:
        self.left = left

    def charge(self, cost: int) -> None:
        """Subtract a cost. Raises CostExceeded if the budget does not cover it."""
        self.left -= cost
        if self.left < 0:
            raise CostExceeded

    def charge_value(self, value: object, times: int = 1) -> None:
        """Subtract the cost of a value and of all values inside it; an object in two places is charged twice."""
        level = [value]
        while level:  # by level, so that a large list in many places is counted before it is gone through
            self.charge(times * len(level))
            extra = 0
            deeper: list[object] = []
            for each in level:
                if isinstance(each, str):
                    extra += len(each) // CHARACTERS_PER_COST
                elif isinstance(each, int):
                    extra += each.bit_length() // BITS_PER_COST
                elif isinstance(each, _CONTAINERS):
                    if len(deeper) + len(each) > self.left:
                        raise CostExceeded
                    deeper.extend(each)
                    if isinstance(each, dict):
                        deeper.extend(each.values())
            self.charge(times * extra)
            level = deeper


@lru_cache(maxsize=4096)
def parse(expression: str) -> ast.expr:
    """Return the expression's tree. Raises ExpressionError if it does not parse or uses a forbidden element."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"An expression may have at most {MAX_CHARACTERS} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError("This is not an expression, such as: revenue is not None") from None
    _check_node(tree, MAX_DEPTH)
    return tree


def evaluate(expression: str, names: Names) -> Any:
    """Return the value of an expression. Raises ExpressionError if it is not allowed, costs too much, or fails."""
    tree = parse(expression)
    try:
        return _Evaluator(names).eval(expression, tree)
    except ExpressionError:
        raise
    except tuple(_REASONS) as error:
        reason = next(text for kind, text in _REASONS.items() if isinstance(error, kind))
        raise ExpressionError(f"The expression could not be evaluated: {reason}.") from None


def _check_node(node: ast.AST, depth: int) -> None:
    if depth == 0:
        raise ExpressionError(f"An expression may nest at most {MAX_DEPTH} levels deep.")
    if type(node) not in _NODES and type(node) not in _UNCHECKED_NODES:
        raise ExpressionError(f"An expression may not use {_NODE_NAMES.get(type(node), type(node).__name__)}.")
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            raise ExpressionError(f"An expression may call only {', '.join(sorted(FUNCTIONS))}.")
        if node.keywords:
            raise ExpressionError("An expression may not name arguments in a call.")
    if isinstance(node, ast.Constant) and type(node.value) not in _LITERALS:
        raise ExpressionError(f"An expression may not use {type(node.value).__name__} literals.")
    if isinstance(node, ast.Dict) and None in node.keys:
        raise ExpressionError("An expression may not use ** to unpack.")
    for child in ast.iter_child_nodes(node):
        _check_node(child, depth if type(child) in _UNCHECKED_NODES else depth - 1)


def _number(value: object) -> Number:
    """Check an operand of arithmetic. Raises TypeError unless it is a number, OverflowError if it is too large."""
    if not isinstance(value, int | float):
        raise TypeError
    if not isfinite(value) if isinstance(value, float) else value.bit_length() > MAX_BITS:
        raise OverflowError
    return value


def _arithmetic(compute: Callable[[Number, Number], Any]) -> Callable[[Budget, object, object], Number]:
    def operate(budget: Budget, left: object, right: object) -> Number:
        budget.charge_value(left)
        budget.charge_value(right)
        return _number(compute(_number(left), _number(right)))

    return operate


def _power(base: Number, exponent: Number) -> Number:
    bits = base.bit_length() if isinstance(base, int) else 1
    if abs(exponent) > MAX_EXPONENT or bits * abs(exponent) > MAX_BITS:
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError
    return result


_add_numbers = _arithmetic(operator.add)


def _add(budget: Budget, left: Any, right: Any) -> Any:
    if type(left) is not type(right) or not isinstance(left, str | list | tuple):
        return _add_numbers(budget, left, right)
    length = len(left) + len(right)
    if length > MAX_LENGTH:
        raise OverflowError
    budget.charge(length // CHARACTERS_PER_COST if isinstance(left, str) else length)
    return left + right


def _sign(apply: Callable[[Number], Number]) -> Callable[[Budget, object], Number]:
    def operate(budget: Budget, value: object) -> Number:
        budget.charge_value(value)
        return apply(_number(value))

    return operate


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    def operate(budget: Budget, left: Any, right: Any) -> bool:
        if isinstance(left, (str, *_CONTAINERS)) and isinstance(right, type(left)):
            budget.charge_value(min(left, right, key=len))
        return compare(left, right)

    return operate


def _contains(budget: Budget, item: Any, container: Any) -> bool:
    if isinstance(container, list | tuple) and isinstance(item, (str, *_CONTAINERS)):
        budget.charge_value(container)
    elif isinstance(container, dict):
        budget.charge_value(item)
    elif isinstance(container, str):
        budget.charge_value([item, container])
    else:
        budget.charge(len(container))
    return item in container


def _over_all_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that reads all values inside its arguments, so that each of those values is charged."""

    def call(budget: Budget, *arguments: Any) -> Any:
        budget.charge_value(arguments)
        return function(*arguments)

    return call


def _over_items(function: Callable[[Any], Any]) -> Callable[[Budget, Any], Any]:
    """Wrap a function that reads only the items of its argument, so that values inside the items are not charged."""

    def call(budget: Budget, values: Any) -> Any:
        budget.charge(len(values))
        return function(values)

    return call


def _sorted(budget: Budget, values: Any) -> list[Any]:
    budget.charge_value(values, times=len(values).bit_length())
    return sorted(values)


def _text(budget: Budget, value: object = "") -> str:
    if isinstance(value, str):
        return value
    left = budget.left
    budget.charge_value(value)
    if (left - budget.left) * MIN_CHARACTERS > MAX_LENGTH:
        raise OverflowError
    text = str(value)
    if len(text) > MAX_LENGTH:
        raise OverflowError
    return text


def _round(number: object, digits: object = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise OverflowError
    return round(_number(number), digits) if digits else round(_number(number))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": lambda _, value: len(value),
    "any": _over_items(any),
    "all": _over_items(all),
    "min": _over_all_values(min),
    "max": _over_all_values(max),
    "sum": _over_items(lambda values: _number(sum(map(_number, values)))),
    "abs": _sign(abs),
    "bool": lambda _, value=False: bool(value),
    "int": _over_all_values(int),
    "str": _text,
    "float": _over_all_values(lambda value=0.0: _number(float(value))),
    "isinstance": lambda _, value, kinds: isinstance(value, kinds),
    "round": _over_all_values(_round),
    "sorted": _sorted,
}

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _add,
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.FloorDiv: _arithmetic(operator.floordiv),
    ast.Mod: _arithmetic(operator.mod),
    ast.Pow: _arithmetic(_power),
    ast.UAdd: _sign(operator.pos),
    ast.USub: _sign(operator.neg),
    ast.Not: lambda _, value: not value,
    ast.Eq: _comparison(operator.eq),
    ast.NotEq: _comparison(operator.ne),
    ast.Lt: _comparison(operator.lt),
    ast.LtE: _comparison(operator.le),
    ast.Gt: _comparison(operator.gt),
    ast.GtE: _comparison(operator.ge),
    ast.Is: lambda _, left, right: left is right,
    ast.IsNot: lambda _, left, right: left is not right,
    ast.In: _contains,
    ast.NotIn: lambda budget, item, container: not _contains(budget, item, container),
}


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval's evaluator with our own tables. Skips its costly constructor, as one is made per evaluation."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.budget = Budget()
        self.operators = {kind: partial(operate, self.budget) for kind, operate in _OPERATORS.items()}
        self.functions = {name: partial(function, self.budget) for name, function in FUNCTIONS.items()}

    def _eval(self, node: ast.AST) -> Any:
        self.budget.charge(1)
        return _NODES[type(node)](self, node)

    def _eval_name(self, node: ast.Name) -> Any:
        try:
            return self.names[node.id]
        except KeyError:
            raise UnknownName(node.id) from None

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        container = self._eval(node.value)
        key = self._eval(node.slice)
        if isinstance(key, slice):
            length = len(range(*key.indices(len(container))))
            self.budget.charge(length // CHARACTERS_PER_COST if isinstance(container, str) else length)
        return container[key]


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
    ast.IfExp: _Evaluator._eval_ifexp,
    ast.Call: _Evaluator._eval_call,
    ast.Subscript: _Evaluator._eval_subscript,
    ast.Slice: _Evaluator._eval_slice,
}
_UNCHECKED_NODES = frozenset({ast.And, ast.Or, ast.Load, *_OPERATORS})
_LITERALS = frozenset({str, int, float, bool, type(None)})
_NODE_NAMES: Mapping[type[ast.AST], str] = {
    ast.Attribute: "attributes or methods; write value['key'] instead of value.key",
    ast.Lambda: "lambda",
    ast.JoinedStr: "f-strings",
    ast.NamedExpr: "assignment",
    ast.Starred: "* to unpack",
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "comprehensions"),
}
_REASONS: Mapping[type[Exception], str] = {
    CostExceeded: f"it would handle more than {MAX_COST:,} values; refer to a smaller part",
    ZeroDivisionError: "it divides by zero",
    OverflowError: "a number, string or list in it becomes too large",
    LookupError: "a key or position that it reads does not exist",
    ValueError: "a string in it is not a number",
    TypeError: "it combines values of incompatible types",
    RecursionError: "a value in it is nested too deeply",
}
