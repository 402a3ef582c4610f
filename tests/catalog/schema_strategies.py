"""Hypothesis strategies for schemas of tools and for documents that may match them."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "path", "ünï"])
PATTERNS = st.sampled_from(["^[a-c]+$", "b", "^.{1,3}$", "(a|b)*c", "^[0-9]{2}-[0-9]{2}$", "a+b?"])
NUMBERS = st.integers(-5, 5) | st.sampled_from([0.0, 1.0, -2.0, 0.5, 1.5])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "abc", "b", "12-34", "ünï", "x" * 5])

documents = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)

texts = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={"minLength": st.integers(0, 3), "maxLength": st.integers(1, 4), "pattern": PATTERNS},
)
numbers = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMinimum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
    },
)
plain = st.sampled_from(
    [{"type": "boolean"}, {"type": "null"}, {}, {"type": ["string", "null"]}, {"type": ["integer", "boolean"]}]
)
choices = st.lists(documents, min_size=1, max_size=4).map(lambda values: {"enum": values}) | documents.map(
    lambda value: {"const": value}
)
leaves: st.SearchStrategy[Any] = (
    texts | numbers | plain | choices | st.sampled_from([{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/two"}])
)


def _lists(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
        },
    )


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=4)},
        optional={
            "required": st.lists(NAMES, max_size=3, unique=True),
            "additionalProperties": st.just(False) | inner,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
            "propertyNames": texts,
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(0, 3),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=1),
            "unevaluatedProperties": st.just(False),
        },
    )


def _combined(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=3)
    lists = st.sampled_from(["allOf", "anyOf", "oneOf"]).flatmap(lambda word: several.map(lambda each: {word: each}))
    return (
        lists
        | inner.map(lambda each: {"not": each})
        | st.fixed_dictionaries({"if": inner, "then": inner, "else": inner})
    )


schemas: st.SearchStrategy[Schema] = st.recursive(
    leaves, lambda inner: _lists(inner) | _objects(inner) | _combined(inner), max_leaves=8
)


@st.composite
def with_definitions(draw: st.DrawFn, root: st.SearchStrategy[Schema] = schemas) -> Schema:
    """Return a schema with two definitions, the second of which may contain itself one level down."""
    again: Schema = {"type": ["object", "null"], "properties": {"a": {"$ref": "#/$defs/two"}}}
    return {
        "$defs": {"one": draw(texts | numbers), "two": again | draw(st.sampled_from([{}, {"required": ["b"]}]))},
        **draw(root),
    }


parameters = with_definitions(_objects(schemas))
"""The schema of a tool's arguments: always an object."""


_KEYWORDS = st.sampled_from(
    [
        *(
            "properties",
            "patternProperties",
            "$defs",
            "dependentSchemas",
            "allOf",
            "anyOf",
            "oneOf",
            "prefixItems",
            "items",
        ),
        *(
            "additionalProperties",
            "unevaluatedProperties",
            "unevaluatedItems",
            "contains",
            "propertyNames",
            "not",
            "if",
        ),
        *("then", "contentSchema", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$id", "$schema", "$vocabulary"),
        *("type", "enum", "const", "required", "dependentRequired", "pattern", "format", "multipleOf", "minimum", "a"),
    ]
)
_VALUES = SCALARS | st.sampled_from(["#", "#/$defs/a", "#a", "object", "(?=a)", "http://x", "#/%24defs/a", "\ud800"])
_junk = st.recursive(_VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS, inner, max_size=4))
anything = st.dictionaries(_KEYWORDS, _junk, max_size=5)
"""Objects of JSON Schema's own words in the wrong places, and sometimes in the right ones."""
