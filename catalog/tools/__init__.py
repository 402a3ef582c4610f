"""Public API for tool authors. Tools are made by `@tool`, `Tool[…](…)`, `define_tool`, `ToolSpec` or `BaseTool`."""

from catalog.context import ToolContext, provide_resource
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.definitions.tool import Tool, ToolExample, ToolSpec
from catalog.results import Preview, ToolResult
from catalog.styles.class_tools import BaseTool
from catalog.tools.declaring import define_tool, tool, tool_to_schema, validate_call
from catalog.tools.registry import (
    get_all_tools,
    get_tool,
    get_tool_descriptions,
    initialize_tools,
    nearest_names,
    register_implementation,
    register_tool,
)

__all__ = [
    "BaseTool",
    "Preview",
    "Reversibility",
    "SafetyLevel",
    "Tool",
    "ToolContext",
    "ToolExample",
    "ToolResult",
    "ToolSpec",
    "define_tool",
    "get_all_tools",
    "get_tool",
    "get_tool_descriptions",
    "initialize_tools",
    "nearest_names",
    "provide_resource",
    "register_implementation",
    "register_tool",
    "tool",
    "tool_to_schema",
    "validate_call",
]
