"""Import of the tools that an MCP server lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.core.canonical_json import canonical_text, digest
from catalog.core.json_paths import dotted
from catalog.definitions.levels import SafetyLevel
from catalog.errors import MalformedJSON, SchemaProblem
from catalog.schemas import compile_schema
from catalog.sources.definitions import Definition, Listing, clean_schema, clean_text, visible_text
from catalog.sources.levels import level_from_annotations
from catalog.sources.settings import UpstreamSettings

MAX_TITLE = 200
HINTS = frozenset({"title", "idempotent_hint", "open_world_hint"})
"""Annotations that do not affect the safety level."""


class UnusableTool(Exception):
    """A tool that cannot be imported; the message says why."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The raw entries of a server's list of tools, and the problems of the list itself."""

    entries: Sequence[Any]
    problems: Sequence[str] = ()
    as_tasks: bool = False
    """True if the server runs tools as tasks."""
    is_modern: bool = False
    """True for protocol version 2026-07-28, in which schemas may name arguments to repeat in headers."""

    def digest_of(self, name: str) -> str | None:
        """Return the digest of the tool with this name; None if it is not listed or cannot be imported."""
        # The first of a name counts, as for an import.
        entry = next((each for each in self.entries if isinstance(each, dict) and each.get("name") == name), None)
        try:
            return offered_digest(_read_tool(entry))
        except (UnusableTool, MalformedJSON):
            return None

    def listing(self, settings: UpstreamSettings) -> Listing:
        """Return the definitions of the tools that can be imported, and a problem for each of the others."""
        from mcp.shared.inbound import find_invalid_x_mcp_header  # noqa: PLC0415 - loaded with the SDK

        found: dict[str, Definition] = {}
        problems = list(self.problems)
        for number, entry in enumerate(self.entries, start=1):
            named = entry.get("name") if isinstance(entry, dict) else None
            label = repr(named[:80]) if isinstance(named, str) and named else f"Tool {number} of the list"
            if named in found:
                problems.append(f"{settings.name} offers {label} twice; the first definition is used.")
                continue
            try:
                definition = definition_from(_read_tool(entry), settings)
                if definition.is_task and not self.as_tasks:
                    raise UnusableTool("it must be called as a task, which the server does not offer to run.")
                reason = find_invalid_x_mcp_header(definition.input_schema) if self.is_modern else None
                if reason is not None:
                    raise UnusableTool(f"its x-mcp-header is invalid: {reason}.")
                if definition.output_schema is not None:
                    try:
                        compile_schema(definition.output_schema)
                    except SchemaProblem as problem:
                        definition = replace(definition, output_schema=None)
                        reason = visible_text(problem.message)
                        problems.append(f"{label} is imported without its outputSchema: {reason}")
                found[definition.upstream] = definition
            except UnusableTool as unusable:
                problems.append(f"{label} cannot be imported: {unusable}")
            except (ValueError, TypeError, RecursionError, MalformedJSON) as error:
                problems.append(f"{label} cannot be imported: {type(error).__name__}.")
        return Listing(tuple(found.values()), tuple(problems))


def _read_tool(entry: object) -> Any:
    """Return an entry of the list as the SDK's model of a tool. Raises UnusableTool."""
    from mcp.types import Tool  # noqa: PLC0415 - loaded with the SDK
    from pydantic import ValidationError  # noqa: PLC0415

    if not isinstance(entry, dict):
        raise UnusableTool("it is no JSON object.")
    try:
        return Tool.model_validate(entry, by_name=False)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = dotted(problem["loc"]) or "the tool"
        raise UnusableTool(f"{place} is invalid ({problem['msg']}).") from None


def offered_digest(tool: Any) -> str:
    """Return the SHA-256 of a server's entry for a tool, without its icons and metadata."""
    offered = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"icons", "meta"})
    return digest(canonical_text(offered))


def definition_from(tool: Any, settings: UpstreamSettings) -> Definition:
    """Return the definition of a tool that a server offers. Raises UnusableTool."""
    if tool.input_schema.get("type") != "object":
        raise UnusableTool('the type of its inputSchema is not "object", as MCP demands.')
    level, why = level_from_annotations(tool.annotations, trusted=settings.trusted)
    title = tool.title or (tool.annotations.title if tool.annotations else None)
    hints: dict[str, Any] = {}
    if tool.annotations is not None:
        hints = tool.annotations.model_dump(by_alias=True, exclude_none=True, include=HINTS)
    if "title" in hints:
        hints["title"] = clean_text(hints["title"])[:MAX_TITLE]
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
        is_task=bool(tool.execution and tool.execution.task_support == "required"),
        title=clean_text(tool.title)[:MAX_TITLE],
        hints=hints,
    )
