"""Imported tools as callable tools, built from their stored definitions."""

import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Any

from catalog.client_tools.known_tools import changes_nothing
from catalog.client_tools.previews import preview as preview_of_client_tool
from catalog.context import ToolContext, progress_listener
from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.binding import Binding, Handler
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.definitions.tool import Tool
from catalog.errors import SchemaProblem, ToolError, ToolgateError, UpstreamError, UpstreamUnavailable
from catalog.models import Tool as ToolRow
from catalog.results import Preview, ResultWarning, ToolResult, UpstreamResult
from catalog.schemas import compile_schema
from catalog.secrets.placeholders import placeholders_as_text
from catalog.secrets.scrubber import Scrubber
from catalog.sources import http_requests
from catalog.sources.definitions import Definition, visible_text
from catalog.sources.http_requests import Operation
from catalog.sources.mcp_client import connection_to, report_unreachable
from catalog.sources.mcp_failures import PATIENCE
from catalog.sources.settings import UpstreamSettings, origin_of, scrubbed_errors, scrubber_of, settings_of

LoadedTool = Tool[Any, Any]

logger = logging.getLogger("toolgate.sources")
NUL = re.compile(r"(?<!\\)(\\\\)*\\u0000")
"""The character NUL as JSON text writes it."""

_built: dict[int, tuple[str, LoadedTool]] = {}


def load_imported_tools(rows: Iterable[ToolRow]) -> dict[str, LoadedTool]:
    """Return the tools of those rows that have a definition, by name. Each row's source must be loaded.

    A tool that cannot be built is logged and left out, so it cannot be called.
    """
    settings: dict[int, UpstreamSettings] = {}
    found = {}
    for row in rows:
        try:
            if row.source_id not in settings:
                settings[row.source_id] = settings_of(row.source)
            # Built again only if its definition, level or upstream has changed.
            text = json.dumps([row.name, row.definition, row.level_override], sort_keys=True)
            upstream = settings[row.source_id]
            key = hashlib.sha256(f"{text}{upstream!r}{upstream.secrets()}".encode()).hexdigest()
            if _built.get(row.pk, ("",))[0] != key:
                definition = Definition.from_json(row.definition or {})
                level = row.level_override or definition.safety_level
                _built[row.pk] = (key, build_tool(row.name, definition, upstream, level=level))
            found[row.name] = _built[row.pk][1]
        except Exception as error:  # noqa: BLE001 - one broken definition must not take the others away
            logger.error("imported_tool_broken tool=%s error=%s", row.name, type(error).__name__)
    return found


def build_tool(name: str, definition: Definition, settings: UpstreamSettings, *, level: str = "") -> LoadedTool:
    """Return the callable tool of a definition.

    `level` is the level in force. If it is above `safe`, every MCP call first verifies that the upstream's definition
    is unchanged. Raises ToolDefinitionError, and SchemaProblem for a schema that Toolgate does not accept.
    """
    required = SafetyLevel(level or definition.safety_level)
    scrubber = scrubber_of(settings)

    async def call(arguments: dict[str, Any]) -> ToolResult[Any]:
        work = connection_to(settings).call(definition, arguments, level=required, on_progress=progress_listener.get())
        try:
            return await _settled(work, definition, scrubber)
        except UpstreamUnavailable as error:
            report_unreachable(settings, error.message)
            raise

    handler: Handler = call
    previewer = None
    is_of_client = definition.kind == "client"
    if definition.http is not None:
        handler, previewer = _http_handlers(definition, Operation.from_json(definition.http), settings)
    elif is_of_client:
        handler, previewer = _client_handlers(definition, settings)
    tool: LoadedTool = Tool(
        name=name,
        description=definition.description,
        handler=handler,
        bound=Binding(dict(definition.input_schema)),
        safety_level=SafetyLevel(definition.safety_level),
        categories=definition.categories,
        retry_safe=definition.retry_safe,
        timeout=definition.timeout,
        result_type_known=False,
        fills_defaults=False,
        reversibility=Reversibility.REVERSIBLE
        if is_of_client and changes_nothing(settings.name, definition.upstream)
        else None,
    )
    tool.output_schema = dict(definition.output_schema) if definition.output_schema else None
    if previewer is not None:
        tool.preview(previewer)
    vars(tool).update(reference=reference_of(definition, settings), digest=implementation_digest(definition, settings))
    tool.title, tool.hints = definition.title, definition.hints
    tool.client_tool = definition.upstream if is_of_client else ""
    if definition.kind == "mcp":  # the client ends a call; before it connects and lists, twice if a session was lost
        vars(tool).update(longest_seconds=(PATIENCE + 4) * definition.timeout)
    return tool


