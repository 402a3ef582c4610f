"""Results that cannot be stored fail their step with size or type; others are stored unchanged."""

from typing import Any

import pytest

from catalog.core.content_blocks import MAX_RESULT
from plans.models import Plan
from plans.store.selectors import memory_of
from tests.builders import act, assert_gapless, call_of, make_plan, step_of, work_off

pytestmark = pytest.mark.django_db


class Custom:
    """An object without a JSON form."""


def circle() -> list[Any]:
    """Return a list that contains itself."""
    members: list[Any] = []
    members.append(members)
    return members


def deep(levels: int) -> Any:
    """Return a value nested this deep."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


REFUSED = {
    "a byte too much": (
        "x" * (MAX_RESULT - 1),
        f"returned {MAX_RESULT + 1:,} bytes. At most {MAX_RESULT:,}",
    ),
    "many small parts": (["xy"] * 300_000, f"returned {300_000 * 5 + 1:,} bytes"),
    "NaN": (float("nan"), "returned a float that is not JSON"),
    "NaN inside": ({"a": [float("nan")]}, "returned a dict that is not JSON"),
    "infinity": (float("-inf"), "returned a float that is not JSON"),
    "bytes": (b"text", "returned a bytes that is not JSON"),
    "bytes inside": ({"a": b"text"}, "A value of type bytes is not JSON"),
    "a set": ({1, 2}, "returned a set that is not JSON"),
    "a set inside": ([{"a": frozenset("x")}], "A value of type frozenset is not JSON"),
    "an object": (Custom(), "returned a Custom that is not JSON"),
    "an object inside": ({"a": Custom()}, "returned a dict that is not JSON"),
    "a circle": (circle(), "returned a list that is not JSON"),
    "too deep": (deep(100), "is nested deeper than 64 levels"),
    "a huge integer": (10**400, "returned a int that is not JSON: An integer is beyond"),
    "half a character": ("\ud800", "returned a str that is not JSON"),
    "half a character inside": ({"\udfff": 1}, "returned a dict that is not JSON"),
}


def test_unstorable_results_fail_their_steps(stage, ada):
    """With a message; nothing of the result is stored."""
    values = [value for value, _ in REFUSED.values()]
    stage.acts["keeping"] = lambda given, context: values[given]
    plans = [
        work_off(make_plan(ada, act(1, number, "keeping"), act(2, "on"), act(3, dependencies=[1])))
        for number in range(len(values))
    ]
    found = {what: outcome_of(plan, said) for plan, (what, (_, said)) in zip(plans, REFUSED.items(), strict=True)}
    assert {what: outcome for what, outcome in found.items() if outcome != AS_REFUSED} == {}
    for plan in plans:
        assert_gapless(plan)


AS_REFUSED: tuple[Any, ...] = ("failed", ["failed", "completed", "pending"], True, True, {}, True)


def outcome_of(plan: Plan, said: str) -> tuple[Any, ...]:
    """Return the outcome of a plan whose first step has an unstorable result."""
    error, call = step_of(plan).error, call_of(plan)
    kind = "result_too_large" if "can be stored" in error else "result_not_json"
    is_said = said in error and error.startswith("Tool 'keeping' returned ")
    statuses = list(plan.steps.order_by("step_id").values_list("status", flat=True))
    return (
        plan.status,
        statuses,
        is_said,
        call.error_kind == kind,
        memory_of(plan)["values"],
        len(call.response) < 5000,
    )


KEPT: list[Any] = [
    "x" * (MAX_RESULT - 2),
    "",
    0,
    False,
    None,
    2**53 - 1,
    1e308,
    deep(60),
    {"": ""},
    "\0\u2028🙂",
    (1, 2),
]


def test_storable_results_are_stored_unchanged(stage, ada):
    """Up to the last byte, including falsy values."""
    stage.acts["keeping"] = lambda given, context: (
        KEPT[given] if isinstance(KEPT[given], str) else {"results": [KEPT[given]]}
    )
    faults = {}
    for number, value in enumerate(KEPT):
        plan = work_off(make_plan(ada, act(1, number, "keeping", output_path=["results", "0"])))
        found = memory_of(plan)["values"].get("kept", "nothing")
        expected = list(value) if isinstance(value, tuple) else value
        if (plan.status, found, type(found)) != ("completed", expected, type(expected)):
            faults[number] = (plan.status, found)
    assert faults == {}
