"""The language of `done_check`: true checks are done; false ones and errors are not, with a reason."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.expressions import ExpressionError, parse
from plans.conditions import evaluate, is_constant
from tests.plans.escapes import BOMBS, ESCAPES

MEMORY: dict[str, Any] = {"revenue": {"2022": 394, "notes": []}, "rows": [1, 2, 3], "name": "Apple"}


HOLDS = [
    "True",
    "revenue is not None",
    "revenue['2022'] == 394 and len(rows) == 3",
    "'2022' in revenue and 4 not in rows",
    "memory['name'] == 'Apple'",
    "rows[-1] > rows[0] >= 1",
    "rows[:2] == [1, 2]",
    "sum(rows) / len(rows) == 2.0",
    "max(rows) - min(rows) == 2 and abs(-2) ** 2 == 4 and 7 // 2 % 2 == 1",
    "any([0, name]) and not all([0, 1])",
    "isinstance(revenue, dict) and isinstance(rows[0], (int, float))",
    "int('3') in rows and float(2) == 2 and str(2) + 'x' == '2x' and bool(name)",
    "revenue['notes'] is None or revenue['notes'] == []",
    "{'a': (1, 2)}['a'] == (1, 2)",
    "[1] + [2] == rows[:2]",
    "rows == sorted([3, 1, 2]) and round(2.4) == 2 and (rows if name else None)",
    "  name == 'Apple'  ",
    "name",
]


def test_a_check_that_holds_is_done():
    assert [check for check in HOLDS if not evaluate(check, MEMORY).done] == []


DOES_NOT_HOLD = [
    ("revenue is None", "is false"),
    ("rows[0] > 5", "is false"),
    ("profit is not None", "'profit' is not in memory"),
    ("value is not None", "'value' is not in memory"),
    ("value not None", "not an expression"),
    ("", "not an expression"),
    ("x = 1", "not an expression"),
    ("revenue['2021'] > 0", "does not exist"),
    ("rows[9]", "does not exist"),
    ("1 / 0 == 1", "divides by zero"),
    ("name > 3", "incompatible types"),
    ("int(name) > 3", "not a number"),
    ("revenue.get('2022')", "may call only"),
    ("revenue.year", "write value['key']"),
    ("print(name)", "may call only"),
    ("max(rows, key=len)", "may not name arguments"),
    ("[row for row in rows]", "comprehensions"),
    ("a" * 501, "at most 500 characters"),
    ("-" * 20 + "1", "20 levels"),
]


def test_false_check_has_a_reason():
    verdicts = [(check, reason, evaluate(check, MEMORY)) for check, reason in DOES_NOT_HOLD]
    wrong = {check: verdict for check, reason, verdict in verdicts if verdict.done or reason not in verdict.reason}
    assert wrong == {}


@pytest.mark.parametrize("name", ["value", "result", "results"])
def test_the_steps_own_value_has_three_names(name: str) -> None:
    assert evaluate(f"{name} == 'Apple'", MEMORY, expected_key="name").done
    assert not evaluate(f"{name} == 'Apple'", MEMORY).done
    assert not evaluate(f"{name} is None", MEMORY, expected_key="absent").done


def test_a_memory_key_comes_before_the_other_names() -> None:
    assert evaluate("results == 1", {"results": 1, "name": 2}, expected_key="name").done
    assert evaluate("memory == 1 and len([memory]) == 1", {"memory": 1, "len": 5}).done


def test_a_reason_repeats_no_value() -> None:
    memory = {"secret": "hunter2", "table": {}}
    checks = ("int(secret)", "float(secret) > 1", "table[secret]", "secret > 1", "secret['a']")
    assert not any("hunter2" in evaluate(check, memory).reason for check in checks)


def is_refused(check: str) -> bool:
    """Return whether a check is refused when it is parsed."""
    try:
        parse(check)
    except ExpressionError:
        return True
    return False


def test_an_escape_is_refused_before_anything_runs() -> None:
    assert [check for check in ESCAPES if not is_refused(check) or evaluate(check, MEMORY).done] == []


def test_the_corpus_of_escapes_is_large() -> None:
    assert len(set(ESCAPES)) >= 80


def test_expensive_expressions_are_bounded() -> None:
    memory = {"big": "9" * 200_000, "lists": [[]] * 50_000}
    assert [check for check in BOMBS if evaluate(check, memory).done] == []


@pytest.mark.parametrize(
    ("check", "constant"),
    [
        ("True", True),
        ("len([1]) == 1", True),
        ("isinstance(1, int)", True),
        ("x", False),
        ("value is None", False),
    ],
)
def test_constant_check_is_recognised(check: str, constant: bool) -> None:
    assert is_constant(check) is constant


@given(st.text(alphabet="abx01 .[](){}'\"=<>+-*/%&|^~!:,@\n\\_", max_size=60))
def test_any_text_gives_a_verdict(check: str) -> None:
    verdict = evaluate(check, {"a": 1, "b": [1], "x": {"a": "b"}}, expected_key="x")
    assert verdict.reason
