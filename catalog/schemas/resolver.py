"""Traversal of JSON Schema: subschemas, references, and the effective type of a part."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from catalog.core.canonical_json import canonical_text
from catalog.errors import MalformedJSON

Schema = dict[str, Any]

_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE_KEYWORDS = (
    *("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
_SUBSCHEMA_KEYWORDS = frozenset((*_SINGLE_KEYWORDS, *_LIST_KEYWORDS, *_MAP_KEYWORDS))
REFERENCE_KEYWORDS = ("$ref", "$dynamicRef")


def subschemas(schema: object) -> Iterator[tuple[str, Schema]]:
    """Yield (dotted path, subschema) for the schema and all its subschemas."""
    for steps, place in _walk_subschemas(schema, ()):
        if isinstance(place, dict):
            yield ".".join(steps), place


def child_schemas(schema: Schema, *keywords: str) -> Iterator[object]:
    for keyword in keywords:
        yield from (child for _, child in _children_of_keyword(schema, keyword))


def index_references(schema: Schema) -> dict[str, object]:
    """Return all possible targets of references by their text: `#`, `#/$defs/name`, `#anchor`."""
    named: dict[str, object] = {}
    for steps, place in _walk_subschemas(schema, ()):
        named["#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(place, dict) and isinstance(place.get(keyword), str):
                named[f"#{place[keyword]}"] = place
    return named


def resolve_reference(reference: str, named: dict[str, object]) -> object:
    """Return the target of a reference. Raises KeyError if the reference is dangling."""
    return named[unquote(reference)]


def referenced_schemas(schema: Schema, named: dict[str, object]) -> Iterator[object]:
    """Yield the targets of a schema's own references, which apply to the same value; skip dangling references."""
    for word in REFERENCE_KEYWORDS:
        reference = schema.get(word)
        if isinstance(reference, str) and unquote(reference) in named:
            yield named[unquote(reference)]


def schemas_in_place(schemas: Iterable[object], named: dict[str, object], keywords: Sequence[str]) -> list[Schema]:
    """Return these schemas, and those that apply to the same value through references or these keywords."""
    found: dict[int, Schema] = {}
    left = [*schemas]
    while left:
        schema = left.pop()
        if isinstance(schema, dict) and id(schema) not in found:
            found[id(schema)] = schema
            left += child_schemas(schema, *keywords)
            left += referenced_schemas(schema, named)
    return list(found.values())


