"""Tool libraries for tool authors: functions with a JSON Schema, to which specifications are bound by name."""

from catalog.styles.library import ToolLibrary, create_tool

__all__ = ["ToolLibrary", "create_tool"]
