"""Masks of private data, and access to single fields by path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.calls.privacy import PRIVATE_MARKER, PrivateCallParts, field_at, mask, mask_response, masked_fields
from catalog.errors import ParameterError

RESPONSE = {
    "query_type": "by_email",
    "parameters": {"email": "jo@example.org"},
    "results": [{"name": "Jo", "age": 41, "vip": True, "note": None, "tags": ["a", "b"], "none": []}],
    "output_key": "lookup",
    "success": True,
    "source": "registrations",
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner))


def test_a_mask_keeps_keys_lengths_and_types():
    """The frame of a standard response contains no personal data and is kept, too."""
    string = {PRIVATE_MARKER: "string"}
    assert mask_response(RESPONSE) == {
        "query_type": "by_email",
        "parameters": {"email": string},
        "results": [
            {
                "name": string,
                "age": {PRIVATE_MARKER: "number"},
                "vip": {PRIVATE_MARKER: "boolean"},
                "note": {PRIVATE_MARKER: "null"},
                "tags": [string, string],
                "none": [],
            }
        ],
        "output_key": "lookup",
        "success": True,
        "source": string,
    }


def test_error_texts_are_masked():
    """Error texts may quote arguments."""
    shown = mask_response({"results": [], "success": False, "error": "Nobody is called jo@example.org"})
    assert shown == {"results": [], "success": False, "error": {PRIVATE_MARKER: "string"}}


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        (PrivateCallParts(frozenset({"to"})), {"to": {PRIVATE_MARKER: "string"}, "subject": "Hello"}),
        (PrivateCallParts(everything=True), {"to": {PRIVATE_MARKER: "string"}, "subject": {PRIVATE_MARKER: "string"}}),
    ],
)
def test_arguments_are_masked_by_name(hidden, shown):
    assert hidden.mask_arguments({"to": "jo@example.org", "subject": "Hello"}) == shown


def test_every_masked_value_has_its_path():
    paths = [field.path for field in masked_fields(RESPONSE)]
    results = [f"results.0.{name}" for name in ("name", "age", "vip", "note", "tags.0", "tags.1")]
    assert paths == ["parameters.email", *results, "source"]


@given(VALUES)
def test_mask_keeps_only_types(value):
    masked = {"results": mask(value)}
    fields = list(masked_fields({"results": value}))
    assert [field.path for field in masked_fields(masked)] == [f"{field.path}.{PRIVATE_MARKER}" for field in fields]
    assert set(_texts(masked)) <= {"string", "number", "boolean", "null"}


def _texts(value):
    """Return every value in a JSON value that is neither object nor list."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [text for each in inner for text in _texts(each)]


@pytest.mark.parametrize(
    ("path", "value"),
    [("results.0.name", "Jo"), ("results.0.note", None), ("results.0.tags.1", "b"), ("results.0.none", [])],
)
def test_a_path_names_one_value(path, value):
    """Dotted paths; lists by index; null is a value."""
    assert field_at(RESPONSE, path) == value


def test_a_name_with_dots_is_found_at_the_end():
    assert field_at({"results": {"jo@example.org": 1}}, "results.jo@example.org") == 1


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("results.0.nam", "results.0 has no 'nam'; it has name"),
        ("result", "The response has no 'result'; it has results"),
        ("results.7.name", "results has no '7'; it has 0"),
        ("results.0.name.x", "results.0.name has no 'x'; it is empty"),
        ("results.0", "results.0 contains several values. Name one of them: name, age"),
        ("results..name", "results has no ''; it has 0"),
    ],
)
def test_a_path_that_names_no_value_is_refused_with_what_is_there(path, says):
    with pytest.raises(ParameterError) as refusal:
        field_at(RESPONSE, path)
    assert refusal.value.message.startswith(says)
    assert refusal.value.details["errors"][0]["path"] == "path"
