"""A tool version in the shape each provider reads. Pure functions; nothing here looks anything up."""

from collections.abc import Callable, Mapping
from typing import Any

from catalog.models import ToolVersion

Schema = dict[str, Any]


def for_openai(version: ToolVersion) -> Schema:
    """Return a tool of OpenAI's chat completions: `{"type": "function", "function": {…}}`."""
    function = {
        "name": version.tool.name,
        "description": version.description,
        "parameters": version.input_schema,
    }
    return {"type": "function", "function": function}


def for_anthropic(version: ToolVersion) -> Schema:
    """Return a tool of Anthropic's messages: name, description, input_schema."""
    return {
        "name": version.tool.name,
        "description": version.description,
        "input_schema": version.input_schema,
    }


def for_mcp(version: ToolVersion) -> Schema:
    """Return a tool as an MCP server lists it, with the annotations that follow from its level."""
    return {
        "name": version.tool.name,
        "description": version.description,
        "inputSchema": version.input_schema,
        "annotations": version.annotations,
    }


def for_json(version: ToolVersion) -> Schema:
    """Return everything the contract of a tool says, in our own words."""
    return {
        "name": version.tool.name,
        "version": version.number,
        "fingerprint": version.fingerprint,
        "description": version.description,
        "input_schema": version.input_schema,
        "output_schema": version.output_schema,
        "query_types": version.query_types,
        "output_key": version.output_key,
        "safety_level": version.safety_level,
        "reversibility": version.reversibility,
        "retry_safe": version.retry_safe,
        "timeout": version.timeout,
        "annotations": version.annotations,
    }


PROVIDERS: Mapping[str, Callable[[ToolVersion], Schema]] = {
    "openai": for_openai,
    "anthropic": for_anthropic,
    "mcp": for_mcp,
    "json": for_json,
}
