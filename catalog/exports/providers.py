"""Exports of tool versions for model providers, with warnings about what a format cannot express."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.exports.flattening import flatten_to_object
from catalog.exports.openai_strict import NotStrict, to_strict_schema
from catalog.models import ToolVersion
from catalog.styles.gram.from_schema import ToolDescription, tool_to_gram

Schema = dict[str, Any]

NOTES_HEADER = "Toolgate-Notes"
MAX_NOTES = 4_000
OPENAI_DESCRIPTION = 1_024
OPENAI_TOOLS = 128
_ANTHROPIC_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ExportWarning:
    tool: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ExportOptions:
    strictly: bool = False
    notes: list[ExportWarning] = field(default_factory=list)

    def note(self, version: ToolVersion, code: str, message: str) -> None:
        self.notes.append(ExportWarning(version.tool.name, code, message))


class NotExpressible(Exception):
    """A provider has no format for the tool; the text gives the reason."""


def export_tool(
    provider: str, versions: Iterable[ToolVersion], *, strictly: bool = False
) -> tuple[list[Any], list[ExportWarning]]:
    documents: list[Any] = []
    wish = ExportOptions(strictly)
    for version in versions:
        try:
            documents.append(_EXPORTERS[provider](version, wish))
        except NotExpressible as why:
            wish.note(version, "left_out", str(why))
    if provider == "openai" and len(documents) > OPENAI_TOOLS:
        message = (
            f"OpenAI accepts at most {OPENAI_TOOLS} tools in one request. Narrow the list with q, category or level."
        )
        wish.notes.append(ExportWarning("", "too_many", message))
    return documents, wish.notes


def warnings_header(warnings: Iterable[ExportWarning]) -> str:
    """Return warnings as one line of ASCII for a header: a JSON list, truncated."""
    lines = [json.dumps(asdict(note), separators=(",", ":")) for note in warnings]
    entries: list[str] = []
    for line in lines:
        if sum(map(len, entries)) + len(line) > MAX_NOTES:
            entries.append(json.dumps({"code": "more", "count": len(lines) - len(entries)}, separators=(",", ":")))
            break
        entries.append(line)
    return f"[{','.join(entries)}]"


def for_openai(version: ToolVersion, options: ExportOptions) -> Schema:
    """Return a tool for OpenAI's chat completions: `{"type": "function", "function": {…}}`."""
    text: str = version.description
    if len(text) > OPENAI_DESCRIPTION:
        message = f"OpenAI accepts {OPENAI_DESCRIPTION:,} characters of a description."
        options.note(version, "description_cut", f"{message} This one has {len(text):,} and is truncated.")
        text = f"{text[: OPENAI_DESCRIPTION - 1]}…"
    function: Schema = {
        "name": version.tool.name,
        "description": text,
        "parameters": _parameters_as_object(version, options),
    }
    if options.strictly:
        try:
            function |= {"parameters": to_strict_schema(version.input_schema), "strict": True}
        except NotStrict as why:
            function["strict"] = False
            options.note(version, "not_strict", f"The arguments have no strict form: {why}.")
    return {"type": "function", "function": function}


def for_anthropic(version: ToolVersion, options: ExportOptions) -> Schema:
    """Return a tool for Anthropic's messages: name, description, input_schema. Raises NotExpressible."""
    schema = _parameters_as_object(version, options)
    odd = [name for name in schema["properties"] if not _ANTHROPIC_KEY.fullmatch(name)]
    if odd and set(odd) & {*schema.get("required", ())}:
        raise NotExpressible(f"Anthropic does not accept the argument name {odd[0][:64]!r}, which the tool requires.")
    if odd:
        schema["properties"] = {name: each for name, each in schema["properties"].items() if name not in odd}
        message = f"Anthropic does not accept these argument names: {', '.join(odd)[:200]}."
        options.note(version, "arguments_left_out", message)
    return {"name": version.tool.name, "description": version.description, "input_schema": schema}


def for_mcp(version: ToolVersion, _: ExportOptions) -> Schema:
    declared = version.tool.definition or {}
    return mcp_form(version.tool.name, version, title=declared.get("title", ""), hints=declared.get("hints", {}))


NO_HINTS: Mapping[str, Any] = {}


class Contract(Protocol):
    """The part of a tool's contract that the MCP format needs; stored versions and loaded tools both have it."""

    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Schema: ...
    @property
    def output_schema(self) -> Schema | None: ...
    @property
    def safety_level(self) -> str: ...
    @property
    def reversibility(self) -> str | None: ...
    @property
    def retry_safe(self) -> bool: ...


def mcp_form(name: str, contract: Contract, *, title: str = "", hints: Mapping[str, Any] = NO_HINTS) -> Schema:
    """Return a tool's entry in the list of an MCP server; an imported tool keeps its source's `title` and `hints`."""
    safe = contract.safety_level == SafetyLevel.SAFE
    lasting = contract.safety_level == SafetyLevel.DANGEROUS or contract.reversibility == Reversibility.IRREVERSIBLE
    tool = {
        "name": name,
        "title": title or name.replace("_", " ").replace("-", " ").strip().capitalize(),
        "description": contract.description,
        "inputSchema": {"type": "object", **contract.input_schema},
        "annotations": {
            "readOnlyHint": safe,
            "destructiveHint": lasting and not safe,
            "idempotentHint": contract.retry_safe,
            "openWorldHint": contract.reversibility != Reversibility.RESTORABLE,
            **hints,
        },
    }
    output: Mapping[str, Any] = contract.output_schema or {}
    return tool | ({"outputSchema": dict(output)} if output.get("type") == "object" else {})


def _parameters_as_object(version: ToolVersion, options: ExportOptions) -> Schema:
    given = version.input_schema
    if any(word in given for word in ("oneOf", "anyOf", "allOf", "not", "if", "enum", "const")):
        message = (
            "The provider accepts no top-level alternatives, so their arguments are merged. "
            "Calls are validated against the original schema."
        )
        options.note(version, "flattened", message)
    return flatten_to_object(given)


def for_gram(version: ToolVersion, _: ExportOptions) -> str:
    """Return a gram specification; comments before it list what gram cannot express."""
    return tool_to_gram(
        ToolDescription(version.tool.name, version.description, version.input_schema, version.output_schema)
    )


def for_json(version: ToolVersion) -> Schema:
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


_EXPORTERS: Mapping[str, Callable[[ToolVersion, ExportOptions], Schema | str]] = {
    "openai": for_openai,
    "anthropic": for_anthropic,
    "mcp": for_mcp,
    "gram": for_gram,
    "json": lambda version, _: for_json(version),
}
PROVIDERS = tuple(_EXPORTERS)


def export_for_page(provider: str, version: ToolVersion) -> tuple[Schema | str, list[str]]:
    documents, notes = export_tool(provider, [version])
    messages = [note.message for note in notes]
    return (documents[0], messages) if documents else (messages[-1], [])
