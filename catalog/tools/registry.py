"""Registry of the tools this process can run, by name, with their implementations; filled at start-up.

A module that fails to load has no tools. The reason is kept without private data, because a page displays it.
"""

import difflib
import hashlib
import importlib
import inspect
import logging
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
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
from catalog.styles.class_tools import BaseTool

REFERENCE_PATTERN = re.compile(r"[!-~]{1,255}")
_OFFERED_WITH_QUERY_TYPES = frozenset({"params", "query_type", "context"})


@dataclass(eq=False, slots=True)
class LoadedImplementation:
    """Another implementation of the tool `tool_name`; `reference` is its unique name."""

    tool_name: str
    handler: Handler
    reference: str
    previewer: Handler | None = None

    def preview(self, function: Handler) -> Handler:
        """Register the decorated function as this implementation's preview. Without one, the tool's preview is used."""
        self.previewer = function
        return function

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the handler's module and of the reference, as a module may have several handlers."""
        text = f"{source_digest(self.handler.__module__)} {self.reference}"
        return hashlib.sha256(text.encode()).hexdigest()


def make_implementation(tool: Tool[Any, Any], handler: Handler, reference: str | None) -> LoadedImplementation:
    """Return `handler` as another implementation of the tool. Raises ToolDefinitionError if its types differ."""
    if not callable(handler):
        raise ToolDefinitionError(f"An implementation of {tool.name} must be a function, not {handler!r}.")
    name = reference or handler_reference(handler)
    if not REFERENCE_PATTERN.fullmatch(name):
        raise ToolDefinitionError(f"The reference {name[:80]!r} must be 1 to 255 visible ASCII characters, no spaces.")
    if name == tool.reference:
        raise ToolDefinitionError(f"{name} already is the handler of {tool.name}. Pass a different reference.")
    if _has_other_parameters(tool, handler):
        raise ToolDefinitionError(f"{name} cannot serve {tool.name}: its parameters differ from the tool's.")
    output = handler_output(handler)[1]
    if output is not None and output != tool.output_schema:
        raise ToolDefinitionError(f"{name} cannot serve {tool.name}: its result type differs from the tool's.")
    return LoadedImplementation(tool.name, handler, name)


def handler_reference(handler: Handler) -> str:
    """Return the location of a handler as "module:qualname"."""
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{handler.__module__}:{named.__qualname__}"


def with_implementation(tool: Tool[Any, Any], implementation: LoadedImplementation) -> Tool[Any, Any]:
    """Return the tool with the same contract and the implementation's code."""
    identity = {"reference": implementation.reference, "digest": implementation.digest}
    return tool.with_code(implementation.handler, implementation.previewer, **identity)


def _has_other_parameters(tool: Tool[Any, Any], handler: Handler) -> bool:
    if tool.bound is not None:
        return False  # one dict of arguments, under any parameter name
    if isinstance(tool.binding, QueryBinding):
        parameters = inspect.signature(handler).parameters.values()
        needed = {each.name for each in parameters if each.default is each.empty}
        return not needed <= _OFFERED_WITH_QUERY_TYPES
    return binding_for(handler).input_schema != tool.input_schema or _parameter_annotations(
        handler
    ) != _parameter_annotations(tool.handler)


def _parameter_annotations(handler: Handler) -> dict[str, Any]:
    return {name: hint for name, hint in resolved_hints(handler).items() if name not in ("context", "return")}


MAX_ERROR_LINE = 300
# Messages of these errors are about code; those of other errors may contain data the module had read.
CODE_ERRORS = (ImportError, SyntaxError, NameError, AttributeError, ToolDefinitionError)


def describe_import_error(error: BaseException, module: str) -> str:
    """Return an error's class and failing line in the module, and its message if that is about code, not data."""
    first_line = str(error).strip().partition("\n")[0][:MAX_ERROR_LINE]
    printable = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in first_line)
    reason = f": {printable}" if isinstance(error, CODE_ERRORS) else ""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == module
    ]
    line = lines[-1] if lines else None
    return f"{type(error).__name__}{reason}{f' (line {line} of {module})' if line else ''}"


