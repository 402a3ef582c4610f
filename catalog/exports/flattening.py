"""Flattening of argument schemas for model providers. It may loosen them: the tool's own schema decides."""

import re
from collections.abc import Mapping
from typing import Any

from catalog.schemas.resolver import Schema, index_references, map_subschemas, resolve_reference

_FORBIDDEN_AT_TOP_LEVEL = ("oneOf", "anyOf", "allOf", "enum", "not", "const", "if", "then", "else")
_FORBIDDEN_KEYWORDS = ("$schema", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$dynamicRef", "$comment")
_MAX_REFERENCE_HOPS = 8


def flatten_to_object(schema: Mapping[str, Any]) -> Schema:
    """Return the schema as one object: top-level alternatives are merged, references become `#/$defs/…`."""
    root, definitions = collect_definitions(schema)
    root = _merge_alternatives(root, definitions)
    flat = {keyword: value for keyword, value in root.items() if keyword not in _FORBIDDEN_AT_TOP_LEVEL}
    flat |= {"type": "object", "properties": root.get("properties", {})}
    used = _reachable_definitions(flat, definitions)
    return flat | ({"$defs": used} if used else {})


def collect_definitions(schema: Mapping[str, Any]) -> tuple[Schema, dict[str, Any]]:
    """Return the schema with every reference as `#/$defs/name`, and the definitions by these names.

    A dangling reference becomes a schema that accepts anything. Registration refuses dangling references, but an older
    row may have one.
    """
    named = index_references(dict(schema))
    nowhere: Schema = {}
    names: dict[int, str] = {}
    definitions: dict[str, Any] = {}

    def moved(place: object) -> Any:
        if not isinstance(place, dict):
            return place
        copy = map_subschemas({word: place[word] for word in place if word not in _FORBIDDEN_KEYWORDS}, moved)
        reference = place.get("$ref", place.get("$dynamicRef"))
        return copy | ({"$ref": f"#/$defs/{name_of(reference)}"} if reference else {})

    def name_of(reference: str) -> str:
        try:
            target = resolve_reference(reference, named)
        except KeyError:
            target = nowhere
        if id(target) not in names:
            preferred = re.sub("[^A-Za-z0-9_-]", "_", reference.rpartition("/")[2]).strip("_") or "definition"
            candidates = (preferred, *(f"{preferred}_{number}" for number in range(2, 9999)))
            names[id(target)] = name = next(each for each in candidates if each not in definitions)
            definitions[name] = {}
            definitions[name] = moved(target)
        return names[id(target)]

    root = moved(dict(schema))
    return root, definitions


def resolve_with_siblings(schema: Schema, definitions: Mapping[str, Any]) -> Schema:
    for _ in range(_MAX_REFERENCE_HOPS):
        if "$ref" not in schema:
            break
        target = definitions[schema["$ref"].rpartition("/")[2]]
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        schema = {**target, **beside} if isinstance(target, dict) else beside
    return schema


def _merge_alternatives(schema: Schema, definitions: Mapping[str, Any], depth: int = _MAX_REFERENCE_HOPS) -> Schema:
    """Return the schema with the members of all alternatives; only members that all of them require stay required."""
    schema = resolve_with_siblings(schema, definitions)
    if depth == 0:
        return schema
    together = [
        _merge_alternatives(each, definitions, depth - 1) for each in schema.get("allOf", ()) if isinstance(each, dict)
    ]
    members, required = dict(schema.get("properties", {})), list(schema.get("required", ()))
    for part in together:
        members |= {name: each for name, each in part.get("properties", {}).items() if name not in members}
        required += part.get("required", ())
    for word in ("anyOf", "oneOf"):
        forms = [
            _merge_alternatives(each, definitions, depth - 1) for each in schema.get(word, ()) if isinstance(each, dict)
        ]
        for name in dict.fromkeys(name for form in forms for name in form.get("properties", {})):
            found = [form["properties"][name] for form in forms if name in form.get("properties", {})]
            members.setdefault(name, _any_of_forms(found))
        first, *rest = [form.get("required", ()) for form in forms] or [()]
        required += [name for name in first if all(name in each for each in rest)]
        if forms and "additionalProperties" not in schema:
            closed = all(form.get("additionalProperties") is False for form in forms)
            schema = schema | ({"additionalProperties": False} if closed else {})
    required = [name for name in dict.fromkeys(required) if name in members]
    return schema | {"properties": members} | ({"required": required} if required else {})


def _any_of_forms(found: list[Any]) -> Any:
    different = [each for index, each in enumerate(found) if each not in found[:index]]
    if len(different) == 1:
        return different[0]
    if all(isinstance(each, dict) and "const" in each for each in different):
        return {"enum": [each["const"] for each in different]}
    return {"anyOf": different}


def _reachable_definitions(schema: Schema, definitions: Mapping[str, Any]) -> dict[str, Schema]:
    used: dict[str, Schema] = {}

    def look(place: object) -> object:
        if isinstance(place, dict):
            name = str(place.get("$ref", "")).rpartition("/")[2]
            if "$ref" in place and name not in used:
                used[name] = definitions[name]
                look(definitions[name])
            map_subschemas(place, look)
        return place

    look(schema)
    return used
