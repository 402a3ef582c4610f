"""Safe evaluator of one expression: values, operators and a few functions; no names, no attributes.

Every node type must be on a list of allowed ones before anything is computed, and every operation is bounded in size.
"""

import ast
import operator
from collections.abc import Callable
from math import isfinite
from typing import Any

from simpleeval import EvalWithCompoundTypes, InvalidExpression  # type: ignore[import-untyped]

from catalog.errors import ToolError

MAX_EXPRESSION_LENGTH = 500
MAX_EXPRESSION_DEPTH = 20
MAX_NUMBER = 10**30
MAX_ITEMS = 1000
MAX_EXPONENT = 100
MAX_DIGITS = 15

_ALLOWED_NODES = (
    *(
        ast.Expression,
        ast.Constant,
        ast.Load,
        ast.List,
        ast.Tuple,
        ast.Dict,
        ast.Subscript,
        ast.Call,
        ast.Name,
    ),
    *(ast.UnaryOp, ast.UAdd, ast.USub, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv),
    *(
        ast.Mod,
        ast.Pow,
        ast.BoolOp,
        ast.And,
        ast.Or,
        ast.IfExp,
        ast.Compare,
        ast.Eq,
        ast.NotEq,
        ast.Lt,
        ast.LtE,
    ),
    *(ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
)


def evaluate_expression(form: str) -> Any:
    """Return the value of an expression. Raises ToolError with the reason if it cannot be evaluated."""
    tree = _parse(form)
    _validate(tree.body, MAX_EXPRESSION_DEPTH)
    evaluator = EvalWithCompoundTypes(operators=_OPERATORS, functions=dict(_FUNCTIONS), names={})
    try:
        return _check_bounds(evaluator.eval("", previously_parsed=tree.body))
    except ToolError:
        raise
    except InvalidExpression as error:
        raise ToolError(f"This cannot be evaluated: {_first_line(error)}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"This cannot be evaluated: {type(error).__name__}: {_first_line(error)}") from None


def _parse(form: str) -> ast.Expression:
    if len(form) > MAX_EXPRESSION_LENGTH:
        raise ToolError(f"An expression may have at most {MAX_EXPRESSION_LENGTH} characters.")
    try:
        return ast.parse(form.strip(), mode="eval")
    except SyntaxError as error:
        raise ToolError(f"This is not an expression: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"This is not an expression: {_first_line(error)}") from None


def _validate(node: ast.AST, depth: int) -> None:
    if depth <= 0:
        raise ToolError(f"An expression may nest at most {MAX_EXPRESSION_DEPTH} levels.")
    if not isinstance(node, _ALLOWED_NODES):
        raise ToolError(
            f"{type(node).__name__} is not allowed here: only values, operators and {', '.join(_FUNCTIONS)}."
        )
    if isinstance(node, ast.Call):
        _validate_call(node)
    elif isinstance(node, ast.Name):
        raise ToolError(f"The name '{node.id}' is not defined. Write the value itself.")
    elif isinstance(node, ast.Constant) and not isinstance(node.value, bool | int | float | str | None):
        raise ToolError(f"A value of type {type(node.value).__name__} is not allowed here.")
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and child is node.func):
            _validate(child, depth - 1)


def _validate_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
        raise ToolError(f"Only these functions can be called, with plain arguments: {', '.join(_FUNCTIONS)}.")


def _check_bounds(value: Any) -> Any:
    if isinstance(value, int | float) and (not isfinite(value) or abs(value) > MAX_NUMBER):
        raise ToolError("The number becomes too large.")
    if isinstance(value, str | list | tuple | dict) and len(value) > MAX_ITEMS:
        raise ToolError(f"The value becomes longer than {MAX_ITEMS} entries.")
    return value


def _number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"Arithmetic needs numbers, not {type(value).__name__}.")
    return value


def _numeric(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: _check_bounds(operation(_number(left), _number(right)))


def _add(left: Any, right: Any) -> Any:
    if type(left) is type(right) and isinstance(left, str | list):
        return _check_bounds(left + right)
    return _check_bounds(_number(left) + _number(right))


def _power(base: Any, exponent: Any) -> Any:
    if abs(_number(exponent)) > MAX_EXPONENT:
        raise ToolError(f"An exponent may be at most {MAX_EXPONENT}.")
    return _number(_check_bounds(_number(base) ** exponent))


def _round(number: Any, digits: int = 0) -> Any:
    if abs(_number(digits)) > MAX_DIGITS:
        raise ToolError(f"round() takes at most {MAX_DIGITS} digits.")
    return round(_number(number), digits) if digits else round(_number(number))


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _add,
    ast.Sub: _numeric(operator.sub),
    ast.Mult: _numeric(operator.mul),
    ast.Div: _numeric(operator.truediv),
    ast.FloorDiv: _numeric(operator.floordiv),
    ast.Mod: _numeric(operator.mod),
    ast.Pow: _power,
    ast.UAdd: lambda value: +_number(value),
    ast.USub: lambda value: -_number(value),
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    "sum": sum,
    "len": len,
    "int": int,
    "float": float,
    "sorted": sorted,
}


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
