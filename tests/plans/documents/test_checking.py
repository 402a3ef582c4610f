"""Validation of plans: each problem has a path, a line, and a suggestion."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from catalog.definitions.tool import Tool
from catalog.tools import define_tool
from plans.documents.checking import SET_MODEL_HINT, AgentAvailability, check_plan, with_lines
from plans.documents.reading import Problem
from plans.spec import PlanDocument


class Facts(BaseModel):
    """The figures to look up."""

    ticker: str = Field(max_length=5)
    years: list[int] = Field(default_factory=list)
    kind: str = "annual"

    @field_validator("kind")
    @classmethod
    def known(cls, kind: str) -> str:
        """Refuse unknown kinds; raise an unexpected error for one of them."""
        if kind not in ("annual", "quarterly"):
            raise ValueError("Unknown kind") if kind != "crash" else KeyError(kind)
        return kind


FIGURES = {"figures": Facts}
NOTE = [{"name": "text", "type": "string"}, {"name": "times", "type": "integer"}]
TOOLS: dict[str, Tool[Any, Any]] = {
    "facts": Tool(name="facts", description="Facts", handler=len, query_type_models=FIGURES, output_key="facts"),
    "note": define_tool("note", "Keep a note", NOTE, required=["text"], handler=len),
    "wipe": define_tool("wipe", "Wipe all", [], safety_level="dangerous", handler=len),
}


def step(number: int, tool: str | None = "note", needs: tuple[int, ...] = (), **changes: Any) -> dict[str, Any]:
    """Return a valid step."""
    parameters = {"note": {"text": "hello"}, "facts": facts(ticker="AAPL")}.get(tool or "", {})
    named = {"tool": tool} if tool else {}
    return {
        "step_id": number,
        "description": f"Step {number}",
        "parameters": parameters,
        "dependencies": list(needs),
        "expected_key": f"key_{number}",
    } | (named | changes)


AGENTS = {
    "ann": AgentAvailability(),
    "off": AgentAvailability(enabled=False),
    "mute": AgentAvailability(has_model=False),
}


def facts(**parameters: Any) -> dict[str, Any]:
    """Return the arguments of the tool with query types."""
    return {"query_type": "figures", "parameters": parameters}


def query(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a step that calls the tool with query types."""
    return step(1, "facts", parameters=arguments)


def check(*steps: Any, **changes: Any) -> list[Problem]:
    """Return the problems of a plan of these steps."""
    return check_plan({"goal": "Find out", "steps": list(steps)} | changes, TOOLS, agents=lambda: AGENTS)


def marks(problems: list[Problem]) -> list[tuple[str, str]]:
    """Return the path and code of each problem."""
    return [(problem.path, problem.code) for problem in problems]


def test_a_sound_plan_has_no_problems() -> None:
    assert check(step(1, "facts"), step(2, None, (1,)), step(3, "note", (2,), parameters={"text": "${key_1}"})) == []


def test_document_and_json_have_the_same_problems() -> None:
    raw = {"goal": "Find out", "steps": [step(1, "nope"), step(2, needs=(9,))]}
    assert check_plan(PlanDocument.model_validate(raw), TOOLS) == check_plan(raw, TOOLS)


