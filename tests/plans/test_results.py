"""Results that cannot be kept fail their step, and say which size or type it was; what fits is kept as it is."""

from typing import Any

import pytest

from catalog.storable import MAX_RESULT
from plans.selectors import memory_of
from tests.builders import act, assert_gapless, call_of, make_plan, step_of, work_off

pytestmark = pytest.mark.django_db


class Custom:
    """An object that no JSON is known for."""


def circle() -> list[Any]:
    """Return a list that holds itself."""
    members: list[Any] = []
    members.append(members)
    return members


def deep(levels: int) -> Any:
    """Return a value nested so deep."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


REFUSED = {
    "a byte too much": (
        "x" * (MAX_RESULT - 1),
        f"returned {MAX_RESULT + 1:,} bytes; at most {MAX_RESULT:,}",
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
    "too deep": (deep(100), "nests deeper than 64 levels"),
    "a huge integer": (10**400, "returned a int that is not JSON: An integer lies beyond"),
    "half a character": ("\ud800", "returned a str that is not JSON"),
    "half a character inside": ({"\udfff": 1}, "returned a dict that is not JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_result_that_cannot_be_kept_fails_its_step(stage, ada, what):
    """With a sentence; nothing of it is stored."""
    value, said = REFUSED[what]
    stage.acts["keeping"] = lambda given, context: value
    plan = work_off(make_plan(ada, act(1, tool="keeping"), act(2, "on"), act(3, dependencies=[1])))
    assert (plan.status, step_of(plan).status, step_of(plan, 2).status) == ("failed", "failed", "completed")
    assert said in step_of(plan).error
    assert step_of(plan).error.startswith("Tool 'keeping' returned ")
    kind = "result_too_large" if "can be kept" in step_of(plan).error else "result_not_json"
    assert (call_of(plan).error_kind, memory_of(plan)["values"]) == (kind, {})
    assert len(call_of(plan).response) < 5000
    assert_gapless(plan)


@pytest.mark.parametrize(
    "value", ["x" * (MAX_RESULT - 2), "", 0, False, None, 2**53 - 1, 1e308, deep(60), {"": ""}, "\0\u2028🙂", (1, 2)]
)
def test_what_fits_is_kept_as_it_is(stage, ada, value):
    """To the last byte, also what reads like nothing."""
    stage.acts["keeping"] = lambda given, context: {"results": [value]} if not isinstance(value, str) else value
    plan = work_off(make_plan(ada, act(1, tool="keeping", output_path=["results", "0"])))
    assert plan.status == "completed"
    assert memory_of(plan)["values"]["kept"] == (list(value) if isinstance(value, tuple) else value)
