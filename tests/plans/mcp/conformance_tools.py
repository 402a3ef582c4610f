"""The tools that the MCP conformance suite calls, as far as the catalog has such tools.

They are made in a registry of their own; the test registers them.
"""

import threading
from typing import Any

from catalog.errors import ToolError
from catalog.library import create_tool
from catalog.results import ToolResult
from catalog.testing import clean_registry
from catalog.tools import tool

with clean_registry():

    @tool
    def test_simple_text() -> ToolResult[str]:
        """Answer with a text."""
        return ToolResult.ok("text", message="This is a simple text response for testing.")

    @tool
    def test_error_handling() -> str:
        """Fail."""
        raise ToolError("This tool intentionally returns an error for testing")

    @tool
    def test_tool_with_progress() -> ToolResult[str]:
        """Answer with a text after the third report of progress; the server makes one every three seconds."""
        threading.Event().wait(7)
        return ToolResult.ok("text", message="Done.")

    def take_address(arguments: dict[str, Any]) -> str:
        """Answer with the name."""
        return str(arguments.get("name", ""))

    json_schema_2020_12_tool = create_tool(
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        },
        take_address,
    )

TOOLS = (test_simple_text, test_error_handling, test_tool_with_progress, json_schema_2020_12_tool)
