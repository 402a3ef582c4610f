"""Tools that look up the Python standard library, and evaluate an expression safely.

No code of the library is run and no value is returned. Only its own modules are imported, except those with side
effects on import; attributes are found statically, so no property runs.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field

from catalog.core.expressions import ExpressionError, evaluate
from catalog.errors import DataNotFound, ToolError
from catalog.tools import tool

MAX_MATCHES = 100
MAX_DOCUMENTATION = 4000
MAX_NUMBER = 10**30

Symbol = Annotated[
    str, Field(description="Dotted name in the Python standard library, such as json.dumps", max_length=200)
]
Query = Annotated[str, Field(description="Part of a name; letter case is ignored", min_length=2, max_length=100)]
Module = Annotated[str | None, Field(description="Look only into this module", max_length=100)]
Form = Annotated[
    str,
    Field(description="Expression of values, operators, lists and round, min, max, sum, len, sorted", max_length=500),
]


@tool(categories=["introspection"], retry_safe=True)
def describe_symbol(symbol: Symbol) -> dict[str, Any]:
    """Describe a module, class or function of the Python standard library: kind, arguments, documentation."""
    found = find_symbol(symbol)
    described = {"symbol": symbol, "kind": object_kind(found), "type": type(found).__name__}
    if described["kind"] in ("function", "class"):
        described["arguments"] = _arguments(found)
    return described | {"documentation": full_documentation(found)[:MAX_DOCUMENTATION]}


@tool(categories=["introspection"], retry_safe=True)
def apropos_search(query: Query, module: Module = None) -> dict[str, Any]:
    """Find names of the Python standard library that contain a text; at most 100, with a line about each."""
    needle = query.casefold()
    places = COMMON_MODULES if module is None else (module,)
    matches = [
        {"symbol": f"{place}.{name}", "kind": object_kind(found), "summary": documentation_summary(found)}
        for place in places
        for name, found in public_names(find_module(place))
        if needle in name.casefold()
    ]
    if module is None:
        names = [name for name in known_modules() if needle in name]
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
    try:
        value = evaluate(form, {})
    except ExpressionError as error:
        raise ToolError(str(error)) from None
    if isinstance(value, int | float) and not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise ToolError(f"The number is too large: at most {MAX_NUMBER:.0e} is returned.")
    return value


def _arguments(found: object) -> str:
    try:
        return str(inspect.signature(found))[:1000]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


MAX_PARTS = 8

# Importing these opens a browser, prints, changes the terminal, needs a display, or patches the process.
_EXCLUDED_MODULES = frozenset(
    {
        *("antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "readline", "rlcompleter"),
        *("distutils", "lib2to3", "test", "nt", "winreg", "msilib", "site", "pty"),
    }
)
COMMON_MODULES = (
    *(
        "builtins",
        "collections",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "functools",
        "hashlib",
        "itertools",
    ),
    *(
        "json",
        "math",
        "os",
        "os.path",
        "pathlib",
        "random",
        "re",
        "statistics",
        "string",
        "textwrap",
        "time",
        "typing",
    ),
)


def find_symbol(name: str) -> Any:
    """Return the module, class or function with this dotted name. Raises ToolError or DataNotFound."""
    parts = name.split(".")
    if len(parts) > MAX_PARTS or not all(part.isidentifier() for part in parts):
        raise ToolError(f"'{name}' is not a dotted name such as 'json.dumps'.")
    if not is_known_module(parts[0]):
        parts = ["builtins", *parts]
    found, rest = _deepest_module(parts)
    for part in rest:
        owner, found = found, inspect.getattr_static(found, part, None)
        if found is None:
            where = getattr(owner, "__name__", type(owner).__name__)
            raise DataNotFound(f"'{name}' does not exist in the Python standard library: {where} has no '{part}'.")
        found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    return found


def find_module(name: str) -> ModuleType:
    """Return a module of the standard library. Raises DataNotFound."""
    found = find_symbol(name)
    if not inspect.ismodule(found):
        raise DataNotFound(f"'{name}' is not a module of the Python standard library.")
    return found


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    offered = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in sorted(offered):
        if name in vars(module):
            yield name, vars(module)[name]


def known_modules() -> list[str]:
    """Return the names of the modules that can be inspected."""
    return sorted(name for name in sys.stdlib_module_names if is_known_module(name))


def is_known_module(name: str) -> bool:
    """Return whether a top-level module may be imported."""
    return name in sys.stdlib_module_names and name not in _EXCLUDED_MODULES and not name.startswith("_")


def object_kind(found: object) -> str:
    if inspect.ismodule(found):
        return "module"
    if inspect.isclass(found):
        return "exception" if issubclass(found, BaseException) else "class"
    return "function" if callable(found) else "value"


def documentation_summary(found: object) -> str:
    """Return the first line of an object's documentation."""
    return full_documentation(found).partition("\n")[0][:200]


def full_documentation(found: object) -> str:
    """Return an object's documentation; for a plain value the documentation of its type, never the value."""
    subject = found if object_kind(found) != "value" else type(found)
    return inspect.getdoc(subject) or ""


def _deepest_module(parts: list[str]) -> tuple[Any, list[str]]:
    module = _import_module(parts[0])
    for depth in range(1, len(parts)):
        if not hasattr(module, "__path__") or parts[depth] in vars(module) or parts[depth].startswith("_"):
            inner = vars(module).get(parts[depth])
            if not inspect.ismodule(inner) or inner.__name__ != ".".join(parts[: depth + 1]):
                return module, parts[depth:]
            module = inner
            continue
        found = _import_module(".".join(parts[: depth + 1]), optional=True)
        if found is None:
            return module, parts[depth:]
        module = found
    return module, []


def _import_module(name: str, *, optional: bool = False) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a module for another platform may fail in any way
        if optional:
            return None
        raise DataNotFound(f"The module '{name}' cannot be imported here ({type(error).__name__}).") from None
