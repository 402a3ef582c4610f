"""The tools this process can run, by name; filled at start-up, read by everyone.

Knows nothing of rows or versions: those are made from this by the synchronisation.
"""

import difflib
import importlib
from collections.abc import Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from django.conf import settings

from catalog.definitions import Tool
from catalog.errors import ToolDefinitionError

SHIPPED = ("workspace", "introspection", "finance", "text")
ENTRY_POINT_GROUP = "toolgate.tools"
RESERVED_NAMES = frozenset({"approval_result"})
RESERVED_PREFIX = "planning_"

_TOOLS: dict[str, Tool[Any, Any]] = {}


def register_tool(tool: Tool[Any, Any]) -> Tool[Any, Any]:
    """Register a tool, replacing its namesake, and return it; raise ToolDefinitionError if reserved."""
    if tool.name in RESERVED_NAMES or tool.name.startswith(RESERVED_PREFIX):
        raise ToolDefinitionError(f"The tool name '{tool.name}' is reserved; choose another.")
    _TOOLS[tool.name] = tool
    return tool


def get_tool(name: str) -> Tool[Any, Any] | None:
    """Return the tool of this name, or None."""
    return _TOOLS.get(name)


def get_all_tools() -> dict[str, Tool[Any, Any]]:
    """Return all tools by name, in the order they were registered."""
    return _TOOLS.copy()


def get_tool_descriptions() -> list[dict[str, Any]]:
    """Return what a planner reads to choose: name, description, requires_identifier."""
    return [
        {"name": tool.name, "description": tool.description, "requires_identifier": tool.requires_identifier}
        for tool in _TOOLS.values()
    ]


def nearest_names(name: str, limit: int = 3) -> list[str]:
    """Return the tool names that look most like this one, best first."""
    return difflib.get_close_matches(name, _TOOLS, n=limit)


def initialize_tools() -> None:
    """Register the shipped toolsets, the modules of TOOLGATE_TOOLS and the entry points; idempotent."""
    for toolset in SHIPPED:
        _register_from(importlib.import_module(f"catalog.toolsets.{toolset}"))
    for name in settings.TOOLGATE_TOOLS:
        _register_from(_imported(name))
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        _register_from(entry_point.load())


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ToolDefinitionError(f"TOOLGATE_TOOLS names '{name}', which cannot be imported: {error}") from error


def _register_from(source: object) -> None:
    """Register every tool found in a module, in a list of tools, or the tool itself."""
    found: Iterable[object] = [source]
    if isinstance(source, ModuleType):
        found = list(vars(source).values())
    elif isinstance(source, list | tuple):
        found = source
    for each in found:
        if isinstance(each, Tool):
            register_tool(each)
