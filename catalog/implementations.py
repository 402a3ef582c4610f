"""Code that serves a tool beside its own handler: checked against the tool's contract, then put in its place.

Knows neither rows nor weights: which implementation serves a call is the snapshot's to say.
"""

import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catalog.definitions.binding import Handler, QueryBinding, binding_for, hints_of, output_of
from catalog.definitions.tool import Tool, source_digest
from catalog.errors import ToolDefinitionError

REFERENCE = re.compile(r"[!-~]{1,255}")
_OFFERED_WITH_QUERY_TYPES = frozenset({"params", "query_type", "context"})


@dataclass(eq=False, slots=True)
class LoadedImplementation:
    """Other code for the tool `tool_name`; `reference` names it for people and tells it from the others."""

    tool_name: str
    handler: Handler
    reference: str
    previewer: Handler | None = None

    def preview(self, function: Handler) -> Handler:
        """Name the hook that shows what a call would do here (decorator); without one the tool's own shows it."""
        self.previewer = function
        return function

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the source of the handler's module, and of the reference: a module may hold several."""
        text = f"{source_digest(self.handler.__module__)} {self.reference}"
        return hashlib.sha256(text.encode()).hexdigest()


def implementation_of(tool: Tool[Any, Any], handler: Handler, reference: str | None) -> LoadedImplementation:
    """Return `handler` as one more implementation of the tool; raise ToolDefinitionError where it does not fit."""
    if not callable(handler):
        raise ToolDefinitionError(f"An implementation of {tool.name} must be a function, not {handler!r}.")
    name = reference or reference_of(handler)
    if not REFERENCE.fullmatch(name):
        raise ToolDefinitionError(f"The reference {name[:80]!r} must be 1 to 255 visible ASCII characters, no spaces.")
    if name == tool.reference:
        raise ToolDefinitionError(f"{name} already is the handler of {tool.name}; give the other code a reference.")
    _judge(tool, handler, name)
    return LoadedImplementation(tool.name, handler, name)


def reference_of(handler: Handler) -> str:
    """Return where a handler is, as "module:qualname"."""
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{handler.__module__}:{named.__qualname__}"


def served_by(tool: Tool[Any, Any], implementation: LoadedImplementation) -> Tool[Any, Any]:
    """Return the tool, its contract as it is, with the implementation's code in the place of its own."""
    identity = {"reference": implementation.reference, "digest": implementation.digest}
    return tool.with_code(implementation.handler, implementation.previewer, **identity)


def _judge(tool: Tool[Any, Any], handler: Handler, name: str) -> None:
    """Raise ToolDefinitionError unless the handler takes and gives what the tool's own does."""
    for differs, what in _CHECKS:
        if differs(tool, handler):
            raise ToolDefinitionError(f"{name} cannot serve {tool.name}: {what}.")


def _takes_other_arguments(tool: Tool[Any, Any], handler: Handler) -> bool:
    if tool.bound is not None:
        return False  # one dict of arguments, whatever the handler calls it
    if isinstance(tool.binding, QueryBinding):
        parameters = inspect.signature(handler).parameters.values()
        needed = {each.name for each in parameters if each.default is each.empty}
        return not needed <= _OFFERED_WITH_QUERY_TYPES
    return binding_for(handler).input_schema != tool.input_schema or _annotations(handler) != _annotations(tool.handler)


def _annotations(handler: Handler) -> dict[str, Any]:
    return {name: hint for name, hint in hints_of(handler).items() if name not in ("context", "return")}


def _gives_something_else(tool: Tool[Any, Any], handler: Handler) -> bool:
    schema = output_of(handler)[1]
    return schema is not None and schema != tool.output_schema


_CHECKS: tuple[tuple[Callable[[Tool[Any, Any], Handler], bool], str], ...] = (
    (_takes_other_arguments, "its parameters are not those of the tool"),
    (_gives_something_else, "it returns something else than the tool"),
)