def _walk_subschemas(schema: object, steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    yield steps, schema
    if isinstance(schema, dict):
        for keyword in [each for each in schema if each in _SUBSCHEMA_KEYWORDS]:
            for below, child in _children_of_keyword(schema, keyword):
                yield from _walk_subschemas(child, (*steps, keyword, *below))


def _children_of_keyword(schema: Schema, keyword: str) -> Iterator[tuple[tuple[str, ...], object]]:
    value = schema.get(keyword)
    if keyword in _LIST_KEYWORDS and isinstance(value, list):
        yield from (((str(index),), child) for index, child in enumerate(value))
    elif keyword in _MAP_KEYWORDS and isinstance(value, dict):
        yield from (((name,), child) for name, child in value.items())
    elif keyword in _SINGLE_KEYWORDS and isinstance(value, dict | bool):
        yield (), value


def map_subschemas(schema: Schema, change: Callable[[object], object]) -> Schema:
    """Return a copy of one schema with `change` applied to its direct subschemas."""
    copy = dict(schema)
    for keyword, value in schema.items():
        if keyword in _MAP_KEYWORDS and isinstance(value, dict):
            copy[keyword] = {name: change(child) for name, child in value.items()}
        elif keyword in _LIST_KEYWORDS and isinstance(value, list):
            copy[keyword] = [change(child) for child in value]
        elif keyword in _SINGLE_KEYWORDS:
            copy[keyword] = change(value)
    return copy


SchemaMapping = Mapping[str, Any]

MAX_REFERENCES = 16
MAX_UNION_VARIANTS = 50
MAX_UNION_DEPTH = 4
SCALAR_KINDS = {"string": "text", "integer": "number", "number": "number"}
CONTAINER_KINDS = {"array": "list", "object": "group"}
ANNOTATION_KEYWORDS = ("title", "description", "default", "examples")


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of one part of a schema: `kind` is text, number, choice, list, group, union or json.

    `options` are the values of a choice, `variants` the schemas of a union; `nullable` if null is valid too.
    """

    kind: str
    schema: SchemaMapping
    nullable: bool = False
    options: tuple[Any, ...] = ()
    variants: tuple[SchemaMapping, ...] = field(default=())


def field_type_of(schema: object, root: SchemaMapping) -> FieldType:
    plain = expand_schema(schema, root)
    options = _options(plain)
    if options:
        return FieldType("choice", plain, options=options)
    variants = union_variants(plain, root)
    if not variants:
        kind = single_type_of(plain)
        return FieldType((SCALAR_KINDS.get(kind) or CONTAINER_KINDS.get(kind) or "json"), plain)
    solid = [each for each in variants if _options(each) != (None,)]
    nullable = len(solid) < len(variants)
    if len(solid) > 1 or not solid:
        return FieldType("union", plain, variants=variants)
    only = field_type_of({**solid[0], **{key: plain[key] for key in ANNOTATION_KEYWORDS if key in plain}}, root)
    if only.kind == "choice" and nullable:
        return FieldType("choice", only.schema, options=(*only.options, None))
    return FieldType(only.kind, only.schema, nullable=nullable, options=only.options, variants=only.variants)


def expand_schema(schema: object, root: SchemaMapping) -> SchemaMapping:
    """Return a schema with its reference resolved and its `allOf` merged; empty if the schema is no JSON object."""
    plain: SchemaMapping = schema if isinstance(schema, Mapping) else {}
    for _ in range(MAX_REFERENCES):
        if "$ref" in plain:
            rest = {key: value for key, value in plain.items() if key != "$ref"}
            plain = merge_schemas(rest, follow_reference(plain["$ref"], root))
        elif plain.get("allOf"):
            parts = [part for part in _schema_mappings(plain["allOf"]) if part]
            plain = {key: value for key, value in plain.items() if key != "allOf"}
            for part in parts[:MAX_UNION_VARIANTS]:
                plain = merge_schemas(plain, part)
        else:
            return plain
    return {}


def merge_schemas(first: SchemaMapping, second: SchemaMapping) -> SchemaMapping:
    """Return one schema for values that must match both; on conflicts the first wins."""
    both = {**second, **first}
    for key in ("properties", "$defs"):
        if isinstance(first.get(key), Mapping) and isinstance(second.get(key), Mapping):
            both[key] = {**second[key], **first[key]}
    if "required" in first and "required" in second:
        both["required"] = [*first["required"], *second["required"]]
    return both


def union_variants(plain: SchemaMapping, root: SchemaMapping, depth: int = 0) -> tuple[SchemaMapping, ...]:
    """Return the alternatives of a schema, with nested unions flattened; empty if there is no choice."""
    for key in ("oneOf", "anyOf"):
        if isinstance(plain.get(key), Sequence) and depth < MAX_UNION_DEPTH:
            base = {name: value for name, value in plain.items() if name not in (key, *ANNOTATION_KEYWORDS)}
            found = (
                _expand_variant(merge_schemas(expand_schema(part, root), base), root, depth)
                for part in _schema_mappings(plain[key])
            )
            return tuple(islice((each for group in found for each in group), MAX_UNION_VARIANTS))
    kinds = plain.get("type")
    if isinstance(kinds, list) and len(kinds) > 1:
        return tuple({**plain, "type": kind} for kind in kinds)
    return ()


def _expand_variant(part: SchemaMapping, root: SchemaMapping, depth: int) -> tuple[SchemaMapping, ...]:
    plain = expand_schema(part, root)
    return (() if _options(plain) else union_variants(plain, root, depth + 1)) or (plain,)


def _schema_mappings(parts: object) -> list[SchemaMapping]:
    return [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []


def _options(plain: SchemaMapping) -> tuple[Any, ...]:
    if "const" in plain:
        return (plain["const"],)
    if isinstance(plain.get("enum"), list):
        return tuple(plain["enum"])
    return {"boolean": (True, False), "null": (None,)}.get(str(single_type_of(plain)), ())


def single_type_of(plain: SchemaMapping) -> str:
    """Return the one type that a schema names or that its keywords imply; empty if there is no single type."""
    kind = plain.get("type", "")
    if isinstance(kind, list):
        kind = kind[0] if len(kind) == 1 else ""
    if not kind and isinstance(plain.get("properties"), Mapping):
        return "object"
    if not kind and ("items" in plain or "prefixItems" in plain):
        return "array"
    return kind if isinstance(kind, str) else ""


class _Document:
    """A schema document compared by identity: hashing its content would cost as much as reading it."""

    def __init__(self, root: SchemaMapping) -> None:
        self.root = root

    def __hash__(self) -> int:
        return id(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Document) and self.root is other.root


@lru_cache(maxsize=8)
def _reference_index(document: _Document) -> dict[str, object]:
    return index_references(dict(document.root))


def follow_reference(reference: object, root: SchemaMapping) -> SchemaMapping:
    """Resolve a reference within the same document; a dangling reference yields an empty schema."""
    try:
        target = resolve_reference(str(reference), _reference_index(_Document(root)))
    except KeyError:
        return {}
    return target if isinstance(target, Mapping) else {}


def nearest_variant(variants: Sequence[SchemaMapping], value: object, root: SchemaMapping) -> int | None:
    """Return the index of the variant that most likely matches a value; None if its type matches none."""
    closeness = [_closeness(field_type_of(variant, root), value, root) for variant in variants]
    best = max(closeness, default=0)
    return closeness.index(best) if best > 0 else None


def _closeness(field_type: FieldType, value: object, root: SchemaMapping) -> int:
    if field_type.nullable and value is None:
        return 1
    if field_type.kind == "choice":
        return 2 if is_choice(value, field_type.options) else 0
    if field_type.kind == "group" and isinstance(value, Mapping):
        return _closeness_of_members(field_type.schema, value, root)
    fits = {
        "text": isinstance(value, str),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "list": isinstance(value, list),
        "json": True,
    }
    return int(fits.get(field_type.kind, False))


def _closeness_of_members(plain: SchemaMapping, value: Mapping[str, Any], root: SchemaMapping) -> int:
    properties = plain.get("properties", {})
    for name, part in properties.items():
        options = _options(expand_schema(part, root))
        if name in value and len(options) == 1 and not is_choice(value[name], options):
            return 0
    known = sum(name in properties for name in value)
    missing = sum(name not in value for name in plain.get("required", ()))
    return max(1, 1000 + 2 * known - len(value) - missing)


def is_choice(value: object, options: Sequence[Any]) -> bool:
    """Return whether a value equals one of the options as JSON, where true is not 1."""
    return choice_text(value) in map(choice_text, options)


def choice_text(value: object) -> str:
    try:
        return canonical_text(value)
    except MalformedJSON:
        return ""
