"""Which JSON Schemas Toolgate takes: valid 2020-12, local, linear-time, small; judged at registration."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema
import jsonschema_rs

from catalog.core.canonical_json import MAX_INTEGER, check_json, size_of
from catalog.errors import MalformedJSON, SchemaProblem
from catalog.schema_costs import Costs, states_of
from catalog.schema_places import REFERENCES, Schema, subschemas, target_of, targets, with_children

__all__ = ["DIALECT", "MAX_SCHEMA_BYTES", "MAX_SCHEMA_DEPTH", "MAX_SUBSCHEMAS", "check_schema", "subschemas"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SUBSCHEMAS = 1000
MAX_PATTERN = 1024
MAX_PATTERNS = 200
SMALL_BYTES, SMALL_COUNT = 16 * 1024, 100
SHOWN = 80
# Its `regex` is Python's, which knows less of Unicode than JSON Schema's and more of what is slow.
_NO_FORMATS = jsonschema.FormatChecker(formats=())


def check_schema(schema: Schema) -> tuple[jsonschema_rs.Draft202012Validator, Costs]:
    """Return the schema compiled, and what it can cost; raise SchemaProblem, naming the place and what stands there."""
    size = _judge_size(schema)
    places = list(islice(subschemas(schema), MAX_SUBSCHEMAS + 1))
    if len(places) > MAX_SUBSCHEMAS:
        raise SchemaProblem(f"The schema has more than {MAX_SUBSCHEMAS:,} subschemas.")
    _judge_dialect(places)
    _judge_with_metaschema(schema, small=size <= SMALL_BYTES and len(places) <= SMALL_COUNT)
    named = targets(schema)
    for path, subschema in places:
        _judge_references(subschema, path, named)
    _judge_patterns(places)
    return _build(schema), Costs(schema)


def _build(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Compile a schema so that it can neither fetch nor backtrack; raise SchemaProblem."""
    try:
        return jsonschema_rs.Draft202012Validator(
            _with_bounds(dict(schema)), offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as error:
        raise SchemaProblem(str(error).splitlines()[0]) from None


def _with_bounds(schema: Any) -> Any:
    """Return a schema whose integers lie within ±MAX_INTEGER: a float beyond that is whole, and stays a float."""
    if not isinstance(schema, dict):
        return schema
    bounded = with_children(schema, _with_bounds)
    kinds = schema.get("type", ())
    if "integer" in kinds and "number" not in kinds:
        bounded["minimum"] = max(schema.get("minimum", -MAX_INTEGER), -MAX_INTEGER)
        bounded["maximum"] = min(schema.get("maximum", MAX_INTEGER), MAX_INTEGER)
    return bounded


def _judge_size(schema: object) -> int:
    """Return the bytes of the schema; refuse what is too large to look at."""
    if not isinstance(schema, dict):
        raise SchemaProblem(f"A schema must be a JSON object, not {_shown(schema)}.")
    try:
        check_json(schema, max_depth=MAX_SCHEMA_DEPTH)
    except MalformedJSON as problem:
        if problem.code == "too_deep":
            raise SchemaProblem(f"The schema nests deeper than {MAX_SCHEMA_DEPTH} levels.") from None
        raise SchemaProblem(problem.message, problem.path) from None
    size = size_of(schema)
    if size > MAX_SCHEMA_BYTES:
        raise SchemaProblem(f"The schema has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,} are accepted.")
    return size


def _judge_dialect(places: list[tuple[str, Schema]]) -> None:
    for path, subschema in places:
        dialect = subschema.get("$schema", DIALECT)
        if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
            message = f"Only JSON Schema 2020-12 is accepted, not {_shown(dialect)}."
            raise SchemaProblem(message, _inside(path, "$schema"))


def _judge_with_metaschema(schema: Schema, *, small: bool) -> None:
    """Refuse what is no valid schema: jsonschema says best why, and needs a millisecond for each subschema."""
    try:
        if small:
            jsonschema.Draft202012Validator.check_schema(schema, format_checker=_NO_FORMATS)
        jsonschema_rs.meta.validate(dict(schema))
    except jsonschema.SchemaError as error:
        path = ".".join(str(step) for step in error.absolute_path)
        raise SchemaProblem(_cut(error.message), path) from None
    except jsonschema_rs.ValidationError as error:
        raise SchemaProblem(_cut(error.message), ".".join(str(step) for step in error.instance_path)) from None


def _judge_references(schema: Schema, path: str, named: dict[str, object]) -> None:
    for keyword in REFERENCES:
        reference = schema.get(keyword, "#")
        if not reference.startswith("#"):
            raise SchemaProblem(f"{keyword} may only point inside the schema (#…), not at {_shown(reference)}.", path)
        try:
            target_of(reference, named)
        except KeyError:
            raise SchemaProblem(f"{keyword} points at {_shown(reference)}, where no schema stands.", path) from None
    if "$id" in schema:
        message = f"$id would move where references point; leave out {_shown(schema['$id'])}."
        raise SchemaProblem(message, path)


def _judge_patterns(places: list[tuple[str, Schema]]) -> None:
    patterns = [(_inside(path, step), pattern) for path, schema in places for step, pattern in _patterns(schema)]
    if len({pattern for _, pattern in patterns}) > MAX_PATTERNS:
        raise SchemaProblem(f"The schema has more than {MAX_PATTERNS} different patterns.")
    for path, pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            raise SchemaProblem(f"A pattern may have at most {MAX_PATTERN:,} characters.", path)
        try:
            states_of(pattern)
        except SchemaProblem:
            message = "A pattern must be one a linear-time engine takes: no look-around, no back-references, no huge"
            raise SchemaProblem(f"{message} repetition. This one is {_shown(pattern)}.", path) from None


def _patterns(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield each pattern of one subschema, and where it stands in it."""
    yield from ((f"patternProperties.{each}", each) for each in schema.get("patternProperties", ()))
    if "pattern" in schema:
        yield "pattern", schema["pattern"]


def _inside(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step


def _shown(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=str), SHOWN)


def _cut(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
