"""Tests of paths into JSON values."""

import pytest

from catalog.core.json_paths import bounded_member_path, enclosing_paths, follow, value_at, without_paths

DOCUMENT = {"entries": [{"amount": 5, "a.b": 1}, {"amount": 6}], "0": "zero", "memo": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([], DOCUMENT),
        (["entries", 1, "amount"], 6),
        (["entries", "1", "amount"], 6),
        (["entries", 0, "a.b"], 1),
        (["0"], "zero"),
        (["memo"], None),
    ],
)
def test_path_is_followed(path: list[str | int], value: object) -> None:
    assert follow(DOCUMENT, path) == value_at(DOCUMENT, path, "none") == value


@pytest.mark.parametrize(
    "path",
    [
        ["x"],
        ["entries", 2],
        ["entries", -1],
        ["entries", "-1"],
        ["entries", "\u0660"],
        ["entries", "9" * 5000],
        ["0", 0],
    ],
)
def test_path_that_leads_nowhere(path: list[str | int]) -> None:
    assert value_at(DOCUMENT, path, "none") == "none"
    with pytest.raises(LookupError):
        follow(DOCUMENT, path)


def test_members_at_paths_are_left_out() -> None:
    pruned = without_paths(DOCUMENT, [("entries", 0, "amount"), ("memo",), ("entries", 1, "x"), ("0", "y")])
    assert pruned == {"entries": [{"a.b": 1}, {"amount": 6}], "0": "zero"}
    assert DOCUMENT["memo"] is None


def test_paths_as_text() -> None:
    assert list(enclosing_paths("a.0.b")) == ["a.0.b", "a.0", "a", ""]
    assert (bounded_member_path("", 0), bounded_member_path("a", "b")) == ("0", "a.b")
    assert len(bounded_member_path(bounded_member_path("a", "b" * 9999), "c" * 9999)) < 1100
