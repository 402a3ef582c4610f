"""Description of a tool's parameters as rows for display: nesting, types and limits."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from catalog.schemas.resolver import (
    SchemaMapping,
    choice_text,
    expand_schema,
    field_type_of,
    single_type_of,
    union_variants,
)

MAX_PARAMETER_DEPTH = 6
NOT_A_LIMIT = ("anyOf", "oneOf", "default")
MAX_PARAMETER_ROWS = 300
MAX_VALUE_LENGTH = 200
MIN_GROUPED_NUMBER = 10_000
"""The least bound written with separators: years have none."""
MAX_EXACT_INTEGER = 2**53
"""Below this, every whole number is a JSON integer in any notation."""
LIMIT_FORMATS = (
    ("minLength", "≥ {} chars"),
    ("maxLength", "≤ {} chars"),
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "multiple of {}"),
    ("minItems", "≥ {} items"),
    ("maxItems", "≤ {} items"),
    ("minProperties", "≥ {} members"),
    ("maxProperties", "≤ {} members"),
    ("pattern", "pattern {}"),
    ("format", "format {}"),
)


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """One parameter, or one variant of a union; `depth` 0 is the top level, `path` is unique."""

    name: str
    path: str
    depth: int
    kind: str
    required: bool
    description: str
    limits: tuple[str, ...]
    is_variant: bool = False


@dataclass(frozen=True, slots=True)
class ParameterTable:
    """Parameters of a tool, or of one of its query types; `is_cut` if not all are included."""

    query_type: str
    description: str
    rows: tuple[ParameterRow, ...]
    is_cut: bool = False

    @property
    def top_count(self) -> int:
        return sum(row.depth == 0 for row in self.rows)

    @property
    def required_count(self) -> int:
        return sum(row.depth == 0 and row.required for row in self.rows)


def parameter_tables(input_schema: SchemaMapping, query_types: Collection[str] = ()) -> list[ParameterTable]:
    root = input_schema
    if not query_types:
        return [_table("", root, root)]
    variants = (expand_schema(variant, root).get("properties", {}) for variant in root.get("oneOf", ()))
    return [_table(str(each["query_type"].get("const", "")), each.get("parameters", {}), root) for each in variants]


def parameter_count(input_schema: SchemaMapping, query_types: Collection[str] = ()) -> int:
    """Return a tool's number of parameters; with query types, that of the type with the most parameters."""
    return max((table.top_count for table in parameter_tables(input_schema, query_types)), default=0)


def _table(query_type: str, schema: SchemaMapping, root: SchemaMapping) -> ParameterTable:
    schema = expand_schema(schema, root)
    rows = tuple(islice(_rows(schema, root, depth=0), MAX_PARAMETER_ROWS + 1))
    description = str(schema.get("description", "")) if query_type else ""
    return ParameterTable(query_type, description, rows[:MAX_PARAMETER_ROWS], is_cut=len(rows) > MAX_PARAMETER_ROWS)


def _rows(schema: SchemaMapping, root: SchemaMapping, *, depth: int, path: str = "") -> Iterator[ParameterRow]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        inner, here = expand_schema(part, root), f"{path}.{name}".lstrip(".")
        items = expand_schema(inner.get("items"), root)
        yield ParameterRow(
            here.rpartition(".")[2],
            here,
            depth,
            type_label(inner, root),
            name in required,
            str(inner.get("description") or items.get("description", "")),
            tuple(limit_labels(inner, root)),
        )
        if depth < MAX_PARAMETER_DEPTH:
            yield from _nested_rows(inner, root, depth=depth + 1, path=here)


def _nested_rows(schema: SchemaMapping, root: SchemaMapping, *, depth: int, path: str) -> Iterator[ParameterRow]:
    """Yield the rows inside a parameter: an object's members, a list's items, or the variants of a union."""
    variants = [each for each in union_variants(schema, root) if each.get("properties")]
    if not variants:
        yield from _rows(schema, root, depth=depth, path=path)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested_rows(expand_schema(schema["items"], root), root, depth=depth, path=f"{path}[]")
    several = len(variants) > 1
    for title, variant in zip(variant_labels(variants, root), variants, strict=True):
        inside = f"{path} as {title}" if several else path
        if several:
            description = str(variant.get("description", ""))
            kind = type_label(variant, root)
            yield ParameterRow(
                title, inside, depth, kind, required=False, description=description, limits=(), is_variant=True
            )
        yield from _rows(variant, root, depth=depth + several, path=inside)


def type_label(schema: SchemaMapping, root: SchemaMapping, depth: int = 0) -> str:
    """Return the type in words: `string`, `list of integer`, `object or null`, `enum`."""
    variants = union_variants(schema, root)
    if variants and depth < MAX_PARAMETER_DEPTH:
        return " or ".join(dict.fromkeys(type_label(each, root, depth + 1) for each in variants))
    if "enum" in schema:
        return "enum"
    if "const" in schema:
        return "constant"
    kind = single_type_of(schema)
    if kind == "array":
        return _list_label(schema, root, depth)
    return kind or "anything"


