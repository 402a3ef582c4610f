"""Conditions: operators, paths and validation."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policy_language.conditions import (
    MAX_CONDITIONS,
    OPERATORS,
    check_conditions,
    compile_conditions,
    condition_sentence,
)
from catalog.errors import ParameterError

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
"""Without null characters, which conditions refuse because PostgreSQL stores none in JSON."""
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS


def row(operator: str, value: Any = None, path: str = "a") -> dict[str, Any]:
    """Return one row."""
    return {"path": path, "operator": operator} | ({} if value is None else {"value": value})


def holds(operator: str, value: Any, arguments: dict[str, Any], path: str = "a") -> bool:
    """Return True if the arguments satisfy a row."""
    return compile_conditions(check_conditions([row(operator, value, path)])).matches(arguments)


SAID = [
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
]


def test_operators_match_exactly():
    wrong = [
        (operator, value, found)
        for operator, value, yes, no in SAID
        for found, expected in ((yes, True), (no, False))
        if holds(operator, value, {} if found is ... else {"a": found}) is not expected
    ]
    assert wrong == []
    assert {operator for operator, *_ in SAID} == set(OPERATORS)


def test_missing_path():
    values = {"in": ["x"], "not_in": ["x"], "less_than": 1, "greater_than": 1, "exists": None, "missing": None}
    for arguments in ({}, {"a": 1}, {"a": {"c": 1}}, {"a": ["x"]}):
        held = {each for each in OPERATORS if holds(each, values.get(each, "x"), arguments, "a.b")}
        assert held == {"missing", "not_equals", "not_in"}, arguments


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("to.1.address", {"to": [{}, {"address": "x"}]}),
        ("to.1.address", {"to": {"1": {"address": "x"}}}),
        ("a b.ä", {"a b": {"ä": "x"}}),
        ("$ref.~0", {"$ref": {"~0": "x"}}),
    ],
)
def test_paths_reach_into_objects_and_lists(path, arguments):
    assert holds("equals", "x", arguments, path)
    assert not holds("equals", "y", arguments, path)


def test_every_row_must_hold():
    rows = check_conditions([row("greater_than", 5), row("less_than", 9), row("exists", path="b")])
    predicate = compile_conditions(rows)
    assert predicate.matches({"a": 7, "b": None})
    assert not predicate.matches({"a": 7})
    failing = predicate.failing({"a": 7})
    assert failing is not None
    assert (failing.path, failing.operator) == ("b", "exists")
    assert compile_conditions([]).matches({})


def test_rows_as_a_sentence():
    rows = [row("greater_than", 1000), row("in", ["x", 2], "b.c"), row("missing", path="d"), row("equals", [1], "e")]
    expected = "a is greater than 1000 and b.c is one of “x”, 2 and d is not given and e is [1]"
    assert " and ".join(map(condition_sentence, compile_conditions(check_conditions(rows)).rows)) == expected
    assert "(1002 characters)" not in condition_sentence(
        *compile_conditions(check_conditions([row("matches", "x" * 500)])).rows
    )
    assert "(502 characters)" in condition_sentence(
        *compile_conditions(check_conditions([row("matches", "x" * 500)])).rows
    )


REFUSED: list[tuple[Any, str, str]] = [
    ({}, "arguments", "type"),
    ([row("exists")] * (MAX_CONDITIONS + 1), "arguments", "too_many"),
    (["x"], "arguments.0", "type"),
    ([row("exists"), {"operator": "exists"}], "arguments.1.path", "required"),
    ([row("exists", path="a..b")], "arguments.0.path", "invalid"),
    ([row("exists", path="a.100")], "arguments.0.path", "invalid"),
    ([row("exists", path="a" * 201)], "arguments.0.path", "too_long"),
    ([row("like", "x")], "arguments.0.operator", "invalid"),
    ([{"path": "a", "operator": []}], "arguments.0.operator", "invalid"),
    ([row("exists") | {"note": 1}], "arguments.0.note", "unknown"),
    ([row("equals")], "arguments.0.value", "invalid"),
    ([row("exists", 1)], "arguments.0.value", "invalid"),
    ([row("in", "x")], "arguments.0.value", "invalid"),
    ([row("in", [])], "arguments.0.value", "invalid"),
    ([row("less_than", "5")], "arguments.0.value", "invalid"),
    ([row("less_than", True)], "arguments.0.value", "invalid"),
    ([row("starts_with", 5)], "arguments.0.value", "invalid"),
    ([row("contains", "")], "arguments.0.value", "invalid"),
    ([row("equals", "x" * 5000)], "arguments.0.value", "invalid"),
    ([row("matches", r"(a)\1")], "arguments.0.value", "invalid"),
    ([row("matches", "(?=a)")], "arguments.0.value", "invalid"),
    ([row("matches", "((a{1,500}){1,500}){1,500}")], "arguments.0.value", "invalid"),
    ([row("matches", "(")], "arguments.0.value", "invalid"),
]


def test_malformed_rows_are_refused_with_path_and_code():
    wrong = []
    for rows, path, code in REFUSED:
        with pytest.raises(ParameterError) as refusal:
            check_conditions(rows)
        first = refusal.value.details["errors"][0]
        if (first["path"], first["code"]) != (path, code):
            wrong.append((rows, first))
    assert wrong == []


def test_problems_are_reported_under_the_given_path():
    with pytest.raises(ParameterError) as refusal:
        check_conditions([{}], "match.arguments")
    assert refusal.value.details["field"] == "match.arguments.0.path"


@pytest.mark.parametrize(("value", "code"), [("a\0", "invalid"), ({"\0": 1}, "invalid"), ("a\\u0000", None)])
def test_null_characters_are_refused_since_no_database_need_store_them(value, code):
    try:
        check_conditions([{"path": "a", "operator": "equals", "value": value}])
        found = None
    except ParameterError as refusal:
        found = refusal.details["errors"][0]["code"]
    assert found == code


@given(text=TEXTS, part=TEXTS.filter(bool))
def test_texts_are_matched_literally(text, part):
    for operator, expected in (
        ("starts_with", text.startswith(part)),
        ("ends_with", text.endswith(part)),
        ("contains", part in text),
        ("matches", part in text),
    ):
        value = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", part) if operator == "matches" else part
        assert holds(operator, value, {"a": text}) is expected


@given(value=SCALARS.filter(lambda value: value is not None), arguments=st.dictionaries(st.sampled_from("ab"), SCALARS))
def test_negated_operators_are_exact_opposites(value, arguments):
    assert holds("equals", value, arguments) is not holds("not_equals", value, arguments)
    assert holds("in", [value], arguments) is not holds("not_in", [value], arguments)
    assert holds("exists", None, arguments) is not holds("missing", None, arguments)
