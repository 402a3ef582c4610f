"""Which JSON Schemas Toolgate takes: valid 2020-12, local, linear-time, small; judged at registration."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import jsonschema_rs

from catalog.canonical import check_json, size_of
from catalog.errors import MalformedJSON, SchemaProblem

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SUBSCHEMAS = 1000
MAX_PATTERN = 256
MAX_BRANCHES = 10_000

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
_IN_PLACE = (*("allOf", "anyOf", "oneOf"), *("not", "if", "then", "else"))


def check_schema(schema: dict[str, Any]) -> None:
    """Raise SchemaProblem, naming the place, unless the schema is one that we take."""
    _judge_size(schema)
    _judge_with_metaschema(schema)
    for count, (path, subschema) in enumerate(subschemas(schema), start=1):
        if count > MAX_SUBSCHEMAS:
            raise SchemaProblem(f"The schema has more than {MAX_SUBSCHEMAS} subschemas.")
        _judge_references(subschema, path)
        _judge_patterns(subschema, path)
    _judge_branching(schema)
    build(schema)


def build(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Compile a schema so that it can neither fetch nor backtrack; raise SchemaProblem."""
    try:
        return jsonschema_rs.Draft202012Validator(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as error:
        raise SchemaProblem(str(error).splitlines()[0]) from None


def subschemas(schema: object, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (dotted path, subschema) for the schema and everything that applies inside it."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for step, child in _children(schema):
        yield from subschemas(child, f"{path}.{step}" if path else step)


def _children(schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for keyword in _SINGLE:
        if keyword in schema:
            yield keyword, schema[keyword]
    for keyword in _LISTS:
        for index, child in enumerate(schema.get(keyword, ())):
            yield f"{keyword}.{index}", child
    for keyword in _MAPS:
        for name, child in schema.get(keyword, {}).items():
            yield f"{keyword}.{name}", child


def _judge_size(schema: object) -> None:
    if not isinstance(schema, dict):
        raise SchemaProblem("A schema must be a JSON object.")
    try:
        check_json(schema, max_depth=MAX_SCHEMA_DEPTH)
    except MalformedJSON as problem:
        if problem.code == "too_deep":
            raise SchemaProblem(f"The schema nests deeper than {MAX_SCHEMA_DEPTH} levels.") from None
        raise SchemaProblem(problem.message, problem.path) from None
    size = size_of(schema)
    if size > MAX_SCHEMA_BYTES:
        raise SchemaProblem(f"The schema has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,} are accepted.")


def _judge_with_metaschema(schema: Mapping[str, Any]) -> None:
    if schema.get("$schema", DIALECT).rstrip("#") != DIALECT:
        raise SchemaProblem("Only JSON Schema 2020-12 is accepted.", "$schema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SchemaProblem(error.message[:300], ".".join(str(step) for step in error.absolute_path)) from None


def _judge_references(schema: dict[str, Any], path: str) -> None:
    for keyword in ("$ref", "$dynamicRef"):
        target = schema.get(keyword, "#")
        if not target.startswith("#"):
            raise SchemaProblem(f"{keyword} may only point inside the schema (#…).", path)
    if "$id" in schema:
        raise SchemaProblem("$id would move where references point; leave it out.", path)


def _judge_patterns(schema: dict[str, Any], path: str) -> None:
    for pattern in (*[schema.get("pattern", "")], *schema.get("patternProperties", ())):
        if len(pattern) > MAX_PATTERN:
            raise SchemaProblem(f"A pattern may have at most {MAX_PATTERN} characters.", path)
        try:
            build({"pattern": pattern})
        except SchemaProblem:
            message = "A pattern must be one a linear-time engine takes: no look-around, no back-references."
            raise SchemaProblem(message, path) from None


def _judge_branching(schema: dict[str, Any]) -> None:
    """Refuse references that multiply: each value could otherwise be tried against billions of branches."""
    costs: dict[int, int] = {}
    for _, subschema in subschemas(schema):
        _branches(subschema, schema, costs)


def _branches(schema: object, root: dict[str, Any], costs: dict[int, int]) -> int:
    if not isinstance(schema, dict):
        return 1
    key = id(schema)
    if key not in costs:
        costs[key] = 1  # a reference back to here costs one: the validator stops at loops
        costs[key] = 1 + sum(_branches(child, root, costs) for child in _applied_in_place(schema, root))
        if costs[key] > MAX_BRANCHES:
            raise SchemaProblem(f"The schema unfolds into more than {MAX_BRANCHES:,} branches.")
    return costs[key]


def _applied_in_place(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[object]:
    for step, child in _children(schema):
        if step.partition(".")[0] in _IN_PLACE:
            yield child
    if "$ref" in schema:
        yield _target(schema["$ref"], root)


def _target(reference: str, root: dict[str, Any]) -> object:
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target[int(name)] if isinstance(target, list) and name.isdecimal() else _member(target, name)
    return target


def _member(container: object, name: str) -> object:
    return container.get(name) if isinstance(container, dict) else None
