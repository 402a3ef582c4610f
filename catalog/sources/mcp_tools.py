"""Import of the tools that an MCP server lists."""

from typing import Any

from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.levels import SafetyLevel
from catalog.errors import MalformedJSON
from catalog.sources.definitions import Definition, clean_schema, clean_text, level_from_annotations
from catalog.sources.settings import UpstreamSettings


def offered_digest(tool: Any) -> str:
    """Return the SHA-256 of all that a server says of a tool."""
    offered = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"icons", "meta"})
    return digest(canonical_text(offered))


def offered_digest_or_none(tool: Any) -> str | None:
    """Return the digest of a tool, or None if its definition cannot be imported."""
    try:
        return offered_digest(tool)
    except MalformedJSON:
        return None


def definition_from(tool: Any, settings: UpstreamSettings) -> Definition:
    """Return the definition of a tool that a server offers."""
    level, why = level_from_annotations(tool.annotations, trusted=settings.trusted)
    title = tool.title or (tool.annotations.title if tool.annotations else None)
    return Definition(
        kind="mcp",
        upstream=tool.name,
        description=clean_text(tool.description) or clean_text(title) or tool.name,
        input_schema=clean_schema(tool.input_schema),
        output_schema=clean_schema(tool.output_schema) if tool.output_schema else None,
        safety_level=str(level),
        why=why,
        categories=(settings.name,),
        timeout=settings.timeout,
        retry_safe=level is SafetyLevel.SAFE or bool(tool.annotations and tool.annotations.idempotent_hint),
        offered_digest=offered_digest(tool),
    )
