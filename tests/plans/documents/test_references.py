"""References: resolution from memory, errors for missing keys, and bounds on time and size."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import ParameterError
from plans.documents.references import find, resolve

MEMORY: dict[str, Any] = {
    "apple": {"results": [{"value": 394, "Net income": 99}], "name": "Äpfel", "none": None},
    "text": "plain",
    "flag": True,
}


VALUES: list[tuple[str, object]] = [
    ("${text}", "plain"),
    ("${flag}", True),
    ("${apple.none}", None),
    ("${apple.results.0.value}", 394),
    ("${apple.results.0.Net income}", 99),
    ("${apple.results}", [{"value": 394, "Net income": 99}]),
    ("${text} and ${flag}", "plain and true"),
    (" ${text}", " plain"),
    ("${apple.none}!", "null!"),
    ("It was ${apple.results.0}.", 'It was {"value":394,"Net income":99}.'),
    ("${apple.name}s", "Äpfels"),
    ("$${text}", "${text}"),
    ("$$${text}", "$${text}"),
    ("$${text} is ${text}", "${text} is plain"),
    ("$5 and {text} and $", "$5 and {text} and $"),
]


def test_references_take_their_values() -> None:
    assert [(text, resolve(text, MEMORY)) for text, _ in VALUES] == VALUES


def test_references_are_replaced_wherever_a_text_stands() -> None:
    parameters = {"a": ["${flag}", {"b": "<${text}>"}], "${text}": 1, "n": None}
    expected = {"a": [True, {"b": "<plain>"}], "${text}": 1, "n": None}
    assert resolve(parameters, MEMORY) == expected


def test_a_value_that_looks_like_a_reference_is_not_resolved_again() -> None:
    assert resolve("${a} ${a}", {"a": "${b}", "b": "secret"}) == "${b} ${b}"


UNRESOLVED = [
    ("${nobody}", "missing_key"),
    ("${apple.results.1}", "missing_path"),
    ("${apple.results.x}", "missing_path"),
    ("${text.0}", "missing_path"),
    ("x ${", "reference_malformed"),
    ("${}", "reference_malformed"),
    ("${a b}", "reference_malformed"),
    ("${a..b}", "reference_malformed"),
    ("${a.}", "reference_malformed"),
    ("${${a}}", "reference_malformed"),
    ("${a:-b}", "reference_malformed"),
]


def test_unresolved_references_name_their_places() -> None:
    found = []
    for text, _ in UNRESOLVED:
        with pytest.raises(ParameterError) as caught:
            resolve({"list": ["fine", {"content": text}]}, MEMORY)
        assert "list.1.content" in caught.value.user_message()
        errors = [(error["path"], error["code"]) for error in caught.value.details["errors"]]
        assert errors[0][0] == caught.value.details["field"] == "list.1.content"
        found += [(text, code) for _, code in errors]
    assert found == UNRESOLVED


def test_all_references_are_found_with_their_places() -> None:
    found = find({"a": "${x.y.0}", "b": ["$${no}", "see ${x} and ${z}"]})
    assert [(each.key, each.path, each.where, each.whole) for each in found] == [
        ("x", ("y", "0"), "a", True),
        ("x", (), "b.1", False),
        ("z", (), "b.1", False),
    ]


def test_many_small_references_cannot_make_a_large_value() -> None:
    memory = {"big": "x" * 100_000}
    for value in ({"texts": ["${big}"] * 1000}, "${big}" * 1000):
        with pytest.raises(ParameterError):
            resolve(value, memory)


def test_long_runs_of_one_part_are_read_to_their_end() -> None:
    for part in ("${", "${a", "$", "$${", "${a.", "}", "${a}", "${a.b}."):
        with suppress(ParameterError):
            resolve(part * (200_000 // len(part)), {"a": {"b": 1}})


@given(st.text())
def test_text_without_a_dollar_brace_is_left_alone(text: str) -> None:
    if "${" not in text:
        assert resolve(text, {}) == text


@given(st.text())
def test_any_text_can_be_written_by_escaping(text: str) -> None:
    escaped = text.replace("$", "").replace("{", "$${")
    assert resolve(escaped, {}) == escaped.replace("$${", "${")


@given(st.text(alphabet="ab${}.0 \n"), st.dictionaries(st.sampled_from("ab0"), st.integers()))
def test_any_text_resolves_or_is_refused_in_words(text: str, memory: dict[str, int]) -> None:
    try:
        resolve({"text": text}, memory)
    except ParameterError as refusal:
        assert refusal.details["field"] == "text"
