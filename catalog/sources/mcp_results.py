"""Results of MCP servers as results of tools."""

from typing import Any

from catalog.core.canonical_json import canonical_text
from catalog.errors import MalformedJSON, UpstreamError
from catalog.results import ToolResult
from catalog.schemas import Validator, compile_schema
from catalog.sources.definitions import Definition, visible_text

MAX_RESULT = 1024 * 1024
"""Characters of the JSON of one result."""


def to_tool_result(source: str, definition: Definition, result: Any) -> ToolResult[Any]:
    """Return an MCP result as a tool's result. Raises UpstreamError for an error or an invalid result."""
    text = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        raise UpstreamError(visible_text(text) or f"{source} reported an error without a message.")
    value: Any = result.structured_content
    if value is None:
        others = [block for block in result.content if block.type != "text"]
        value = {"content": [_block_as_json(each) for each in result.content]} if others else text
    try:
        length = len(canonical_text(value))
    except MalformedJSON:  # such as one that is nested too deeply
        raise UpstreamError(f"{source} sent an invalid result.", "upstream_malformed") from None
    if length > MAX_RESULT:
        raise UpstreamError(f"{source} sent a result of more than {MAX_RESULT:,} characters.", "upstream_too_large")
    if definition.output_schema is not None:
        _check_output(source, definition, value)
    return ToolResult(message="OK", value=value)


def _block_as_json(block: Any) -> dict[str, Any]:
    return dict(block.model_dump(mode="json", by_alias=True, exclude_none=True))


def _check_output(source: str, definition: Definition, value: Any) -> None:
    validator: Validator = compile_schema(definition.output_schema or {})
    problems = validator.problems(value)
    if problems:
        place = problems[0].path or "its root"
        message = f"{source} sent a result that does not match its own output schema (at {place})."
        raise UpstreamError(message, "upstream_malformed")
