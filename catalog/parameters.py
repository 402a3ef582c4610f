"""A tool's parameters as rows for people: nesting, types and limits in words. Reads JSON Schema, judges nothing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from catalog.models import ToolVersion

Schema = Mapping[str, Any]
DEEPEST = 6
MOST_ROWS = 300
NAMES = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null"}
LIMITS = (
    ("minLength", "≥ {} chars"),
    ("maxLength", "≤ {} chars"),
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "multiple of {}"),
    ("minItems", "≥ {} items"),
    ("maxItems", "≤ {} items"),
    ("pattern", "pattern {}"),
    ("format", "format {}"),
)


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """One parameter, or one variant of a union; `depth` 0 is the top."""

    name: str
    depth: int
    kind: str
    required: bool
    description: str
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParameterTable:
    """The parameters of a tool, or of one of its query types."""

    query_type: str
    description: str
    rows: tuple[ParameterRow, ...]

    @property
    def top_count(self) -> int:
        """How many parameters there are, not counting nested ones."""
        return sum(row.depth == 0 for row in self.rows)

    @property
    def required_count(self) -> int:
        """How many of them must be given."""
        return sum(row.depth == 0 and row.required for row in self.rows)


def parameter_tables(version: ToolVersion) -> list[ParameterTable]:
    """Return one table, or one for each query type."""
    root: Schema = version.input_schema
    if not version.query_types:
        return [_table("", root, root)]
    variants = (_resolve(variant, root).get("properties", {}) for variant in root.get("oneOf", ()))
    return [_table(str(each["query_type"].get("const", "")), each.get("parameters", {}), root) for each in variants]


def parameter_count(version: ToolVersion) -> int:
    """Return how many parameters the tool takes; with query types, the most that one of them takes."""
    return max((table.top_count for table in parameter_tables(version)), default=0)


def _table(query_type: str, schema: Schema, root: Schema) -> ParameterTable:
    schema = _resolve(schema, root)
    rows = tuple(islice(_rows(schema, root, depth=0), MOST_ROWS))
    return ParameterTable(query_type, str(schema.get("description", "")) if query_type else "", rows)


def _rows(schema: Schema, root: Schema, *, depth: int) -> Iterator[ParameterRow]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        inner = _resolve(part, root)
        yield _row(name, inner, root, depth=depth, required=name in required)
        if depth < DEEPEST:
            yield from _below(inner, root, depth=depth + 1)


def _row(name: str, schema: Schema, root: Schema, *, depth: int, required: bool) -> ParameterRow:
    described = schema.get("description") or _resolve(schema.get("items"), root).get("description", "")
    return ParameterRow(name, depth, _kind(schema, root), required, str(described), tuple(_limits(schema, root)))


def _below(schema: Schema, root: Schema, *, depth: int) -> Iterator[ParameterRow]:
    """Yield what lies inside: an object's members, a list's items, each variant of a union that has any."""
    yield from _rows(schema, root, depth=depth)
    if isinstance(schema.get("items"), Mapping):
        yield from _below(_resolve(schema["items"], root), root, depth=depth)
    variants = [each for each in _variants(schema, root) if each.get("properties")]
    for number, variant in enumerate(variants, start=1):
        if len(variants) > 1:
            title = str(variant.get("title") or f"variant {number}")
            yield _row(title, variant, root, depth=depth, required=False)
        yield from _rows(variant, root, depth=depth + (len(variants) > 1))


def _variants(schema: Schema, root: Schema) -> list[Schema]:
    return [_resolve(each, root) for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]


def _kind(schema: Schema, root: Schema, depth: int = 0) -> str:
    variants = _variants(schema, root)
    if variants and depth < DEEPEST:
        return " or ".join(dict.fromkeys(_kind(each, root, depth + 1) for each in variants))
    if "enum" in schema:
        return "enum"
    if "const" in schema:
        return "constant"
    kinds = schema.get("type", "anything")
    said = [_kind_word(kind, schema, root, depth) for kind in (kinds if isinstance(kinds, list) else [kinds])]
    return " or ".join(said)


def _kind_word(kind: str, schema: Schema, root: Schema, depth: int) -> str:
    if kind == "array" and isinstance(schema.get("items"), Mapping) and depth < DEEPEST:
        return f"list of {_kind(_resolve(schema['items'], root), root, depth + 1)}"
    return "list" if kind == "array" else NAMES.get(kind, kind)


def _limits(schema: Schema, root: Schema) -> Iterator[str]:
    for key, words in LIMITS:
        if key in schema:
            yield words.format(schema[key])
    for value in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())):
        yield _json(value)
    for variant in _variants(schema, root):
        yield from _limits({key: variant[key] for key in variant if key not in ("anyOf", "oneOf", "default")}, root)
    if "default" in schema:
        yield f"default {_json(schema['default'])}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _resolve(schema: object, root: Schema) -> Schema:
    """Follow a reference inside the same document; what is no object says nothing."""
    for _ in range(DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target: object = root
        for part in reference[2:].split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        schema = target
    return {}
