"""Definitions of imported tools, stored with their rows. A process builds its tools from them without the upstream."""

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from catalog.core.canonical_json import MAX_SAFE_INTEGER, canonical_text, digest
from catalog.schemas.resolver import subschemas
from catalog.sources.dialects import as_current_dialect

Schema = dict[str, Any]

MAX_TOOLS = 2000
"""Tools of one source."""
MAX_IMPORTED_DESCRIPTION = 4000
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
WORDS = ("title", "description", "examples", "$comment")
"""Keywords of a schema that only describe it."""
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


ADDED_FIELDS = frozenset({"is_task", "title", "hints"})
"""Fields that are stored only if they have a value: definitions stored earlier lack them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One imported tool.

    `upstream` is the tool's name at the upstream. A tool of the kind `client` runs in its client, never here.
    `offered_digest` is the SHA-256 of the MCP server's entry; `http` says how the arguments become an HTTP request
    (`http_requests.Operation` as JSON). `why` explains the level. If `is_task`, the tool must be called as an MCP task.
    `title` and `hints` come from the server; hints about the level are left out.
    """

    kind: Literal["mcp", "http", "client"]
    upstream: str
    description: str
    input_schema: Schema
    output_schema: Schema | None = None
    safety_level: str = "dangerous"
    why: str = ""
    categories: tuple[str, ...] = ()
    timeout: float = 30.0
    retry_safe: bool = False
    offered_digest: str = ""
    http: Mapping[str, Any] | None = None
    is_task: bool = False
    title: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        stored = {**asdict(self), "categories": list(self.categories)}
        return {name: value for name, value in stored.items() if name not in ADDED_FIELDS or value}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Definition":
        return cls(**{**stored, "categories": tuple(stored["categories"])})

    @property
    def digest(self) -> str:
        """Return the SHA-256 of how a call is made; descriptions, schemas, level and categories do not count."""
        how = [self.kind, self.upstream, self.timeout, dict(self.http or {})]
        return digest(canonical_text([*how, "task"] if self.is_task else how))


@dataclass(frozen=True, slots=True)
class Listing:
    definitions: tuple[Definition, ...]
    problems: tuple[str, ...] = field(default=())


def clean_text(text: str | None) -> str:
    """Return a description without invisible characters, cut to MAX_IMPORTED_DESCRIPTION."""
    return visible_text(text)[:MAX_IMPORTED_DESCRIPTION]


def visible_text(text: str | None) -> str:
    """Return a text without invisible characters and without space at its ends."""
    kept = "".join(
        letter for letter in (text or "") if letter in "\n\t" or unicodedata.category(letter) not in INVISIBLE
    )
    return kept.strip()


def clean_schema(schema: Mapping[str, Any]) -> Schema:
    """Return an upstream's schema in dialect 2020-12, without its identifier and with cleaned descriptions."""
    copy = {key: value for key, value in as_current_dialect(_copied(schema)).items() if key not in ("$id", "id")}
    for _, part in subschemas(copy):
        for word in ("title", "description"):
            if isinstance(part.get(word), str):
                part[word] = clean_text(part[word])
        for word in BOUNDS:
            if isinstance(part.get(word), int | float) and abs(part[word]) > MAX_SAFE_INTEGER:
                del part[word]  # a contract cannot hold it: the upstream itself refuses such an integer
    return copy


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value


def differ_in_words_only(old_definition: Definition, new_definition: Definition) -> bool:
    """Return whether two definitions have the same schemas, level and request, so that only texts may differ."""
    return _without_words(old_definition) == _without_words(new_definition)


def _without_words(definition: Definition) -> str:
    plain = replace(
        definition,
        description="",
        why="",
        offered_digest="",
        title="",
        hints={name: each for name, each in definition.hints.items() if name != "title"},
        input_schema=_schema_without_words(definition.input_schema),
        output_schema=definition.output_schema and _schema_without_words(definition.output_schema),
    )
    return canonical_text(plain.as_json())


def _schema_without_words(schema: Schema) -> Schema:
    copy: Schema = _copied(schema)
    for _, part in subschemas(copy):
        for word in WORDS:
            part.pop(word, None)
    return copy
