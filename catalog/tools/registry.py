"""The tools this process can run, by name, with the code that serves each; filled at start-up.

Knows nothing of rows, versions or weights: those are made from this by the synchronisation. Code that serves a tool
beside its own handler is checked against the tool's contract. A module that cannot be loaded has no tools, and why is
kept in one line that gives nothing away: it stands on a page.
"""

import difflib
import hashlib
import importlib
import inspect
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import ModuleType
from typing import Any, TypeVar

from django.conf import settings

from catalog.core.rate_limits import RateLimit
from catalog.definitions.binding import Handler, QueryBinding, binding_for, handler_output, resolved_hints
from catalog.definitions.tool import Tool, source_digest
from catalog.errors import ToolDefinitionError, UnknownTool
from catalog.tools.class_tools import BaseTool

REFERENCE_PATTERN = re.compile(r"[!-~]{1,255}")
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


def make_implementation(tool: Tool[Any, Any], handler: Handler, reference: str | None) -> LoadedImplementation:
    """Return `handler` as one more implementation of the tool; raise ToolDefinitionError where it does not fit."""
    if not callable(handler):
        raise ToolDefinitionError(f"An implementation of {tool.name} must be a function, not {handler!r}.")
    name = reference or handler_reference(handler)
    if not REFERENCE_PATTERN.fullmatch(name):
        raise ToolDefinitionError(f"The reference {name[:80]!r} must be 1 to 255 visible ASCII characters, no spaces.")
    if name == tool.reference:
        raise ToolDefinitionError(f"{name} already is the handler of {tool.name}; give the other code a reference.")
    _validate_handler(tool, handler, name)
    return LoadedImplementation(tool.name, handler, name)


def handler_reference(handler: Handler) -> str:
    """Return where a handler is, as "module:qualname"."""
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{handler.__module__}:{named.__qualname__}"


def with_implementation(tool: Tool[Any, Any], implementation: LoadedImplementation) -> Tool[Any, Any]:
    """Return the tool, its contract as it is, with the implementation's code in the place of its own."""
    identity = {"reference": implementation.reference, "digest": implementation.digest}
    return tool.with_code(implementation.handler, implementation.previewer, **identity)


def _validate_handler(tool: Tool[Any, Any], handler: Handler, name: str) -> None:
    """Raise ToolDefinitionError unless the handler takes and gives what the tool's own does."""
    for differs, what in _HANDLER_CHECKS:
        if differs(tool, handler):
            raise ToolDefinitionError(f"{name} cannot serve {tool.name}: {what}.")


def _has_other_parameters(tool: Tool[Any, Any], handler: Handler) -> bool:
    if tool.bound is not None:
        return False  # one dict of arguments, whatever the handler calls it
    if isinstance(tool.binding, QueryBinding):
        parameters = inspect.signature(handler).parameters.values()
        needed = {each.name for each in parameters if each.default is each.empty}
        return not needed <= _OFFERED_WITH_QUERY_TYPES
    return binding_for(handler).input_schema != tool.input_schema or _parameter_annotations(
        handler
    ) != _parameter_annotations(tool.handler)


def _parameter_annotations(handler: Handler) -> dict[str, Any]:
    return {name: hint for name, hint in resolved_hints(handler).items() if name not in ("context", "return")}


def _has_other_output(tool: Tool[Any, Any], handler: Handler) -> bool:
    schema = handler_output(handler)[1]
    return schema is not None and schema != tool.output_schema


_HANDLER_CHECKS: tuple[tuple[Callable[[Tool[Any, Any], Handler], bool], str], ...] = (
    (_has_other_parameters, "its parameters are not those of the tool"),
    (_has_other_output, "it returns something else than the tool"),
)


MAX_ERROR_LINE = 300
# What these say is about code, in Python's own words or ours; any other message may hold what the module had read.
CODE_ERRORS = (ImportError, SyntaxError, NameError, AttributeError, ToolDefinitionError)


def describe_import_error(error: BaseException, module: str) -> str:
    """Return the kind of error, what it says where that is about code, and the line of the module it came from."""
    said = f": {_first_line(error)}" if isinstance(error, CODE_ERRORS) else ""
    line = _failing_line(error, module)
    return f"{type(error).__name__}{said}{f' (line {line} of {module})' if line else ''}"


