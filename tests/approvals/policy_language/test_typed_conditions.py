"""Conditions as they are typed in forms."""

import pytest

from approvals.policy_language.typed_conditions import read_condition, value_as_typed


@pytest.mark.parametrize(
    ("operator", "text", "value"),
    [
        ("equals", "5", 5),
        ("equals", '"5"', "5"),
        ("starts_with", "5", "5"),
        ("in", "a, 5, NaN", ["a", 5, "NaN"]),
        ("not_in", '["a, b"]', ["a, b"]),
        ("equals", "[" * 100_000, "[" * 100_000),
        ("less_than", "1e400", "1e400"),
    ],
)
def test_value_is_json_or_a_text_and_reads_the_same_when_typed_again(operator, text, value):
    row = read_condition("path", operator, text)
    assert row == {"path": "path", "operator": operator, "value": value}
    assert read_condition("path", operator, value_as_typed(operator, value)) == row


def test_operators_without_a_value_ignore_the_text():
    assert read_condition("path", "exists", "5") == {"path": "path", "operator": "exists"}