async def _settled(
    pending_result: Awaitable[UpstreamResult[Any]], definition: Definition, scrubber: Scrubber
) -> UpstreamResult[Any]:
    """Return a call's result or raise its error, credentials masked; a violated output schema only adds a warning."""
    with scrubbed_errors(scrubber):
        result = await pending_result
    warnings = tuple(result.warnings)
    if result.success and definition.output_schema is not None and not warnings:
        try:
            problems = compile_schema(definition.output_schema).problems(result.value)
        except SchemaProblem:  # of a definition that was imported when such a schema was accepted
            problems = []
        if problems:
            place = f"at {problems[0].path}" if problems[0].path else "at its root"
            message = f"The result does not match the tool's own output schema, {place}."
            warnings = (ResultWarning("output_schema", message),)
    return replace(
        result,
        message=scrubber.text(result.message),
        # As texts: a value that was a text still fits the output schema.
        value=placeholders_as_text(scrubber.value(result.value)),
        content=result.content and tuple(placeholders_as_text(scrubber.value(each)) for each in result.content),
        warnings=warnings,
    )


def _http_handlers(definition: Definition, operation: Operation, settings: UpstreamSettings) -> tuple[Handler, Handler]:
    scrubber = scrubber_of(settings, operation.own_headers())

    async def call(arguments: dict[str, Any]) -> ToolResult[Any]:
        if (settings.headers or settings.query) and origin_of(operation.url) != settings.api_origin:
            message = f"{settings.name} now has another server. Nothing was sent; synchronise the source first."
            raise UpstreamError(message, "drifted")
        request = http_requests.prepare(operation, arguments, settings.headers, settings.query)
        return await _settled(http_requests.send(settings.name, request, definition.timeout), definition, scrubber)

    def show(arguments: dict[str, Any]) -> Preview:
        return http_requests.preview(http_requests.prepare(operation, arguments, settings.headers, settings.query))

    return call, show


def runs_in_client(tool_name: str, client: str) -> ToolError:
    """Return the error for a call of a tool that only its client can run."""
    return ToolError(
        f"{tool_name} is a tool of {client}, which runs it itself and asks first. It cannot be called through Toolgate."
    )


def _client_handlers(definition: Definition, settings: UpstreamSettings) -> tuple[Handler, Handler]:
    def call(arguments: dict[str, Any]) -> ToolResult[Any]:
        raise runs_in_client(definition.upstream, settings.name)

    def show(arguments: dict[str, Any], *, context: ToolContext) -> Preview:
        plain = Preview(f"{settings.name} runs {definition.upstream}", "none")
        return preview_of_client_tool(settings.name, definition.upstream, arguments, context.cwd) or plain

    return call, show


def reference_of(definition: Definition, settings: UpstreamSettings) -> str:
    """Return the name of the implementation: source and upstream name, in at most 255 visible characters."""
    plain = "".join(letter if "!" <= letter <= "~" else "_" for letter in definition.upstream)
    text = f"{definition.kind}:{settings.name}/{plain}"
    return text if len(text) <= 255 else f"{text[:240]}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def implementation_digest(definition: Definition, settings: UpstreamSettings) -> str:
    """Return the SHA-256 of where and how a call is sent. An approval is bound to it."""
    return digest(canonical_text([settings.digest, definition.digest]))


def judge_definition(name: str, definition: Definition, settings: UpstreamSettings) -> str:
    """Return why a definition cannot be imported; empty if it can be."""
    try:
        if NUL.search(canonical_text(definition.as_json())):  # PostgreSQL cannot store it
            raise ValueError("it contains the character NUL.")
        build_tool(name, definition, settings)
    except (ToolgateError, ValueError, TypeError, RecursionError) as error:
        request = f" ({definition.http['method']} {definition.http['url']})" if definition.http else ""
        return visible_text(f"{definition.upstream[:80]!r}{request[:300]} cannot be imported: {error}")
    return ""
