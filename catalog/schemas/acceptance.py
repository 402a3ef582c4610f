"""Acceptance of JSON Schemas, and an upper bound on the work of validation: hostile input must not occupy a thread."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema
import jsonschema_rs

from catalog.core.canonical_json import MAX_JSON_DEPTH, MAX_SAFE_INTEGER, check_json, json_size
from catalog.core.json_paths import dotted, member_path
from catalog.errors import MalformedJSON, SchemaProblem
from catalog.schemas.resolver import (
    REFERENCE_KEYWORDS,
    Schema,
    child_schemas,
    index_references,
    map_subschemas,
    resolve_reference,
    subschemas,
)

MAX_EVALUATIONS = 4_000_000
"""Maximum evaluations for validating one document."""
MAX_STATE_STEPS = 16_000_000
"""Maximum product of characters and pattern states for one document."""
MAX_EXPLAINED_EVALUATIONS = 10_000
"""Maximum evaluations for explaining every error: that costs a thousand times as much as a yes or no."""
MAX_COUNTED_VISITS = 15_000
"""Maximum evaluations counted one by one, if the bound from the schema alone is too high."""
LARGEST_DOCUMENT = 131_072
"""Values, at two bytes each, in the largest accepted arguments."""
MAX_BRANCHES = 10_000
MAX_CHAIN = 32
MAX_PATTERN_KIB = 1024

_COST_CEILING = 10**12
_STATES_PER_KIB = 8
_FRACTIONAL_MULTIPLE_COST = 5_000
_IN_PLACE_APPLICATORS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


@dataclass(frozen=True, slots=True)
class DocumentSize:
    """Size of a document: its values and keys, levels, and characters."""

    values: int
    depth: int
    characters: int


@dataclass(eq=False, slots=True)
class _Node:
    """A subschema: the cost of one evaluation, its pattern states, and the nodes it applies to members and entries."""

    weight: int
    states: int
    same: "list[_Node]" = field(default_factory=list)
    named: "dict[str, _Node]" = field(default_factory=dict)
    pattern_properties: "list[_Node]" = field(default_factory=list)
    others: "list[_Node]" = field(default_factory=list)
    names: "list[_Node]" = field(default_factory=list)
    first: "list[_Node]" = field(default_factory=list)
    entries: "list[_Node]" = field(default_factory=list)
    met: int = 0

    def max_visits_below(self) -> int:
        """Return the highest number of evaluations that one member or entry of a value can need."""
        members = max([each.met for each in self.named.values()]) if self.named else 0
        entries = max([each.met for each in self.first]) if self.first else 0
        for group in (self.pattern_properties, self.others, self.names):
            members += sum([each.met for each in group]) if group else 0
        entries += sum([each.met for each in self.entries]) if self.entries else 0
        return min(_COST_CEILING, max(members, entries))

    def visits_below(self, value: object) -> "Iterator[tuple[_Node, object]]":
        """Yield the nodes that apply to each member or entry of a value, assuming that every pattern matches."""
        if isinstance(value, dict):
            everywhere = self.others or self.pattern_properties or self.names  # otherwise most keys match nothing here
            for key in value if everywhere else value.keys() & self.named.keys():
                member = value[key]
                own = [self.named[key]] if key in self.named else self.others
                yield from ((each, member) for each in own)
                yield from ((each, member) for each in self.pattern_properties)
                yield from ((each, key) for each in self.names)
        elif isinstance(value, list):
            yield from zip(self.first, value, strict=False)
            yield from ((each, entry) for each in self.entries for entry in value)


class ComplexityBound:
    """Upper bound on the cost of validating with a schema. Raises SchemaProblem if there is no bound."""

    __slots__ = ("_evaluations", "_root", "_states", "harmless")

    def __init__(self, schema: Schema) -> None:
        nodes = _build_nodes(schema)
        self._root = nodes[id(schema)]
        order = _topological_order(nodes.values())
        self._evaluations = _cost_by_depth(self._root, order, lambda node: node.weight)
        self._states = _cost_by_depth(self._root, order, lambda node: node.states)
        self.harmless = (
            self._evaluations[-1] * LARGEST_DOCUMENT <= MAX_EVALUATIONS
            and self._states[-1] * LARGEST_DOCUMENT * 2 <= MAX_STATE_STEPS
        )

    def allows(self, value: object) -> bool:
        if self.harmless:
            return True
        size = document_size(value)
        evaluations, states = _cost_at_depth(self._evaluations, size.depth), _cost_at_depth(self._states, size.depth)
        if evaluations * size.values <= MAX_EVALUATIONS and states * size.characters <= MAX_STATE_STEPS:
            return True
        return self._fits(value, MAX_EVALUATIONS)

    def explains(self, value: object) -> bool:
        size = document_size(value)
        return _cost_at_depth(self._evaluations, size.depth) * size.values <= MAX_EXPLAINED_EVALUATIONS or self._fits(
            value, MAX_EXPLAINED_EVALUATIONS
        )

    def _fits(self, value: object, budget: int) -> bool:
        """Count evaluations value by value until they exceed the budget; return False as soon as they do."""
        counted = evaluations = steps = 0
        waiting: list[tuple[_Node, object]] = [(self._root, value)]
        while waiting:
            node, found = waiting.pop()
            counted += 1
            evaluations += node.weight
            if node.states:
                strings = found if isinstance(found, dict) else [found] if isinstance(found, str) else ()
                steps += node.states * sum(map(len, strings))
            if counted + len(waiting) > MAX_COUNTED_VISITS or evaluations > budget or steps > MAX_STATE_STEPS:
                return False
            waiting += ((each, found) for each in node.same)
            waiting += islice(node.visits_below(found), MAX_COUNTED_VISITS)
        return True


def _build_nodes(schema: Schema) -> dict[int, _Node]:
    named = index_references(schema)
    places = [each for _, each in subschemas(schema)]
    nodes = {}
    for each in places:
        patterns = [*each.get("patternProperties", ()), *([each["pattern"]] if "pattern" in each else [])]
        nodes[id(each)] = _Node(_evaluation_cost(each), sum(map(automaton_states, patterns)))

    def below(each: Schema, *keywords: str) -> list[_Node]:
        return [nodes[id(child)] for child in child_schemas(each, *keywords) if isinstance(child, dict)]

    for each in places:
        node = nodes[id(each)]
        referred = (resolve_reference(each[keyword], named) for keyword in REFERENCE_KEYWORDS if keyword in each)
        node.same = below(each, *_IN_PLACE_APPLICATORS) + [
            nodes[id(target)] for target in referred if isinstance(target, dict)
        ]
        members = each.get("properties", {}).items()
        node.named = {name: nodes[id(child)] for name, child in members if isinstance(child, dict)}
        node.pattern_properties, node.names = below(each, "patternProperties"), below(each, "propertyNames")
        node.others = below(each, "additionalProperties", "unevaluatedProperties")
        node.first, node.entries = below(each, "prefixItems"), below(each, "items", "contains", "unevaluatedItems")
    return nodes


def _topological_order(nodes: Iterable[_Node]) -> list[_Node]:
    """Return the nodes, each after the nodes that it applies to the same value. Raises SchemaProblem for a cycle."""
    heights: dict[_Node, int] = {}

    def climb(node: _Node, nodes_above: tuple[_Node, ...]) -> int:
        if node in nodes_above:
            raise SchemaProblem("A reference leads back to itself at the same value.")
        if node not in heights:
            if len(nodes_above) >= MAX_CHAIN:
                raise SchemaProblem(f"More than {MAX_CHAIN} references and combinations follow each other.")
            heights[node] = 1 + max((climb(each, (*nodes_above, node)) for each in node.same), default=0)
            node.met = 1 + sum(each.met for each in node.same)
            if node.met > MAX_BRANCHES:
                raise SchemaProblem(f"The schema unfolds into more than {MAX_BRANCHES:,} branches.")
        if heights[node] + len(nodes_above) > MAX_CHAIN:
            raise SchemaProblem(f"More than {MAX_CHAIN} references and combinations follow each other.")
        return heights[node]

    for node in nodes:
        climb(node, ())
    return list(heights)


def _cost_by_depth(root_node: _Node, ordered_nodes: list[_Node], node_weight: Callable[[_Node], int]) -> list[int]:
    """Return the maximum cost at one value, by its depth below the root; the last entry is for all deeper values."""
    own = [node_weight(node) for node in ordered_nodes]
    most: list[int] = []
    for _ in range(MAX_JSON_DEPTH + 1):
        for node, weight in zip(ordered_nodes, own, strict=True):
            node.met = weight + sum(each.met for each in node.same)
        most.append(min(_COST_CEILING, max([root_node.met, *most[-1:]])))
        below = [node.max_visits_below() for node in ordered_nodes]
        if below == own or not any(below) or most[-1] == _COST_CEILING:
            break
        own = below
    return most


def document_size(value: object) -> DocumentSize:
    values = depth = characters = 0
    level: list[object] = [value]
    while level:
        depth += 1
        values += len(level)
        characters += sum(len(each) for each in level if isinstance(each, str))
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return DocumentSize(values, depth, characters)


def _cost_at_depth(by_depth: list[int], depth: int) -> int:
    return by_depth[min(depth, len(by_depth)) - 1]


def _evaluation_cost(schema: Schema) -> int:
    weight = 1 + len(schema.get("required", ())) + len(schema.get("patternProperties", ()))
    weight += sum(1 + len(names) for names in schema.get("dependentRequired", {}).values())
    compared = [*schema.get("enum", ()), schema.get("const")]
    weight += sum(document_size(each).values for each in compared if isinstance(each, dict | list))
    return weight + (_FRACTIONAL_MULTIPLE_COST if isinstance(schema.get("multipleOf"), float) else 0)


@lru_cache(maxsize=4096)
def automaton_states(pattern: str) -> int:
    """Return a pattern's approximate number of states. Raises SchemaProblem if no linear-time engine accepts it."""
    kib = 1
    while kib <= MAX_PATTERN_KIB:
        options: Any = jsonschema_rs.RegexOptions(size_limit=kib * 1024)
        try:
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=options)
        except ValueError:
            kib *= 2
        else:
            return kib * _STATES_PER_KIB
    raise SchemaProblem("No linear-time engine accepts this pattern.")


