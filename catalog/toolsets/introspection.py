"""Asking about the Python standard library, and evaluating an expression safely."""

import inspect
from typing import Annotated, Any

from pydantic import Field

from catalog.errors import DataNotFound
from catalog.tools import tool
from catalog.toolsets.arithmetic import evaluate
from catalog.toolsets.symbols import (
    COMMON_MODULES,
    documentation_of,
    find_module,
    find_symbol,
    kind_of,
    known_modules,
    public_names,
    summary_of,
)

MAX_MATCHES = 100
MAX_DOCUMENTATION = 4000

Symbol = Annotated[
    str, Field(description="Dotted name in the Python standard library, such as json.dumps", max_length=200)
]
Query = Annotated[str, Field(description="Part of a name; letter case is ignored", min_length=2, max_length=100)]
Module = Annotated[str | None, Field(description="Look only into this module", max_length=100)]
Form = Annotated[
    str,
    Field(description="Expression of values, operators, lists and round, min, max, sum, len", max_length=500),
]


@tool(categories=["introspection"], retry_safe=True)
def describe_symbol(symbol: Symbol) -> dict[str, Any]:
    """Describe a module, class or function of the Python standard library: kind, arguments, documentation."""
    found = find_symbol(symbol)
    described = {"symbol": symbol, "kind": kind_of(found), "type": type(found).__name__}
    if described["kind"] in ("function", "class"):
        described["arguments"] = _arguments(found)
    return described | {"documentation": documentation_of(found)[:MAX_DOCUMENTATION]}


@tool(categories=["introspection"], retry_safe=True)
def apropos_search(query: Query, module: Module = None) -> dict[str, Any]:
    """Find names of the Python standard library that contain a text; at most 100, with a line about each."""
    wanted = query.casefold()
    places = COMMON_MODULES if module is None else (module,)
    matches = [
        {"symbol": f"{place}.{name}", "kind": kind_of(found), "summary": summary_of(found)}
        for place in places
        for name, found in public_names(find_module(place))
        if wanted in name.casefold()
    ]
    if module is None:
        names = [name for name in known_modules() if wanted in name]
        matches = [{"symbol": name, "kind": "module", "summary": ""} for name in names] + matches
    return {"results": matches[:MAX_MATCHES], "total": len(matches)}


@tool(categories=["introspection"], retry_safe=True)
def function_arglist(symbol: Symbol) -> dict[str, Any]:
    """Show the arguments that a function or class of the Python standard library takes."""
    found = find_symbol(symbol)
    arguments = _arguments(found) if callable(found) else ""
    if not arguments:
        raise DataNotFound(f"Python does not say which arguments '{symbol}' takes.")
    return {"symbol": symbol, "arguments": arguments}


@tool(safety_level="cautious", categories=["execution"], retry_safe=True)
def eval_form(form: Form) -> Any:
    """Evaluate an expression such as (394328 - 365817) / 365817 * 100 and return its value."""
    return evaluate(form)


def _arguments(found: object) -> str:
    try:
        return str(inspect.signature(found))[:1000]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
