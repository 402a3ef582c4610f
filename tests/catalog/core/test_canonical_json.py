"""JSON parsing, canonical text and digests."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.canonical_json import (
    MAX_SAFE_INTEGER,
    canonical_text,
    check_json,
    digest,
    json_size,
    normalize_numbers,
    parse_json,
)
from catalog.errors import MalformedJSON, TooLarge
from tests.corpus import faults

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)

REFUSED = [
    ('{"a": 1, "a": 2}', "duplicate_key"),
    ('{"x": {"a": 1, "\\u0061": 2}}', "duplicate_key"),
    ("NaN", "not_finite"),
    ("[Infinity]", "not_finite"),
    ("-Infinity", "not_finite"),
    ("1e400", "not_finite"),
    ("-1e400", "not_finite"),
    ('"\\ud800"', "lone_surrogate"),
    ('{"\\udc00": 1}', "lone_surrogate"),
    ('"\ud83d"', "lone_surrogate"),
    ("9007199254740992", "integer_range"),
    ("-9007199254740992", "integer_range"),
    ("1" * 5000, "integer_range"),
    ("[" * 65 + "]" * 65, "too_deep"),
    ('{"a":' * 65 + "1" + "}" * 65, "too_deep"),
    ("[" * 100_000, "too_deep"),
    (b'"\xff"', "invalid_utf8"),
    (b"\xff\xfe1\x00", "invalid_utf8"),
    (b'"\xed\xa0\x80"', "invalid_utf8"),
    ("1 2", "invalid_json"),
    ("{} x", "invalid_json"),
    ("", "invalid_json"),
    ("{'a': 1}", "invalid_json"),
    ("[1,]", "invalid_json"),
    ('"\t"', "invalid_json"),
    ("\ufeff1", "invalid_json"),
    ("01", "invalid_json"),
    ("tru", "invalid_json"),
]


def test_a_document_that_is_not_strict_json_is_refused_with_its_reason():
    def check(text, code):
        with pytest.raises(MalformedJSON) as caught:
            parse_json(text)

        assert caught.value.code == code
        assert caught.value.message.endswith(".")

    assert faults(check, REFUSED) == {}


def test_a_syntax_error_says_line_and_column():
    with pytest.raises(MalformedJSON) as caught:
        parse_json('{"a": 1,\n "b" 2}')

    assert (caught.value.line, caught.value.column) == (2, 6)


def test_a_syntax_error_is_not_told_in_words_of_the_parser():
    texts = ["", "{", "[1,]", "{'a': 1}", '{"a" 1}', '{"a": 1 "b": 2}', '{"a": 1,}', "1 2", '"a', '"a\nb"', '"\\u12"']
    texts += ['"\\x"', "goal: a", "True", "\ufeff{}"]
    said = {}
    for text in texts:
        with pytest.raises(json.JSONDecodeError) as of_python:
            json.loads(text)
        with pytest.raises(MalformedJSON) as found:
            parse_json(text)
        if of_python.value.msg in found.value.message or not found.value.line:
            said[text] = found.value.message
    assert said == {}


def test_a_bad_value_says_its_path():
    with pytest.raises(MalformedJSON) as caught:
        parse_json('{"steps": [{"text": "\\ud800"}]}')

    assert caught.value.path == "steps.0.text"


def test_a_document_over_the_limit_is_too_large():
    with pytest.raises(TooLarge, match="11 bytes"):
        parse_json('"123456789"', max_bytes=10)


def test_the_limits_themselves_are_accepted():
    assert parse_json("[" * 64 + "]" * 64)
    assert parse_json(str(MAX_SAFE_INTEGER)) == MAX_SAFE_INTEGER
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


@given(values)
def test_whatever_json_holds_survives_writing_and_reading(value):
    assert parse_json(json.dumps(value)) == value
    assert canonical_text(parse_json(json.dumps(value))) == canonical_text(value)


@given(st.text() | st.binary())
def test_no_input_breaks_the_parser(text):
    try:
        parse_json(text)
    except MalformedJSON as problem:
        assert problem.message


@pytest.mark.parametrize("value", [{1}, (1,), b"x", object(), {1: "a"}, 1j, {"a": [{2}]}])
def test_a_python_value_that_is_not_json_is_refused_by_type(value):
    with pytest.raises(MalformedJSON) as caught:
        check_json(value)

    assert caught.value.code == "not_json"


def test_a_value_that_contains_itself_is_too_deep():
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(MalformedJSON, match="deeper"):
        check_json(loop)


def test_the_order_of_keys_does_not_change_the_canonical_text():
    assert canonical_text({"b": 1, "a": 2.0}) == canonical_text({"a": 2, "b": 1}) == '{"a":2,"b":1}'


@given(st.lists(texts), st.lists(texts))
def test_digests_are_equal_only_for_equal_fields(left, right):
    assert (digest(*left) == digest(*right)) == (left == right)


def test_size_counts_bytes_not_characters():
    assert json_size({"a": "é"}) == len('{"a":"é"}'.encode())


def test_whole_floats_become_the_integers_that_their_canonical_text_says():
    given = {"a": [2.0, -0.0, 1.5], "b": {"c": 2.0**53 - 1, "d": 1e21}, "e": 3, "f": "1.0"}
    assert canonical_text(normalize_numbers(given)) == canonical_text(given)
    large = given | {"b": {"c": 1e16, "d": 1e21}}
    whole = normalize_numbers(large)
    assert repr(whole) == repr({"a": [2, 0, 1.5], "b": {"c": 10**16, "d": 1e21}, "e": 3, "f": "1.0"})
    assert repr(given).startswith("{'a': [2.0, -0.0")


@given(values)
def test_a_value_without_whole_floats_is_itself(value):
    once = normalize_numbers(value)
    assert normalize_numbers(once) is once