__all__ = ["DIALECT", "MAX_SCHEMA_BYTES", "MAX_SCHEMA_DEPTH", "MAX_SUBSCHEMAS", "check_schema", "subschemas"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SUBSCHEMAS = 1000
MAX_PATTERN_LENGTH = 1024
MAX_PATTERNS = 200
SMALL_SCHEMA_BYTES, SMALL_SUBSCHEMA_COUNT = 16 * 1024, 100
MAX_QUOTED_VALUE = 80
# The format checker's `regex` uses Python's syntax, which differs from JSON Schema's and can be slow.
_NO_FORMATS = jsonschema.FormatChecker(formats=())


def check_schema(schema: Schema) -> tuple[jsonschema_rs.Draft202012Validator, ComplexityBound]:
    """Return the compiled schema and its complexity bound. Raises SchemaProblem with location and cause."""
    if not isinstance(schema, dict):
        raise SchemaProblem(f"A schema must be a JSON object, not {_quote_value(schema)}.")
    try:
        check_json(schema, max_depth=MAX_SCHEMA_DEPTH)
    except MalformedJSON as problem:
        if problem.code == "too_deep":
            raise SchemaProblem(f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.") from None
        raise SchemaProblem(problem.message, problem.path) from None
    size = json_size(schema)
    if size > MAX_SCHEMA_BYTES:
        raise SchemaProblem(f"The schema has {size:,} bytes. At most {MAX_SCHEMA_BYTES:,} are accepted.")
    places = list(islice(subschemas(schema), MAX_SUBSCHEMAS + 1))
    if len(places) > MAX_SUBSCHEMAS:
        raise SchemaProblem(f"The schema has more than {MAX_SUBSCHEMAS:,} subschemas.")
    _check_dialect(places)
    _check_metaschema(schema, small=size <= SMALL_SCHEMA_BYTES and len(places) <= SMALL_SUBSCHEMA_COUNT)
    named = index_references(schema)
    for path, subschema in places:
        for keyword in REFERENCE_KEYWORDS:
            reference = subschema.get(keyword, "#")
            if not reference.startswith("#"):
                raise SchemaProblem(
                    f"{keyword} may only point inside the schema (#…), not at {_quote_value(reference)}.", path
                )
            try:
                resolve_reference(reference, named)
            except KeyError:
                raise SchemaProblem(
                    f"{keyword} points at {_quote_value(reference)}, where there is no schema.", path
                ) from None
        if "$id" in subschema:
            message = "$id is not allowed because it changes the targets of references."
            message = f"{message} Remove {_quote_value(subschema['$id'])}."
            raise SchemaProblem(message, path)
    _check_patterns(places)
    return _compile(_with_integer_bounds(schema)), ComplexityBound(schema)


def compile_unbounded(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    """Compile an accepted schema without bounds for integers, for values that hold very large integers."""
    return _compile(schema)


def _compile(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as error:
        raise SchemaProblem(str(error).splitlines()[0]) from None


def _with_integer_bounds(schema: Any) -> Any:
    """Limit a schema's integers to ±MAX_SAFE_INTEGER: a larger float would pass as an integer but stay a float."""
    if not isinstance(schema, dict):
        return schema
    bounded = map_subschemas(schema, _with_integer_bounds)
    kinds = schema.get("type", ())
    if "integer" in kinds and "number" not in kinds:
        bounded["minimum"] = max(schema.get("minimum", -MAX_SAFE_INTEGER), -MAX_SAFE_INTEGER)
        bounded["maximum"] = min(schema.get("maximum", MAX_SAFE_INTEGER), MAX_SAFE_INTEGER)
    return bounded


def _check_dialect(places: list[tuple[str, Schema]]) -> None:
    for path, subschema in places:
        dialect = subschema.get("$schema", DIALECT)
        if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
            message = f"Only JSON Schema 2020-12 is accepted, not {_quote_value(dialect)}."
            raise SchemaProblem(message, member_path(path, "$schema"))


def _check_metaschema(schema: Schema, *, small: bool) -> None:
    """Raise SchemaProblem for an invalid schema. jsonschema explains errors best, but only `small` ones fast enough."""
    if jsonschema_rs.meta.is_valid(dict(schema)):
        return
    try:
        if small:
            jsonschema.Draft202012Validator.check_schema(schema, format_checker=_NO_FORMATS)
        jsonschema_rs.meta.validate(dict(schema))
    except jsonschema.SchemaError as error:
        path = dotted(error.absolute_path)
        raise SchemaProblem(_truncate(error.message), path) from None
    except jsonschema_rs.ValidationError as error:
        raise SchemaProblem(_truncate(error.message), dotted(error.instance_path)) from None


def _check_patterns(places: list[tuple[str, Schema]]) -> None:
    patterns: list[tuple[str, str]] = []
    for path, schema in places:
        named = schema.get("patternProperties", ())
        patterns += ((member_path(path, f"patternProperties.{each}"), each) for each in named)
        if "pattern" in schema:
            patterns.append((member_path(path, "pattern"), schema["pattern"]))
    if len({pattern for _, pattern in patterns}) > MAX_PATTERNS:
        raise SchemaProblem(f"The schema has more than {MAX_PATTERNS} different patterns.")
    for path, pattern in patterns:
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise SchemaProblem(f"A pattern may have at most {MAX_PATTERN_LENGTH:,} characters.", path)
        try:
            automaton_states(pattern)
        except SchemaProblem:
            message = "A pattern must run in linear time: no look-around, no back-references, no huge"
            raise SchemaProblem(f"{message} repetition. This one is {_quote_value(pattern)}.", path) from None


def _quote_value(value: object) -> str:
    return _truncate(json.dumps(value, ensure_ascii=False, default=str), MAX_QUOTED_VALUE)


def _truncate(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
