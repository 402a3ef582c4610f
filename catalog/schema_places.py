"""Where schemas stand inside a schema, and what each reference points at. Reads JSON Schema, judges nothing.

Every function takes what nobody has judged yet: what is not of the right shape is no place.
"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
_KEYWORDS = frozenset((*_SINGLE, *_LISTS, *_MAPS))
REFERENCES = ("$ref", "$dynamicRef")


def subschemas(schema: object) -> Iterator[tuple[str, Schema]]:
    """Yield (dotted path, subschema) for the schema and everything that stands inside it."""
    for steps, place in _places(schema, ()):
        if isinstance(place, dict):
            yield ".".join(steps), place


def children(schema: Schema, *keywords: str) -> Iterator[object]:
    """Yield the schemas that stand directly below these keywords."""
    for keyword in keywords:
        yield from (child for _, child in _below(schema, keyword))


def targets(schema: Schema) -> dict[str, object]:
    """Return everything a reference may name, by the text it would have: `#`, `#/$defs/name`, `#anchor`."""
    named: dict[str, object] = {}
    for steps, place in _places(schema, ()):
        named["#" + "".join(f"/{_escaped(step)}" for step in steps)] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(place, dict) and isinstance(place.get(keyword), str):
                named[f"#{place[keyword]}"] = place
    return named


def target_of(reference: str, named: dict[str, object]) -> object:
    """Return the schema that a reference means. Raises KeyError where no schema stands."""
    return named[unquote(reference)]


def _places(schema: object, steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    yield steps, schema
    if isinstance(schema, dict):
        for keyword in [each for each in schema if each in _KEYWORDS]:
            for below, child in _below(schema, keyword):
                yield from _places(child, (*steps, keyword, *below))


def _below(schema: Schema, keyword: str) -> Iterator[tuple[tuple[str, ...], object]]:
    value = schema.get(keyword)
    if keyword in _LISTS and isinstance(value, list):
        yield from (((str(index),), child) for index, child in enumerate(value))
    elif keyword in _MAPS and isinstance(value, dict):
        yield from (((name,), child) for name, child in value.items())
    elif keyword in _SINGLE and isinstance(value, dict | bool):
        yield (), value


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def with_children(schema: Schema, change: Callable[[object], object]) -> Schema:
    """Return a copy of one schema whose direct subschemas are what `change` makes of them."""
    copy = dict(schema)
    for keyword, value in schema.items():
        if keyword in _MAPS and isinstance(value, dict):
            copy[keyword] = {name: change(child) for name, child in value.items()}
        elif keyword in _LISTS and isinstance(value, list):
            copy[keyword] = [change(child) for child in value]
        elif keyword in _SINGLE:
            copy[keyword] = change(value)
    return copy