SHIPPED_TOOLSETS = ("workspace", "introspection", "finance", "text", "greetings", "registrations", "office")
SHIPPED_PACKAGE = "catalog.toolsets"
ENTRY_POINT_GROUP = "toolgate.tools"
RESERVED_NAMES = frozenset(
    {
        *("agent_turn", "approval_result", "ask_user", "compose_reply", "draft_plan", "plan_on"),
        "propose_envelope",
    }
)
"""Names with a special meaning in the layers above, also without a configured model."""
STEP_TOOLS = frozenset({"agent_turn", "ask_user"})
"""Names of tools that work only as steps of a plan: a direct call of one fails."""
PLANNER_CATEGORY = "planner"
"""The category of the planner's own tools, which create plans and are offered neither to agents nor for steps."""
RESERVED_PREFIX = "planning_"

ToolT = TypeVar("ToolT", bound=Tool[Any, Any] | BaseTool)

logger = logging.getLogger("toolgate.tools")

_TOOLS: dict[str, Tool[Any, Any]] = {}
_imported_tools: Mapping[str, Tool[Any, Any]] = {}
_IMPLEMENTATIONS: dict[str, dict[str, LoadedImplementation]] = {}
_IMPORT_ERRORS: dict[str, str] = {}
_modules_above: dict[str, Callable[[], bool]] = {}


def register_module(module: str, when: Callable[[], bool]) -> None:
    """Register a module of a higher layer; its tools are loaded at start-up if `when` returns true then."""
    _modules_above[module] = when


def register_tool(tool: ToolT) -> ToolT:
    """Register a tool, replacing one of the same name, and return the argument. Raises ToolDefinitionError."""
    held = tool.as_tool() if isinstance(tool, BaseTool) else tool
    is_theirs = held.name in RESERVED_NAMES and held.reference.partition(":")[0] in _modules_above
    if is_reserved(held.name) and not is_theirs:
        raise ToolDefinitionError(f"The tool name '{held.name}' is reserved. Choose another.")
    _store_tool(held)
    return tool


def is_reserved(name: str) -> bool:
    """Return whether this tool name is reserved for Toolgate itself."""
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX)


def _store_tool(tool: Tool[Any, Any]) -> None:
    tool.judge_types()
    _TOOLS[tool.name] = tool
    logger.debug("tool_registered name=%s", tool.name)


def register_implementation(tool_name: str, handler: Handler, *, reference: str | None = None) -> LoadedImplementation:
    """Register another implementation of a registered tool, replacing one of the same reference, and return it.

    `reference` names the code; the default is "module:qualname". Keep the result in the module, so that it is found
    there with the tools. Raises ToolDefinitionError if there is no such tool, or if the types differ.
    """
    tool = None if is_reserved(tool_name) else _TOOLS.get(tool_name)
    if tool is None:
        raise ToolDefinitionError(f"There is no tool '{tool_name}'. Register the tool first.")
    return _store_implementation(make_implementation(tool, handler, reference))


def _store_implementation(implementation: LoadedImplementation) -> LoadedImplementation:
    _IMPLEMENTATIONS.setdefault(implementation.tool_name, {})[implementation.reference] = implementation
    return implementation


def loaded_variants(tool: Tool[Any, Any]) -> dict[str, Tool[Any, Any]]:
    """Return a tool for each implementation loaded here, by its reference; the tool's own handler comes first."""
    added = _IMPLEMENTATIONS.get(tool.name, {})
    return {tool.reference: tool} | {name: with_implementation(tool, each) for name, each in added.items()}


def get_tool(name: str) -> Tool[Any, Any] | None:
    return _TOOLS.get(name) or _imported_tools.get(name)


def set_imported_tools(tools: Mapping[str, Tool[Any, Any]]) -> None:
    """Replace the tools that were imported from sources. `catalog.inventory.snapshot` does so for each new snapshot."""
    global _imported_tools  # one reference, replaced whole: readers need no lock
    _imported_tools = tools


def output_key_of(name: str | None) -> str:
    """Return the key under which the tool's results are stored by default, or an empty text."""
    tool = _TOOLS.get(name) if name else None
    return (tool.output_key or "") if tool else ""


def get_all_tools() -> dict[str, Tool[Any, Any]]:
    """Return the tools of Python code by name, in order of registration."""
    return _TOOLS.copy()