PROBLEMS: list[tuple[list[Any], tuple[str, str]]] = [
    ([step(1, "notes")], ("steps.0.tool", "unknown_tool")),
    ([step(1), step(1, expected_key="b")], ("steps.1.step_id", "duplicate_step_id")),
    ([step(0)], ("steps.0.step_id", "minimum")),
    ([step(1, needs=(1,))], ("steps.0.dependencies.0", "self_dependency")),
    ([step(1), step(2, needs=(1, 1))], ("steps.1.dependencies.1", "duplicate_dependency")),
    ([step(1, needs=(9,))], ("steps.0.dependencies.0", "unknown_dependency")),
    ([step(1, needs=(2,)), step(2, needs=(1,))], ("steps.0.dependencies", "circular_dependency")),
    ([step(1), step(2, expected_key="key_1")], ("steps.1.expected_key", "duplicate_key")),
    ([step(1, done_check="value not None")], ("steps.0.done_check", "done_check_invalid")),
    ([step(1, done_check="value.pop()")], ("steps.0.done_check", "done_check_invalid")),
    ([step(1, done_check="")], ("steps.0.done_check", "done_check_invalid")),
    ([step(1, done_check="True")], ("steps.0.done_check", "done_check_constant")),
    ([step(1, "wipe")], ("steps.0.tool", "waits_for_approval")),
    ([step(1, expected_key=None)], ("steps.0", "no_output_key")),
    ([step(1, None, expected_key=None, output_path=["a"])], ("steps.0.output_path", "output_path_unused")),
    ([step(1, agent="ann")], ("steps.0.agent", "tool_and_agent")),
    ([step(1, None, agent="nobody")], ("steps.0.agent", "agent_unavailable")),
    ([step(1, None, agent="ann", expected_key=None)], ("steps.0", "no_output_key")),
    ([step(1, None, agent="ann", parameters={"a": "${later}"})], ("steps.0.parameters.a", "unknown_reference")),
    ([step(1, None, agent="ann", parameters={"a": {"$secret": "k"}})], ("steps.0.parameters.a", "secret_missing")),
    ([step(1, status="completed")], ("steps.0.status", "run_time_field")),
    ([step(1, colour="red")], ("steps.0.colour", "unknown_field")),
    ([query(facts(ticker=5))], ("steps.0.parameters.parameters.ticker", "type")),
    ([query(facts(ticker="A", kind="x"))], ("steps.0.parameters.parameters.kind", "value_error")),
    ([query(facts(ticker="A", kind="crash"))], ("steps.0.parameters", "check_failed")),
    ([query({"query_type": "rumours"})], ("steps.0.parameters.query_type", "query_type_unsupported")),
    ([step(1, parameters={})], ("steps.0.parameters.text", "required")),
    ([step(1, parameters={"text": "a", "txt": 1})], ("steps.0.parameters.txt", "additionalProperties")),
    ([step(1, parameters={"text": "${nobody}"})], ("steps.0.parameters.text", "unknown_reference")),
    ([step(1), step(2, parameters={"text": "${key_1}"})], ("steps.1.parameters.text", "reference_not_before")),
    ([step(1, parameters={"text": "${key_1}"})], ("steps.0.parameters.text", "reference_not_before")),
    ([step(1, parameters={"text": "${"})], ("steps.0.parameters.text", "reference_malformed")),
]


def test_problems_are_found_at_their_paths() -> None:
    found = {str(steps): (marks(check(*steps)), expected) for steps, expected in PROBLEMS}
    assert {steps: marked for steps, (marked, expected) in found.items() if marked != [expected]} == {}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"text": "${key_1}", "times": "${key_1.n}"}, []),
        ({"text": "so ${key_1}", "times": "so ${key_1.n}"}, [("steps.1.parameters.times", "type")]),
        ({"times": "${key_1}"}, [("steps.1.parameters.text", "required")]),
        ({"text": "${key_1}", "odd": "${key_1}"}, [("steps.1.parameters.odd", "additionalProperties")]),
        ({"text": ["${key_1}"]}, [("steps.1.parameters.text", "type")]),
        ({"text": "$${key_1}"}, []),
    ],
)
def test_a_reference_may_become_whatever_fits(parameters: dict[str, Any], expected: list[Any]) -> None:
    assert marks(check(step(1), step(2, needs=(1,), parameters=parameters))) == expected


def test_references_inside_query_types_may_become_whatever_fits() -> None:
    arguments = facts(ticker="${key_1.a_long_path}", years=["${key_1.year}", "1990"], kind="${key_1.kind}")
    problems = check(step(1), step(2, "facts", (1,), parameters=arguments))
    assert marks(problems) == [("steps.1.parameters.parameters.years.1", "type")]


def test_memory_and_a_tools_own_key_can_be_referred_to() -> None:
    writer = step(1, "facts", expected_key=None)
    reader = step(2, needs=(1,), parameters={"text": "${facts.results.0} ${given}"})
    assert check(writer, reader, memory={"given": 1}) == []


def test_a_key_may_be_in_memory_and_written_by_a_step() -> None:
    assert check(step(1, done_check="key_1 is not None"), memory={"key_1": 1}) == []


def test_only_explicit_keys_collide() -> None:
    assert check(step(1, "facts", expected_key=None), step(2, "facts", expected_key=None)) == []


def test_a_disabled_tool_is_a_warning() -> None:
    problems = check_plan({"goal": "x", "steps": [step(1)]}, TOOLS, disabled={"note"})
    assert [(each.code, each.severity) for each in problems] == [("tool_disabled", "warning")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ann", []),
        ("an", [("agent_unavailable", "error", "Did you mean ann?")]),
        ("off", [("agent_disabled", "warning", None)]),
        ("mute", [("no_model", "warning", SET_MODEL_HINT)]),
    ],
)
def test_agent_must_be_available(name, expected) -> None:
    found = check_plan({"goal": "x", "steps": [step(1, None, agent=name)]}, TOOLS, agents=lambda: AGENTS)
    assert [(each.code, each.severity, each.suggestion) for each in found] == expected