def _first_line(error: BaseException) -> str:
    said = str(error).strip().partition("\n")[0][:MAX_ERROR_LINE]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in said)


def _failing_line(error: BaseException, module: str) -> int | None:
    """Return the last line of the module itself that was at work."""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == module
    ]
    return lines[-1] if lines else None


SHIPPED_TOOLSETS = ("workspace", "introspection", "finance", "text", "greetings", "registrations")
ENTRY_POINT_GROUP = "toolgate.tools"
RESERVED_NAMES = frozenset({"agent_turn", "approval_result", "ask_user", "compose_reply", "draft_plan", "plan_on"})
"""What the layers above give a meaning of its own by its name, also where no model is configured."""
RESERVED_PREFIX = "planning_"

ToolT = TypeVar("ToolT", bound=Tool[Any, Any] | BaseTool)

logger = logging.getLogger("toolgate.tools")

_TOOLS: dict[str, Tool[Any, Any]] = {}
_IMPLEMENTATIONS: dict[str, dict[str, LoadedImplementation]] = {}
_IMPORT_ERRORS: dict[str, str] = {}
_modules_above: dict[str, Callable[[], bool]] = {}


def register_module(module: str, when: Callable[[], bool]) -> None:
    """Let a module of the layers above register its tools at start-up, like the toolsets, while `when` says so."""
    _modules_above[module] = when


def register_tool(tool: ToolT) -> ToolT:
    """Register a tool, replacing its namesake, and return what was given; `get_tool` returns what the catalog runs.

    Raises ToolDefinitionError for a reserved name, and for types that are not the handler's.
    """
    held = tool.as_tool() if isinstance(tool, BaseTool) else tool
    is_theirs = held.name in RESERVED_NAMES and held.reference.partition(":")[0] in _modules_above
    if is_reserved(held.name) and not is_theirs:
        raise ToolDefinitionError(f"The tool name '{held.name}' is reserved; choose another.")
    _store_tool(held)
    return tool


def is_reserved(name: str) -> bool:
    """Say whether only Toolgate itself may have a tool of this name."""
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX)


def _store_tool(tool: Tool[Any, Any]) -> None:
    tool.judge_types()
    _TOOLS[tool.name] = tool
    logger.debug("tool_registered name=%s", tool.name)


def register_implementation(tool_name: str, handler: Handler, *, reference: str | None = None) -> LoadedImplementation:
    """Register more code for a registered tool, replacing its namesake, and return it.

    `reference` names the code; without one it is called "module:qualname". Keep what is returned in the module, so
    that it is found there with the tools. Raises ToolDefinitionError without the tool, or when the code does not fit.
    """
    tool = None if is_reserved(tool_name) else _TOOLS.get(tool_name)
    if tool is None:
        raise ToolDefinitionError(f"There is no tool '{tool_name}' to implement: register the tool first.")
    return _store_implementation(make_implementation(tool, handler, reference))


def _store_implementation(implementation: LoadedImplementation) -> LoadedImplementation:
    _IMPLEMENTATIONS.setdefault(implementation.tool_name, {})[implementation.reference] = implementation
    return implementation


def loaded_variants(tool: Tool[Any, Any]) -> dict[str, Tool[Any, Any]]:
    """Return the tool once for each implementation loaded here, by its reference, its own handler first."""
    added = _IMPLEMENTATIONS.get(tool.name, {})
    return {tool.reference: tool} | {name: with_implementation(tool, each) for name, each in added.items()}


def get_tool(name: str) -> Tool[Any, Any] | None:
    """Return the tool of this name, or None."""
    return _TOOLS.get(name)


def output_key_of(name: str | None) -> str:
    """Return the key under which the tool of this name wants its results kept; empty when it has none."""
    tool = _TOOLS.get(name) if name else None
    return (tool.output_key or "") if tool else ""


def get_all_tools() -> dict[str, Tool[Any, Any]]:
    """Return all tools by name, in the order they were registered."""
    return _TOOLS.copy()