def get_tool_descriptions() -> list[dict[str, Any]]:
    """Return name, description and requires_identifier of each tool as declared, without administrators' overrides."""
    return [
        {"name": tool.name, "description": tool.description, "requires_identifier": tool.requires_identifier}
        for tool in _TOOLS.values()
    ]


def effective_rate_limits(tool: Tool[Any, Any]) -> tuple[RateLimit, ...]:
    """Return the rate limits of a tool: its own, else those that another tool of its rate limit group declares."""
    if tool.rates or tool.rate_limit_key is None:
        return tool.rates
    group = (other.rates for other in list(_TOOLS.values()) if other.rate_limit_key == tool.rate_limit_key)
    return next(filter(None, group), ())


def nearest_names(name: str, limit: int = 3, *, among: Collection[str] | None = None) -> list[str]:
    """Return the most similar names of tools, best first: of all tools, or of those in `among`."""
    known = _TOOLS.keys() if among is None else set(among)
    return difflib.get_close_matches(name, known - {name}, n=limit)


def unknown_tool_error(name: str, *, among: Collection[str] | None = None) -> UnknownTool:
    """Return the error for an unknown tool, with the names that `nearest_names` returns; the miss is logged."""
    logger.warning("tool_not_found name=%.80r", name)
    return UnknownTool(name, nearest_names(name, among=among))


def initialize_tools() -> None:
    """Register the shipped toolsets, the modules of TOOLGATE_TOOLS and the entry points; idempotent."""
    for toolset in SHIPPED_TOOLSETS:
        _register_from(importlib.import_module(f"{SHIPPED_PACKAGE}.{toolset}"))
    for module, when in _modules_above.items():
        if when():
            _register_from(importlib.import_module(module), take=_store_tool)
    _IMPORT_ERRORS.clear()
    for name in settings.TOOLGATE_TOOLS:
        _load_module(name, partial(importlib.import_module, name))
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        _load_module(entry_point.module, entry_point.load)
    logger.info("tools_initialized count=%d", len(_TOOLS))


def shipped_modules() -> dict[str, str]:
    """Return the modules of the shipped toolsets, each with the first paragraph of its documentation."""
    names = [f"{SHIPPED_PACKAGE}.{toolset}" for toolset in SHIPPED_TOOLSETS]
    texts = {name: inspect.getdoc(importlib.import_module(name)) or "" for name in names}
    return {name: " ".join(text.partition("\n\n")[0].split()) for name, text in texts.items()}


def broken_modules() -> dict[str, str]:
    """Return the modules that could not be loaded, with the reason."""
    return _IMPORT_ERRORS.copy()


def _load_module(name: str, load: Callable[[], object]) -> None:
    tools, codes = _TOOLS.copy(), {tool: added.copy() for tool, added in _IMPLEMENTATIONS.items()}
    try:
        _register_from(load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any module may fail in any way; the others must still load
        logger.error("tools_broken module=%s error=%s", name, type(error).__name__)
        _IMPORT_ERRORS[name] = describe_import_error(error, name)
        # Undo the registrations of the module; other threads may be reading meanwhile.
        for each in _TOOLS.keys() - tools.keys():
            del _TOOLS[each]
        for each in _IMPLEMENTATIONS.keys() - codes.keys():
            del _IMPLEMENTATIONS[each]
        _TOOLS.update(tools)
        _IMPLEMENTATIONS.update(codes)
    for replaced in (each for each in tools.values() if _TOOLS[each.name].reference != each.reference):
        logger.warning("tool_replaced name=%s module=%s was=%s", replaced.name, name, replaced.reference)


def _register_from(source: object, take: Callable[[Any], object] = register_tool) -> None:
    """Pass each tool in a module or list, or a single tool, to `take`; that of shipped modules allows any name."""
    found: Iterable[object] = [source]
    if isinstance(source, ModuleType):
        found = list(vars(source).values())
    elif isinstance(source, list | tuple):
        found = source
    tools: dict[str, object] = {}
    for each in found:
        if isinstance(each, Tool | BaseTool):
            if tools.setdefault(each.name, each) is not each:
                raise ToolDefinitionError(f"The tool '{each.name}' appears twice in one set of tools. Rename one.")
            take(each)
        elif isinstance(each, LoadedImplementation):
            _store_implementation(each)
