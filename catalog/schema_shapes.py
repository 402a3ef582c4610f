"""What a JSON Schema asks for at one place, made plain: references followed, parts merged, unions opened.

For showing and filling in only: `catalog.schemas` judges. Whatever is odd here reads as a schema that says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from catalog.core.canonical_json import canonical_text
from catalog.errors import MalformedJSON
from catalog.schema_places import target_of, targets

Schema = Mapping[str, Any]

MOST_REFERENCES = 16
MOST_VARIANTS = 50
DEEPEST_UNION = 4
SCALARS = {"string": "text", "integer": "number", "number": "number"}
CONTAINERS = {"array": "list", "object": "group"}
NOTES = ("title", "description", "default", "examples")


@dataclass(frozen=True, slots=True)
class Shape:
    """One place of a schema: `kind` is text, number, choice, list, group, union or json.

    `options` are the values of a choice, `variants` the schemas of a union; `nullable` when null would do as well.
    """

    kind: str
    schema: Schema
    nullable: bool = False
    options: tuple[Any, ...] = ()
    variants: tuple[Schema, ...] = field(default=())


def shape_of(schema: object, root: Schema) -> Shape:
    """Return what a place asks for."""
    plain = plain_schema(schema, root)
    options = _options(plain)
    if options:
        return Shape("choice", plain, options=options)
    variants = variants_of(plain, root)
    if not variants:
        return Shape(_kind(plain), plain)
    solid = [each for each in variants if not _is_null(each)]
    nullable = len(solid) < len(variants)
    if len(solid) > 1 or not solid:
        return Shape("union", plain, variants=variants)
    only = shape_of({**solid[0], **{key: plain[key] for key in NOTES if key in plain}}, root)
    if only.kind == "choice" and nullable:
        return Shape("choice", only.schema, options=(*only.options, None))
    return Shape(only.kind, only.schema, nullable=nullable, options=only.options, variants=only.variants)


def plain_schema(schema: object, root: Schema) -> Schema:
    """Return a schema with its reference followed and its `allOf` merged; what is no object says nothing."""
    plain: Schema = schema if isinstance(schema, Mapping) else {}
    for _ in range(MOST_REFERENCES):
        if "$ref" in plain:
            rest = {key: value for key, value in plain.items() if key != "$ref"}
            plain = merged(rest, _target(plain["$ref"], root))
        elif plain.get("allOf"):
            parts = [part for part in _schemas(plain["allOf"]) if part]
            plain = {key: value for key, value in plain.items() if key != "allOf"}
            for part in parts[:MOST_VARIANTS]:
                plain = merged(plain, part)
        else:
            return plain
    return {}


def merged(first: Schema, second: Schema) -> Schema:
    """Return one schema for what must fit both; where they differ the first is shown."""
    both = {**second, **first}
    for key in ("properties", "$defs"):
        if isinstance(first.get(key), Mapping) and isinstance(second.get(key), Mapping):
            both[key] = {**second[key], **first[key]}
    if "required" in first and "required" in second:
        both["required"] = [*first["required"], *second["required"]]
    return both


def variants_of(plain: Schema, root: Schema, depth: int = 0) -> tuple[Schema, ...]:
    """Return the schemas a value may choose from, unions inside unions opened; empty when there is no choice."""
    for key in ("oneOf", "anyOf"):
        if isinstance(plain.get(key), Sequence) and depth < DEEPEST_UNION:
            base = {name: value for name, value in plain.items() if name not in (key, *NOTES)}
            found = (_opened(merged(part, base), root, depth) for part in _parts(plain[key], root))
            return tuple(islice((each for group in found for each in group), MOST_VARIANTS))
    kinds = plain.get("type")
    if isinstance(kinds, list) and len(kinds) > 1:
        return tuple({**plain, "type": kind} for kind in kinds)
    return ()


def _opened(part: Schema, root: Schema, depth: int) -> tuple[Schema, ...]:
    plain = plain_schema(part, root)
    return (() if _options(plain) else variants_of(plain, root, depth + 1)) or (plain,)


def _parts(parts: object, root: Schema) -> Iterator[Schema]:
    return (plain_schema(part, root) for part in _schemas(parts))


def _schemas(parts: object) -> list[Schema]:
    return [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []


def _options(plain: Schema) -> tuple[Any, ...]:
    if "const" in plain:
        return (plain["const"],)
    if isinstance(plain.get("enum"), list):
        return tuple(plain["enum"])
    return {"boolean": (True, False), "null": (None,)}.get(str(type_of(plain)), ())


def _kind(plain: Schema) -> str:
    kind = type_of(plain)
    return SCALARS.get(kind) or CONTAINERS.get(kind) or "json"


def type_of(plain: Schema) -> str:
    """Return the one type a schema names, or the one that its keywords are about; empty when neither is there."""
    kind = plain.get("type", "")
    if isinstance(kind, list):
        kind = kind[0] if len(kind) == 1 else ""
    if not kind and isinstance(plain.get("properties"), Mapping):
        return "object"
    if not kind and ("items" in plain or "prefixItems" in plain):
        return "array"
    return kind if isinstance(kind, str) else ""


def _is_null(plain: Schema) -> bool:
    return _options(plain) == (None,)


class _Document:
    """A whole schema, told from others by which object it is: hashing what it says would cost as much as reading it."""

    def __init__(self, root: Schema) -> None:
        self.root = root

    def __hash__(self) -> int:
        return id(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Document) and self.root is other.root


@lru_cache(maxsize=8)
def _named_in(document: _Document) -> dict[str, object]:
    return targets(dict(document.root))


def _target(reference: object, root: Schema) -> Schema:
    """Follow a reference inside the same document; one that leads nowhere says nothing."""
    try:
        target = target_of(str(reference), _named_in(_Document(root)))
    except KeyError:
        return {}
    return target if isinstance(target, Mapping) else {}


def nearest_variant(variants: Sequence[Schema], value: object, root: Schema) -> int | None:
    """Return the place of the variant that a value was most likely meant for; None when it is of no variant's type."""
    closeness = [_closeness(shape_of(variant, root), value, root) for variant in variants]
    best = max(closeness, default=0)
    return closeness.index(best) if best > 0 else None


def _closeness(shape: Shape, value: object, root: Schema) -> int:
    """Return how well a value fits, 0 for not at all: by its type, then by names and constants of its members."""
    if shape.nullable and value is None:
        return 1
    if shape.kind == "choice":
        return 2 if is_option(value, shape.options) else 0
    if shape.kind == "group" and isinstance(value, Mapping):
        return _closeness_of_members(shape.schema, value, root)
    fits = {
        "text": isinstance(value, str),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "list": isinstance(value, list),
        "json": True,
    }
    return int(fits.get(shape.kind, False))


def _closeness_of_members(plain: Schema, value: Mapping[str, Any], root: Schema) -> int:
    properties = plain.get("properties", {})
    for name, part in properties.items():
        options = _options(plain_schema(part, root))
        if name in value and len(options) == 1 and not is_option(value[name], options):
            return 0
    known = sum(name in properties for name in value)
    missing = sum(name not in value for name in plain.get("required", ()))
    return max(1, 1000 + 2 * known - len(value) - missing)


def is_option(value: object, options: Sequence[Any]) -> bool:
    """Say whether a value is one of these, as JSON compares: true is not 1."""
    return option_text(value) in map(option_text, options)


def option_text(value: object) -> str:
    """Return the text that stands for a value among others."""
    try:
        return canonical_text(value)
    except MalformedJSON:
        return ""