def variant_labels(variants: Sequence[SchemaMapping], root: SchemaMapping) -> list[str]:
    """Return distinct labels for the variants of a union: title, distinguishing constant, or type."""
    labels = [_variant_label(each, root) for each in variants]
    return [label if labels.count(label) == 1 else f"{label} ({at})" for at, label in enumerate(labels, start=1)]


def _variant_label(variant: SchemaMapping, root: SchemaMapping) -> str:
    if variant.get("title"):
        return str(variant["title"])
    members = variant.get("properties", {})
    constants = (each for each in (field_type_of(part, root).options for part in members.values()) if len(each) == 1)
    words = f"{type_label(variant, root)} with {', '.join(list(members)[:3])}" if members else type_label(variant, root)
    only = field_type_of(variant, root).options
    if only and not members:
        words = ", ".join(map(choice_text, only[:3]))
    return str(next(constants, (words,))[0])


def _list_label(schema: SchemaMapping, root: SchemaMapping, depth: int) -> str:
    if depth >= MAX_PARAMETER_DEPTH:
        return "list"
    if schema.get("prefixItems"):
        parts = (type_label(expand_schema(each, root), root, depth + 1) for each in schema["prefixItems"][:8])
        return f"list ({', '.join(parts)})"
    if isinstance(schema.get("items"), Mapping):
        return f"list of {type_label(expand_schema(schema['items'], root), root, depth + 1)}"
    return "list"


def limit_labels(schema: SchemaMapping, root: SchemaMapping) -> list[str]:
    """Return the limits of a value, without duplicates: lengths, ranges, choices, the default."""
    return list(dict.fromkeys(_all_limit_labels(schema, root)))


def _all_limit_labels(schema: SchemaMapping, root: SchemaMapping) -> Iterator[str]:
    yield from (_limit_label(words, schema[key]) for key, words in LIMIT_FORMATS if key in schema)
    if schema.get("uniqueItems") is True:
        yield "no duplicate entries"
    yield from map(_json, (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())))
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping) and others:
        yield f"other members: {type_label(expand_schema(others, root), root)}"
    for variant in () if isinstance(schema.get("type"), list) else union_variants(schema, root):
        yield from _all_limit_labels({key: variant[key] for key in variant if key not in NOT_A_LIMIT}, root)
    if "default" in schema:
        yield f"default {_json(schema['default'])}"


def _limit_label(words: str, limit: Any) -> str:
    label = words.format(_format_number(limit, grouped_from=0 if words.endswith("s") else MIN_GROUPED_NUMBER))
    return label.removesuffix("s") if limit == 1 and words.endswith("s") else label


def _format_number(limit: Any, *, grouped_from: int) -> Any:
    """Return a number with thousands separators, as in 1,000,000; other values unchanged."""
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        return limit
    if abs(limit) >= MAX_EXACT_INTEGER or limit != int(limit):
        return limit
    return f"{int(limit):,}" if abs(limit) >= grouped_from else int(limit)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def in_schema_order(value: Any, schema: object, root: SchemaMapping | None = None) -> Any:
    """Return a JSON value with the members of its objects in the order of the schema's properties, at every depth.

    Members that the schema does not name come last, in their own order. `root` is the document in which references are
    resolved; by default the schema itself.
    """
    top: SchemaMapping = root if root is not None else schema if isinstance(schema, Mapping) else {}
    plain = expand_schema(schema, top)
    parts = [plain, *union_variants(plain, top)]
    if isinstance(value, list):
        items: object = next((part["items"] for part in parts if "items" in part), {})
        return [in_schema_order(each, items, top) for each in value]
    if not isinstance(value, Mapping):
        return value
    properties: dict[str, object] = {}
    for part in parts:
        named = part.get("properties")
        properties.update({name: each for name, each in (named or {}).items() if name not in properties})
    names = [*(name for name in properties if name in value), *(name for name in value if name not in properties)]
    return {name: in_schema_order(value[name], properties.get(name, {}), top) for name in names}


_EMPTY: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def skeleton(schema: object, root: SchemaMapping | None = None, depth: int = 0) -> Any:
    """Return a value of the schema's shape to be filled in: required members, or all if none is required.

    A part that declares a constant, a default, examples or choices gets the first of these as its value.
    """
    top: SchemaMapping = root if root is not None else schema if isinstance(schema, Mapping) else {}
    plain = expand_schema(schema, top)
    plain = next(iter(union_variants(plain, top)), plain)
    for key in ("const", "default"):
        if key in plain:
            return plain[key]
    for key in ("examples", "enum"):
        if isinstance(plain.get(key), list) and plain[key]:
            return plain[key][0]
    properties = plain.get("properties")
    if isinstance(properties, Mapping) and depth < MAX_PARAMETER_DEPTH:
        names = [name for name in properties if name in plain.get("required", properties)] or list(properties)
        return {name: skeleton(properties[name], top, depth + 1) for name in names}
    return _EMPTY.get(str(plain.get("type", "")))


def accepts_text(schema: object) -> bool:
    root: SchemaMapping = schema if isinstance(schema, Mapping) else {}
    plain = expand_schema(schema, root)
    return any(
        part.get("type", "string") == "string" and not isinstance(part.get("const", ""), (dict, list, int, float))
        for part in union_variants(plain, root) or (plain,)
    )
