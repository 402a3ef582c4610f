"""Arguments with the defaults of their schema filled in: what a call that leaves them out runs with."""

from collections.abc import Iterator
from typing import Any

from catalog.schema_places import REFERENCES, Schema, children, target_of, targets

MAX_DEPTH = 16


def with_defaults(schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with each member that is left out and has a default, in nested objects too.

    Of alternatives, only the one that the arguments' constants choose counts.
    """
    filled: dict[str, Any] = _filled([schema], arguments, targets(schema), MAX_DEPTH)
    return filled


def _filled(schemas: list[object], value: Any, named: dict[str, object], depth: int) -> Any:
    if not isinstance(value, dict) or not depth:
        return value
    members: dict[str, list[object]] = {}
    for form in _applied(schemas, value, named, depth):
        for name, member in form.get("properties", {}).items():
            members.setdefault(name, []).append(member)
    filled = dict(value)
    for name, declared in members.items():
        defaults = [each["default"] for each in declared if isinstance(each, dict) and "default" in each]
        if name in value:
            filled[name] = _filled(declared, value[name], named, depth - 1)
        elif defaults:
            filled[name] = defaults[0]
    return filled


def _applied(schemas: list[object], value: dict[str, Any], named: dict[str, object], depth: int) -> Iterator[Schema]:
    """Yield these schemas and those that judge the same object with them."""
    for schema in schemas:
        if not isinstance(schema, dict) or not depth:
            continue
        yield schema
        more = [*children(schema, "allOf"), *(target_of(schema[word], named) for word in REFERENCES if word in schema)]
        for word in ("anyOf", "oneOf"):
            chosen = [each for each in children(schema, word) if _may_judge(each, value, named)]
            more += chosen if len(chosen) == 1 else []
        yield from _applied(more, value, named, depth - 1)


def _may_judge(schema: object, value: dict[str, Any], named: dict[str, object]) -> bool:
    """Say whether an alternative is for objects with these constants."""
    meant = target_of(schema["$ref"], named) if isinstance(schema, dict) and "$ref" in schema else schema
    if not isinstance(meant, dict) or meant.get("type", "object") != "object":
        return False
    return all(
        value.get(name) == member["const"]
        for name, member in meant.get("properties", {}).items()
        if isinstance(member, dict) and "const" in member
    )
