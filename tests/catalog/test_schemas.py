"""Which schemas are taken, how fast arguments are judged, and what a person is told."""

import time
from typing import Any

import pytest

from catalog.errors import ParameterError, SchemaProblem
from catalog.schemas import check_schema, compile_schema, validate_tool_args

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
    {"pattern": "a" * 257},
    {"pattern": "a{1000}{1000}"},
    {"patternProperties": {"(?<!x)y": {}}},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"description": "x" * 70_000},
    {"allOf": [{"minimum": index} for index in range(1001)]},
    {"required": [1]},
    {"minimum": float("nan")},
]


@pytest.mark.parametrize(("arguments", "path", "code"), JUDGED)
def test_each_problem_names_its_path_and_keyword(arguments, path, code):
    problem = compile_schema(TYPICAL).problems(arguments)[0]

    assert (problem.path, problem.code) == (path, code)
    assert problem.message.endswith((".", "?"))


def test_arguments_that_fit_have_no_problems():
    assert compile_schema(TYPICAL).problems({"ticker": "A", "count": 1, "tags": [], "note": None}) == []


def test_every_unknown_key_is_one_problem_with_the_nearest_name():
    problems = compile_schema(TYPICAL).problems({"ticker": "A", "cuont": 1, "zzz": 2})

    assert [problem.path for problem in problems] == ["cuont", "zzz"]
    assert "did you mean 'count'?" in problems[0].message


def test_thousands_of_problems_cost_no_more_than_the_first_few():
    started = time.perf_counter()

    assert len(compile_schema(TYPICAL).problems({f"key{n}": n for n in range(20_000)})) == 50
    assert time.perf_counter() - started < 1


def test_messages_never_repeat_the_value():
    problems = compile_schema(TYPICAL).problems({"ticker": "hunter2-secret", "count": "hunter2", "kind": "hunter2"})

    assert len(problems) == 3
    assert not any("hunter2" in problem.message for problem in problems)


@pytest.mark.parametrize("schema", EVIL)
def test_a_schema_that_reaches_out_or_backtracks_or_is_wrong_is_refused(schema):
    with pytest.raises(SchemaProblem, match="schema at"):
        check_schema(schema)


def test_a_schema_that_nests_too_deep_is_refused():
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"not": schema}

    with pytest.raises(SchemaProblem, match="deeper than 32"):
        check_schema(schema)


def test_references_that_multiply_are_refused():
    doubled = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}

    with pytest.raises(SchemaProblem, match="unfolds"):
        check_schema({"$defs": doubled | {"d30": {"type": "string"}}, "$ref": "#/$defs/d0"})


def test_a_schema_may_contain_itself():
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}

    assert compile_schema(tree).problems({"child": {"child": {"x": 1}}})[0].path == "child.child.x"


def test_keywords_inside_data_are_data():
    check_schema({"properties": {"$ref": {"const": {"$ref": "http://example.org"}}}, "default": {"$id": "x"}})


def test_a_pattern_that_would_backtrack_for_ever_is_judged_at_once():
    validator = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    started = time.perf_counter()

    assert validator.problems("a" * 50_000 + "!")
    assert time.perf_counter() - started < 1


def test_equal_schemas_share_one_compiled_validator():
    assert compile_schema(dict(TYPICAL)) is compile_schema(dict(reversed(TYPICAL.items())))


def test_validate_tool_args_returns_what_fits_and_raises_with_the_path():
    assert validate_tool_args(TYPICAL, {"ticker": "A"}) == {"ticker": "A"}
    with pytest.raises(ParameterError) as caught:
        validate_tool_args(TYPICAL, {"ticker": "A", "tags": [1]})

    assert caught.value.details["field"] == "tags.0"
    assert caught.value.details["errors"][0]["code"] == "type"
