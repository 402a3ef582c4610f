"""Rows of conditions: what each operator says of values, of nothing, and of what is no row."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.conditions import MAX_ROWS, OPERATORS
from approvals.predicates import check_rows, compile_rows
from catalog.errors import ParameterError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS


def row(operator: str, value: Any = None, path: str = "a") -> dict[str, Any]:
    """Return one row."""
    return {"path": path, "operator": operator} | ({} if value is None else {"value": value})


def holds(operator: str, value: Any, arguments: dict[str, Any], path: str = "a") -> bool:
    """Say whether a row that was checked holds of the arguments."""
    return compile_rows(check_rows([row(operator, value, path)])).matches(arguments)


@pytest.mark.parametrize(
    ("operator", "value", "yes", "no"),
    [
        ("equals", 5, 5, "5"),
        ("equals", 5, 5.0, True),
        ("not_equals", "x", "y", "x"),
        ("in", ["x", 1], 1, "1"),
        ("not_in", ["x", 1], "1", "x"),
        ("starts_with", "reports/", "reports/a", "/reports/"),
        ("starts_with", "a.c", "a.cd", "abcd"),
        ("ends_with", "@us.example", "me@us.example", "me@us.example\n"),
        ("contains", "$(", "echo $(id)", "echo id"),
        ("contains", "x", ["y", "x"], ["yx"]),
        ("contains", 3, [3], 3),
        ("matches", "^[0-9]+$", "42", "42 "),
        ("matches", "b", "abc", "ac"),
        ("less_than", 5, 4.5, 5),
        ("greater_than", 5, 6, "6"),
        ("exists", None, None, ...),
        ("missing", None, ..., None),
    ],
)
def test_what_an_operator_says(operator, value, yes, no):
    """Of a value it holds for, and of one near to it; three dots are for nothing at all."""
    for found, expected in ((yes, True), (no, False)):
        arguments = {} if found is ... else {"a": found}
        assert holds(operator, value, arguments) is expected


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("arguments", [{}, {"a": 1}, {"a": {"c": 1}}, {"a": ["x"]}])
def test_a_path_that_leads_nowhere(operator, arguments):
    """Nothing there is equal to anything, and it is missing; nothing else is said of it."""
    values = {"in": ["x"], "not_in": ["x"], "less_than": 1, "greater_than": 1, "exists": None, "missing": None}
    expected = operator in ("missing", "not_equals", "not_in")
    assert holds(operator, values.get(operator, "x"), arguments, "a.b") is expected


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("to.1.address", {"to": [{}, {"address": "x"}]}),
        ("to.1.address", {"to": {"1": {"address": "x"}}}),
        ("a b.ä", {"a b": {"ä": "x"}}),
        ("$ref.~0", {"$ref": {"~0": "x"}}),
    ],
)
def test_paths_lead_into_objects_and_lists(path, arguments):
    """By names and by places."""
    assert holds("equals", "x", arguments, path)
    assert not holds("equals", "y", arguments, path)


def test_every_row_must_hold():
    """And no row at all holds of everything."""
    rows = check_rows([row("greater_than", 5), row("less_than", 9), row("exists", path="b")])
    predicate = compile_rows(rows)
    assert predicate.matches({"a": 7, "b": None})
    assert not predicate.matches({"a": 7})
    failing = predicate.failing({"a": 7})
    assert failing is not None
    assert (failing.path, failing.operator) == ("b", "exists")
    assert compile_rows([]).matches({})


def test_rows_are_said_in_words():
    """As they stand under the rule that has them."""
    rows = [row("greater_than", 1000), row("in", ["x", 2], "b.c"), row("missing", path="d"), row("equals", [1], "e")]
    expected = "a is more than 1000 and b.c is one of “x”, 2 and d is not given and e is [1]"
    assert compile_rows(check_rows(rows)).sentence == expected
    assert "(1002 characters)" not in compile_rows(check_rows([row("matches", "x" * 500)])).sentence
    assert "(502 characters)" in compile_rows(check_rows([row("matches", "x" * 500)])).sentence


@pytest.mark.parametrize(
    ("rows", "path", "words"),
    [
        ({}, "arguments", "a list of rows"),
        ([row("exists")] * (MAX_ROWS + 1), "arguments", "At most 20 rows"),
        (["x"], "arguments.0", "an object"),
        ([row("exists"), {"operator": "exists"}], "arguments.1.path", "name an argument"),
        ([row("exists", path="a..b")], "arguments.0.path", "single dots"),
        ([row("exists", path="a.100")], "arguments.0.path", "0 to 99"),
        ([row("exists", path="a" * 201)], "arguments.0.path", "200 characters"),
        ([row("like", "x")], "arguments.0.operator", "one of equals"),
        ([{"path": "a", "operator": []}], "arguments.0.operator", "one of equals"),
        ([row("exists") | {"note": 1}], "arguments.0.note", "path, operator and value only"),
        ([row("equals")], "arguments.0.value", "required"),
        ([row("exists", 1)], "arguments.0.value", "takes no value"),
        ([row("in", "x")], "arguments.0.value", "a list of 1 to 100"),
        ([row("in", [])], "arguments.0.value", "a list of 1 to 100"),
        ([row("less_than", "5")], "arguments.0.value", "a number"),
        ([row("less_than", True)], "arguments.0.value", "a number"),
        ([row("starts_with", 5)], "arguments.0.value", "a text"),
        ([row("contains", "")], "arguments.0.value", "a text"),
        ([row("equals", "x" * 5000)], "arguments.0.value", "4,096 characters"),
        ([row("matches", r"(a)\1")], "arguments.0.value", "linear-time"),
        ([row("matches", "(?=a)")], "arguments.0.value", "linear-time"),
        ([row("matches", "((a{1,500}){1,500}){1,500}")], "arguments.0.value", "linear-time"),
        ([row("matches", "(")], "arguments.0.value", "linear-time"),
    ],
)
def test_what_is_no_row_is_refused(rows, path, words):
    """With its place, and what to do."""
    with pytest.raises(ParameterError, match=words) as refusal:
        check_rows(rows)
    assert refusal.value.details["errors"][0]["path"] == path


def test_places_are_said_under_the_path_that_was_given():
    """A policy's rows stand inside what it matches."""
    with pytest.raises(ParameterError) as refusal:
        check_rows([{}], "match.arguments")
    assert refusal.value.details["field"] == "match.arguments.0.path"


@given(text=TEXTS, part=TEXTS.filter(bool))
def test_texts_are_taken_literally(text, part):
    """Whatever of a pattern they hold."""
    for operator, expected in (
        ("starts_with", text.startswith(part)),
        ("ends_with", text.endswith(part)),
        ("contains", part in text),
        ("matches", part in text),
    ):
        value = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", part) if operator == "matches" else part
        assert holds(operator, value, {"a": text}) is expected


@given(value=SCALARS.filter(lambda value: value is not None), arguments=st.dictionaries(st.sampled_from("ab"), SCALARS))
def test_not_is_the_exact_opposite(value, arguments):
    """Of every value, and of nothing."""
    assert holds("equals", value, arguments) is not holds("not_equals", value, arguments)
    assert holds("in", [value], arguments) is not holds("not_in", [value], arguments)
    assert holds("exists", None, arguments) is not holds("missing", None, arguments)
