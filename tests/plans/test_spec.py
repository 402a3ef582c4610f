"""The contract's documents keep their fields and defaults; submitted plans are parsed strictly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from plans.spec import Plan, PlanDocument, PlanStep, extract_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def document(**changes: Any) -> dict[str, Any]:
    """Return a valid plan with changes."""
    return {"goal": "Find out", "steps": [step()]} | changes


def step(**changes: Any) -> dict[str, Any]:
    """Return a valid step with changes."""
    return {"step_id": 1, "description": "Look"} | changes


def test_a_step_has_the_twelve_fields_and_defaults_of_the_contract() -> None:
    assert PlanStep(step_id=1, description="Look").model_dump() == {
        "step_id": 1,
        "description": "Look",
        "tool": None,
        "agent": None,
        "parameters": {},
        "dependencies": [],
        "expected_key": None,
        "output_path": None,
        "done_check": None,
        "status": "pending",
        "completed_at": None,
        "skipped": False,
    }


def test_a_plan_has_the_seven_fields_and_defaults_of_the_contract() -> None:
    assert Plan(goal="Find out", created_at="2024-01-01T00:00:00Z").model_dump() == {
        "goal": "Find out",
        "steps": [],
        "status": "pending",
        "created_at": "2024-01-01T00:00:00Z",
        "completed_at": None,
        "owner": "agent",
        "can_modify": True,
    }


def test_a_plan_must_say_when_it_was_created() -> None:
    with pytest.raises(ValidationError, match="created_at"):
        Plan.model_validate({"goal": "Find out"})


PATHS: list[tuple[list[str | int], object]] = [
    (["data", "Revenue"], 394),
    (["data", "falsy"], 0),
    (["results", "1"], "b"),
    (["results", 1], "b"),
    (["results", "2"], None),
    (["results", "-1"], None),
    (["results", "one"], None),
    (["results", "\uff19"], None),
    (["results", True], None),
    (["results", "9" * 5000], None),
    (["data", "Revenue", "deeper"], None),
    (["missing"], None),
]


def test_paths_lead_to_values_or_to_none() -> None:
    result = {"data": {"Revenue": 394, "falsy": 0}, "results": ["a", "b"]}
    found = [(path, extract_value(result, path)) for path, _ in PATHS]
    assert found == PATHS


@given(JSON)
def test_an_empty_path_is_the_whole_result(value: object) -> None:
    assert extract_value(value, []) == value
    assert extract_value(value, None) == value


@given(JSON, st.lists(st.text() | st.integers()))
def test_no_path_makes_extraction_fail(value: object, path: list[str | int]) -> None:
    extract_value(value, path)


def test_a_submitted_plan_starts_at_once_unless_it_says_otherwise() -> None:
    plan = PlanDocument.model_validate(document())
    assert (plan.start, plan.owner, plan.can_modify, plan.memory) == (True, "agent", True, {})


@pytest.mark.parametrize("field", ["status", "skipped", "completed_at", "colour"])
def test_a_submitted_step_carries_definition_fields_only(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        PlanDocument.model_validate(document(steps=[step(**{field: "x"})]))


WRONG_STEPS: list[dict[str, Any]] = [
    {"step_id": "1"},
    {"step_id": True},
    {"step_id": 1.0},
    {"step_id": 0},
    {"description": ""},
    {"description": " \n"},
    {"description": "nul \0"},
    {"description": "x" * 501},
    {"dependencies": ["1"]},
    {"dependencies": [True]},
    {"dependencies": (1,)},
    {"expected_key": "1st"},
    {"expected_key": "a-b"},
    {"expected_key": "a\n"},
    {"expected_key": "x" * 129},
    {"output_path": "results"},
    {"output_path": [0]},
    {"done_check": True},
    {"done_check": "x" * 501},
    {"parameters": []},
    {"parameters": {"text": "x" * 262_144}},
    {"tool": ""},
]


def test_nothing_in_a_step_is_coerced_or_oversized() -> None:
    assert [
        change for change in WRONG_STEPS if next(iter(change)) not in wrong_in(document(steps=[step(**change)]))
    ] == []


def wrong_in(submitted: dict[str, Any]) -> set[str | int]:
    """Return the names in the paths of all errors in a submitted plan."""
    try:
        PlanDocument.model_validate(submitted)
    except ValidationError as refusal:
        return {name for error in refusal.errors() for name in error["loc"]}
    return set()


WRONG_PLANS: list[dict[str, Any]] = [
    {"goal": ""},
    {"goal": "x" * 2001},
    {"steps": []},
    {"steps": [step()] * 501},
    {"can_modify": "yes"},
    {"can_modify": 1},
    {"start": 0},
    {"deadline_seconds": 0},
    {"deadline_seconds": True},
    {"memory": {"no-key": 1}},
    {"memory": {"key": "x" * 262_144}},
    {"status": "pending"},
    {"created_at": "2024-01-01T00:00:00Z"},
]


def test_nothing_in_a_plan_is_coerced_or_oversized() -> None:
    assert [change for change in WRONG_PLANS if next(iter(change)) not in wrong_in(document(**change))] == []


def test_five_hundred_steps_are_taken() -> None:
    steps = [step(step_id=number) for number in range(1, 501)]
    assert len(PlanDocument.model_validate(document(steps=steps)).steps) == 500
