"""Accepted schemas, speed of validation, and error messages."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, WithJsonSchema

from benchmarks.hostile_corpus import LETTERS, REFUSED_PATTERNS, SCHEMAS, SLOW_PATTERNS
from catalog.definitions.tool import Tool
from catalog.errors import ParameterError, SchemaProblem, ToolDefinitionError
from catalog.schemas import check_schema, compile_schema, validate_tool_args
from catalog.schemas.defaults import fill_defaults
from tests.corpus import faults

TYPICAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ticker": {"type": "string", "minLength": 1, "pattern": "^[A-Z]+$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 10},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
    },
    "required": ["ticker"],
    "additionalProperties": False,
}

JUDGED = [
    ({}, "ticker", "required"),
    ({"ticker": 1}, "ticker", "type"),
    ({"ticker": ""}, "ticker", "minLength"),
    ({"ticker": "a"}, "ticker", "pattern"),
    ({"ticker": "A", "count": True}, "count", "type"),
    ({"ticker": "A", "count": 1.5}, "count", "type"),
    ({"ticker": "A", "count": "5"}, "count", "type"),
    ({"ticker": "A", "count": 11}, "count", "maximum"),
    ({"ticker": "A", "kind": "c"}, "kind", "enum"),
    ({"ticker": "A", "tags": ["x", 1]}, "tags.1", "type"),
    ({"ticker": "A", "note": 1}, "note", "type"),
    ({"ticker": "A", "note": "long"}, "note", "maxLength"),
    ({"ticker": "A", "tikcer": "B"}, "tikcer", "additionalProperties"),
    ([], "", "type"),
]

EVIL: list[dict[str, Any]] = [
    {"$ref": "https://example.org/schema.json"},
    {"$ref": "file:///etc/passwd"},
    {"properties": {"a": {"$ref": "other.json#/x"}}},
    {"$dynamicRef": "http://example.org/#x"},
    {"$id": "http://example.org/", "properties": {}},
    {"$defs": {"a": {"$id": "urn:x"}}},
    {"$ref": "#/$defs/missing"},
    {"type": "strang"},
    {"type": "object", "properties": []},
    {"pattern": "("},
    {"pattern": "(?=a)b"},
    {"pattern": "(a)\\1"},
    {"pattern": "a" * 1025},
    {"pattern": "a{1000}{1000}"},
    {"patternProperties": {"(?<!x)y": {}}},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"description": "x" * 70_000},
    {"allOf": [{"minimum": index} for index in range(1001)]},
    {"required": [1]},
    {"minimum": float("nan")},
]


def test_each_problem_names_its_path_and_keyword():
    def check(arguments, path, code):
        problem = compile_schema(TYPICAL).problems(arguments)[0]

        assert (problem.path, problem.code) == (path, code)
        assert problem.message.endswith((".", "?"))

    assert faults(check, JUDGED) == {}


def test_arguments_that_fit_have_no_problems():
    assert compile_schema(TYPICAL).problems({"ticker": "A", "count": 1, "tags": [], "note": None}) == []


@pytest.mark.parametrize(
    ("rule", "value", "words"),
    [
        ({"minLength": 1}, "", "at least 1 character."),
        ({"maxLength": 2}, "abc", "at most 2 characters."),
        ({"minItems": 1}, [], "at least 1 entry."),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "at most 1 member."),
        ({"minProperties": 2}, {}, "at least 2 members."),
    ],
)
def test_what_a_limit_counts_is_said_in_the_right_number(rule, value, words):
    (problem,) = compile_schema(rule).problems(value)

    assert problem.message.endswith(words)


def test_every_unknown_key_is_one_problem_with_the_nearest_name():
    problems = compile_schema(TYPICAL).problems({"ticker": "A", "cuont": 1, "zzz": 2})

    assert [problem.path for problem in problems] == ["cuont", "zzz"]
    assert "Did you mean 'count'?" in problems[0].message


def test_the_nearest_name_is_one_that_belongs_there():
    place = {"type": "object", "properties": {"latitude": {}}, "additionalProperties": False}
    schema = {"properties": {"place": {"$ref": "#/$defs/p"}, "latitudes": {}}, "$defs": {"p": place}}
    (problem,) = compile_schema(schema).problems({"place": {"latitudes": 1}})

    assert (problem.path, problem.message[-24:]) == ("place.latitudes", "Did you mean 'latitude'?")


def test_thousands_of_problems_cost_no_more_than_the_first_few():
    assert len(compile_schema(TYPICAL).problems({f"key{n}": n for n in range(20_000)})) == 50


def test_messages_never_repeat_the_value():
    problems = compile_schema(TYPICAL).problems({"ticker": "hunter2-secret", "count": "hunter2", "kind": "hunter2"})

    assert len(problems) == 3
    assert not any("hunter2" in problem.message for problem in problems)


def test_unsafe_or_invalid_schema_is_refused():
    def check(schema):
        with pytest.raises(SchemaProblem, match="schema at"):
            check_schema(schema)

    assert faults(check, EVIL) == {}


TOO_COMPLEX = [
    *("doubling-by-depth-allOf", "doubling-by-depth-anyOf", "doubling-by-depth-oneOf", "doubling-by-if"),
    *("doubling-by-depth-unrolled", "doubling-by-depth-refused", "trebling-by-pattern", "one-of-many", "fractions"),
    *("many-branches-many-entries", "many-branches-none-fits", "many-branches-many-problems"),
    *("lists-to-compare", "lists-that-begin-alike", "a-pattern-for-each-text"),
]
OUTCOMES = {
    "a-huge-constant": [],
    "texts-to-compare": [],
    "every-entry-differs": [],
    "a-problem-each": ["invalid"],
    "names-required": ["invalid"],
    "doubling-by-contains": ["invalid"],
    "unknown-keys": ["falseSchema"],
    "unevaluated-within-unevaluated": ["unevaluatedProperties"],
    "at-every-limit": ["type"],
    "nulls-under-doubling": ["type"],
    **{name: ["too_complex"] for name in TOO_COMPLEX},
}


def outcome(schema, document):
    """Return the codes found, or that the schema was refused."""
    try:
        return sorted({problem.code for problem in compile_schema(schema).problems(document)})
    except SchemaProblem:
        return "refused"


def test_hostile_schema_or_its_document_is_refused():
    def check(name, schema, document):
        assert outcome(schema, document) == OUTCOMES.get(name, "refused")

    assert faults(check, SCHEMAS) == {}


def test_unsafe_pattern_is_refused_wherever_it_stands():
    def check(pattern):
        assert outcome({"pattern": pattern}, "aaa") == "refused"
        assert outcome({"properties": {"a": {"patternProperties": {pattern: {}}}}}, {}) == "refused"

    assert faults(check, REFUSED_PATTERNS) == {}


def test_slow_pattern_judges_a_long_text_or_is_too_complex():
    def check(pattern):
        assert outcome({"pattern": pattern}, LETTERS) in ([], ["pattern"], ["too_complex"])
        assert outcome({"patternProperties": {pattern: False}}, {LETTERS: 1}) in ([], ["falseSchema"], ["too_complex"])
        assert outcome({"pattern": pattern}, "ab" * 20) in ([], ["pattern"])

    assert faults(check, SLOW_PATTERNS) == {}


def test_a_pattern_with_many_states_may_judge_short_texts_beside_long_ones():
    schema = {"properties": {"slug": {"pattern": "^[ab]{1,500}$"}, "text": {"type": "string"}}}

    assert outcome(schema, {"slug": "ab", "text": LETTERS}) == []
    assert outcome(schema, {"slug": "b!", "text": LETTERS}) == ["pattern"]


def test_a_schema_that_nests_too_deep_is_refused():
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"not": schema}

    with pytest.raises(SchemaProblem, match="deeper than 32"):
        check_schema(schema)


def test_references_that_multiply_are_refused():
    doubled = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 3} for n in range(10)}

    with pytest.raises(SchemaProblem, match="unfolds"):
        check_schema({"$defs": doubled | {"d10": {"type": "string"}}, "$ref": "#/$defs/d0"})


def test_a_schema_may_contain_itself():
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}

    assert compile_schema(tree).problems({"child": {"child": {"x": 1}}})[0].path == "child.child.x"


def test_keywords_inside_data_are_data():
    check_schema({"properties": {"$ref": {"const": {"$ref": "http://example.org"}}}, "default": {"$id": "x"}})


def test_a_pattern_that_would_backtrack_for_ever_is_judged_at_once():
    validator = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    assert validator.problems("a" * 50_000 + "!")


SHAPES: dict[str, Any] = {
    "properties": {
        "shape": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                    "required": ["kind", "radius"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "box"}, "width": {"type": "number"}, "height": {"type": "number"}},
                    "required": ["kind", "width", "height"],
                    "additionalProperties": False,
                },
                {"type": "string", "enum": ["dot", "line"]},
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ({"kind": "circle"}, ["shape.radius required"]),
        ({"kind": "circle", "radius": "1"}, ["shape.radius type"]),
        ({"kind": "box", "width": 1, "heigth": 2}, ["shape.height required", "shape.heigth additionalProperties"]),
        ("dott", ["shape enum"]),
        (7, ["shape type"]),
        ({}, ["shape.kind required", "shape.radius required"]),
    ],
)
def test_what_fits_no_form_is_explained_by_the_nearest(shape, found):
    problems = compile_schema(SHAPES).problems({"shape": shape})

    assert sorted(f"{problem.path} {problem.code}" for problem in problems) == found


def test_what_is_as_near_to_two_forms_is_explained_by_neither():
    two = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}

    assert [(problem.path, problem.code) for problem in compile_schema(two).problems({})] == [("", "anyOf")]


@pytest.mark.parametrize("schema", [{"$ref": "http://x"}, {"pattern": "(?=a)"}, {"type": "strang"}])
def test_a_refused_schema_names_its_tool_the_place_and_the_value(schema):
    class Odd(BaseModel):
        value: Annotated[str, WithJsonSchema(schema)]

    def odd(params: Odd) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(name="odd_one", description="Odd.", handler=odd)

    text = str(caught.value)
    assert "odd_one" in text
    assert "properties.value" in text
    assert str(next(iter(schema.values()))) in text


def test_equal_schemas_share_one_compiled_validator():
    assert compile_schema(dict(TYPICAL)) is compile_schema(dict(reversed(TYPICAL.items())))


def test_validate_tool_args_returns_what_fits_and_raises_with_the_path():
    assert validate_tool_args(TYPICAL, {"ticker": "A"}) == {"ticker": "A"}
    with pytest.raises(ParameterError) as caught:
        validate_tool_args(TYPICAL, {"ticker": "A", "tags": [1]})

    assert caught.value.details["field"] == "tags.0"
    assert caught.value.details["errors"][0]["code"] == "type"


@pytest.mark.parametrize("kind", ["integer", ["integer", "null"]])
def test_float_beyond_exact_integers_does_not_fit_an_integer(kind):
    """The text of such a float has an exponent, so a handler would receive a float."""
    schema = {"type": "object", "properties": {"boxes": {"type": "array", "items": {"type": kind, "minimum": -1e301}}}}
    for number in (1e21, -1e300):
        with pytest.raises(ParameterError) as refusal:
            validate_tool_args(schema, {"boxes": [number]})
        assert refusal.value.details["field"] == "boxes.0"
    validate_tool_args({"type": ["integer", "number"]}, 1e21)


@pytest.mark.parametrize(("args", "field"), [({1: 2}, "1"), ({"tags": [{None: 1}]}, "tags.0.None"), ({"a": {1}}, "a")])
def test_arguments_that_are_no_json_are_refused_by_their_place(args, field):
    with pytest.raises(ParameterError) as caught:
        validate_tool_args({"type": "object"}, args)

    assert (caught.value.details["field"], caught.value.details["errors"][0]["code"]) == (field, "not_json")


INNER = {"type": "object", "properties": {"size": {"default": 1}, "name": {}}}
ALTERNATIVES = [
    {"properties": {"kind": {"const": "a"}, "depth": {"default": 5}}},
    {"properties": {"kind": {"const": "b"}, "depth": {"default": 9}}},
]


@pytest.mark.parametrize(
    ("schema", "given", "filled"),
    [
        ({"properties": {"a": {"default": None}, "b": {}}}, {}, {"a": None}),
        ({"properties": {"a": {"default": 1}}}, {"a": 2}, {"a": 2}),
        ({"properties": {"in": {"$ref": "#/$defs/In"}}, "$defs": {"In": INNER}}, {"in": {}}, {"in": {"size": 1}}),
        ({"properties": {"in": {"anyOf": [INNER, {"type": "null"}]}}}, {"in": {}}, {"in": {"size": 1}}),
        ({"oneOf": ALTERNATIVES}, {"kind": "b"}, {"kind": "b", "depth": 9}),
        ({"oneOf": ALTERNATIVES}, {}, {"depth": 5}),
        ({"allOf": [INNER]}, {"name": "x"}, {"name": "x", "size": 1}),
        ({"if": {"required": ["a"]}, "then": INNER, "else": ALTERNATIVES[0]}, {"a": 1}, {"a": 1, "size": 1}),
        ({"if": {"required": ["a"]}, "then": INNER, "else": ALTERNATIVES[0]}, {}, {"depth": 5}),
        ({"dependentSchemas": {"a": INNER, "b": ALTERNATIVES[0]}}, {"a": 1}, {"a": 1, "size": 1}),
        (
            {"patternProperties": {"^d": ALTERNATIVES[1], "^i": INNER}, "additionalProperties": ALTERNATIVES[0]},
            {"d1": {}, "i": {}, "x": {}},
            {"d1": {"depth": 9}, "i": {"size": 1}, "x": {"depth": 5}},
        ),
        ({"properties": {"i": {}}, "patternProperties": {"i": INNER}}, {"i": {}}, {"i": {"size": 1}}),
    ],
)
def test_defaults_are_filled_in_where_one_schema_judges(schema, given, filled):
    before = dict(given)

    assert fill_defaults(schema, given).arguments == filled
    assert given == before
