"""Planning guidance: a common text, to which each strategy adds a paragraph."""

import pytest

from plans.planning_tools.tools import planning_tools
from plans.strategies import PlanningStrategy, guidance, mindset

OTHERS = [PlanningStrategy.PLAN_ACT_REFLECT, PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE]


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text."""
    return text.split("\n\n")


def test_the_strategies_have_the_contracts_names():
    assert [each.value for each in PlanningStrategy] == [
        "react",
        "plan_act_reflect",
        "goal_decompose_route_synthesise",
    ]


def test_react_is_the_default_and_adds_nothing():
    assert guidance() == guidance(PlanningStrategy.REACT) == guidance("react")
    assert mindset(PlanningStrategy.REACT) == ""


@pytest.mark.parametrize("strategy", OTHERS)
def test_only_the_mindset_paragraph_differs(strategy):
    told = paragraphs(guidance(strategy))
    assert mindset(strategy) in told
    assert [each for each in told if each != mindset(strategy)] == paragraphs(guidance())


def test_the_mindsets_differ():
    assert len({mindset(each) for each in PlanningStrategy}) == 3


@pytest.mark.parametrize("strategy", list(PlanningStrategy))
def test_the_skeleton_has_a_heading_names_the_four_tools_and_says_when_not_to_plan(strategy):
    text = guidance(strategy)
    bullets = [line for line in text.splitlines() if line.startswith("- ")]
    assert text.startswith("## Planning\n")
    assert [line.split("`")[1] for line in bullets] == [each.name for each in planning_tools()]
    assert text.endswith("Skip planning for trivial single-step tasks.")


def test_the_mindsets_say_what_their_strategies_are_about():
    reflect, decompose = (mindset(each) for each in OTHERS)
    assert "plan-act-reflect rhythm: outline the entire plan before executing any tools" in reflect
    assert "update the step status" in reflect
    assert "estate the goal in your own words" in decompose
    assert "concrete sub-problems before routing tools" in decompose
    assert "synthesise the results" in decompose


@pytest.mark.parametrize("strategy", ["", "REACT", "think", None])
def test_another_strategy_is_refused(strategy):
    with pytest.raises(ValueError):
        guidance(strategy)