def get_tool_descriptions() -> list[dict[str, Any]]:
    """Return what a planner reads to choose: name, description, requires_identifier.

    As authors wrote it: the registry knows no rows, so not what administrators have set;
    `snapshot.callable_tools` does.
    """
    return [
        {"name": tool.name, "description": tool.description, "requires_identifier": tool.requires_identifier}
        for tool in _TOOLS.values()
    ]


def effective_rate_limits(tool: Tool[Any, Any]) -> tuple[RateLimit, ...]:
    """Return the limits that hold for a tool: its own, else those that another tool of its group declares."""
    if tool.rates or tool.rate_limit_key is None:
        return tool.rates
    group = (other.rates for other in list(_TOOLS.values()) if other.rate_limit_key == tool.rate_limit_key)
    return next(filter(None, group), ())


def nearest_names(name: str, limit: int = 3) -> list[str]:
    """Return the other tool names that look most like this one, best first."""
    return difflib.get_close_matches(name, _TOOLS.keys() - {name}, n=limit)


def unknown_tool_error(name: str) -> UnknownTool:
    """Return the error for a name that no tool has, with the names it may have meant; the miss is logged."""
    logger.warning("tool_not_found name=%.80r", name)
    return UnknownTool(name, nearest_names(name))


def initialize_tools() -> None:
    """Register the shipped toolsets, the modules of TOOLGATE_TOOLS and the entry points; idempotent.

    Other people's modules may fail as they like: one that does has no tools, and `broken_modules` says why.
    """
    for toolset in SHIPPED_TOOLSETS:
        _register_from(importlib.import_module(f"catalog.toolsets.{toolset}"))
    for module, when in _modules_above.items():
        if when():
            _register_from(importlib.import_module(module), take=_store_tool)
    _IMPORT_ERRORS.clear()
    for name in settings.TOOLGATE_TOOLS:
        _load_module(name, partial(importlib.import_module, name))
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        _load_module(entry_point.module, entry_point.load)
    logger.info("tools_initialized count=%d", len(_TOOLS))


def broken_modules() -> dict[str, str]:
    """Return the modules that could not be loaded, each with why."""
    return _IMPORT_ERRORS.copy()


def _load_module(name: str, load: Callable[[], object]) -> None:
    """Register what a module offers, all of it or nothing."""
    tools, codes = _TOOLS.copy(), {tool: added.copy() for tool, added in _IMPLEMENTATIONS.items()}
    try:
        _register_from(load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever one author's module does, the others' tools work
        logger.error("tools_broken module=%s error=%s", name, type(error).__name__)
        _IMPORT_ERRORS[name] = describe_import_error(error, name)
        _restore_registry(tools, codes)
    for replaced in (each for each in tools.values() if _TOOLS[each.name].reference != each.reference):
        logger.warning("tool_replaced name=%s module=%s was=%s", replaced.name, name, replaced.reference)


def _restore_registry(
    tools: Mapping[str, Tool[Any, Any]], codes: Mapping[str, dict[str, LoadedImplementation]]
) -> None:
    """Undo what a module registered before it failed; others may be reading meanwhile."""
    for name in _TOOLS.keys() - tools.keys():
        del _TOOLS[name]
    for name in _IMPLEMENTATIONS.keys() - codes.keys():
        del _IMPLEMENTATIONS[name]
    _TOOLS.update(tools)
    _IMPLEMENTATIONS.update(codes)


def _register_from(source: object, take: Callable[[Any], object] = register_tool) -> None:
    """Register every tool found in a module, in a list of tools, or the tool itself; what ships may `take` any name."""
    found: Iterable[object] = [source]
    if isinstance(source, ModuleType):
        found = list(vars(source).values())
    elif isinstance(source, list | tuple):
        found = source
    tools: dict[str, object] = {}
    for each in found:
        if isinstance(each, Tool | BaseTool):
            if tools.setdefault(each.name, each) is not each:
                raise ToolDefinitionError(f"The tool '{each.name}' is there twice in one set of tools; rename one.")
            take(each)
        elif isinstance(each, LoadedImplementation):
            _store_implementation(each)