def test_parameters_of_an_agent_are_not_restricted() -> None:
    free = {"anything": [1, {"goes": None}], "before": "${key_1}"}
    steps = [step(1, "facts"), step(2, None, (1,), agent="ann", parameters=free)]
    assert check_plan({"goal": "x", "steps": steps}, TOOLS, agents=lambda: AGENTS) == []


def test_agents_are_asked_for_only_where_a_step_names_one() -> None:
    def never() -> dict[str, AgentAvailability]:
        raise AssertionError

    assert check_plan({"goal": "x", "steps": [step(1)]}, TOOLS, agents=never) == []


@pytest.mark.parametrize(
    ("steps", "suggestion"),
    [
        ([step(1, "nota")], "Did you mean note?"),
        ([step(1), step(2, needs=(1, 9))], "Known steps: 1, 2."),
        ([step(1, "wipe")], "wipe is dangerous. Someone other than you must approve it."),
        ([step(1), step(2, needs=(1,), parameters={"text": "${kee_1}"})], "Did you mean key_1"),
        ([step(1), step(2, parameters={"text": "${key_1}"})], "Add 1 to the dependencies of step 2."),
        ([step(1, dependancies=[])], "Did you mean dependencies?"),
    ],
)
def test_problem_has_a_suggestion(steps: list[Any], suggestion: str) -> None:
    (problem,) = check(*steps)
    assert (problem.suggestion or "").startswith(suggestion)


def test_no_suggestion_creates_a_cycle() -> None:
    (problem,) = check(step(1, parameters={"text": "${key_2}"}), step(2, needs=(1,)))
    assert (problem.code, problem.suggestion) == ("reference_not_before", None)


def test_every_cycle_is_named() -> None:
    needs = {1: (3,), 2: (1,), 3: (2,), 4: (5,), 5: (4,)}
    messages = [problem.message for problem in check(*(step(number, needs=each) for number, each in needs.items()))]
    assert messages == [
        "These steps wait for each other: 1 → 3 → 2 → 1.",
        "These steps wait for each other: 4 → 5 → 4.",
    ]


def test_a_broken_step_does_not_hide_the_others_problems() -> None:
    broken = step(1) | {"step_id": "1", "parameters": []}
    problems = check(broken, "no step", step(3, "nope", (1,), parameters={"text": "${key_2}"}), colour=1)
    assert marks(problems) == [
        ("steps.0.step_id", "type"),
        ("steps.0.parameters", "type"),
        ("steps.1", "type"),
        ("colour", "unknown_field"),
        ("steps.2.tool", "unknown_tool"),
    ]


@pytest.mark.parametrize("document", [None, [], 5, "x", {}, {"goal": 1, "steps": 2}, {"goal": "x", "steps": [[]]}])
def test_other_json_values_are_no_plan(document: Any) -> None:
    assert {problem.severity for problem in check_plan(document, TOOLS)} == {"error"}


def test_more_problems_than_can_be_read_keep_the_errors() -> None:
    dangerous = [step(number, "wipe", expected_key=None) for number in range(1, 500)]
    problems = check(*dangerous, step(500, needs=(500,)))
    assert len(problems) == 500
    assert problems[0].code == "self_dependency"


def test_a_hostile_plan_of_references_is_checked() -> None:
    wide = {"k" * 60_000: [f"${{a{number}}}" for number in range(15_000)]}
    assert len(check(*(step(number, parameters=wide) for number in range(1, 5)))) == 500


def test_a_dense_plan_is_checked() -> None:
    steps = [step(n, needs=tuple(range(1, n)), parameters={"text": f"${{key_{n - 1}}}"}) for n in range(2, 501)]
    assert check(step(1), *steps) == []
    check(*steps)


def test_each_problem_knows_its_line() -> None:
    plan = {"goal": "x", "steps": [step(1), step(2, "nope", (7,)), {"step_id": 3}]}
    text = json.dumps(plan, indent=1)
    lines = text.splitlines()
    problems = with_lines(check_plan(plan, TOOLS), text)
    assert [lines[(problem.line or 0) - 1].strip(" ,") for problem in problems] == [
        "{",
        "7",
        '"tool": "nope"',
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["note", "${key_1}", "key_1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*step(1), "goal", "steps", "memory", "text"]), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(JSON, st.lists(JSON, max_size=3))
def test_no_document_makes_the_check_fail(document: Any, steps: list[Any]) -> None:
    problems = check_plan(document, TOOLS) + check(*steps)
    with_lines(problems, json.dumps(document))
