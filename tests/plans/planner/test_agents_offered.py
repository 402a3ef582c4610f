"""Agents in what the planner reads and answers: those that the requester may use, by name and first line."""

import pytest

from plans.planner.output import PlannerOutput
from plans.planner.prompt import instructions_for
from plans.planner.validation import judge_answer
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy
from tests.plans.agents.scripted import agent_step, make_agent

pytestmark = pytest.mark.usefixtures("catalog")


def read_by(user) -> str:
    """Return what the planner reads for a person."""
    return instructions_for("Find out.", PlanningStrategy.REACT, by=Requester(user))


def test_usable_agents_are_offered_by_their_first_line(ada):
    """Neither those of others nor those that are switched off; nothing is said where there are none."""
    assert "## Agents" not in read_by(ada)
    make_agent("finder", instructions="Finds things out.\nSecond line.")
    make_agent("theirs", groups=["reviewer"])
    make_agent("off", enabled=False)
    said = read_by(ada)
    assert '{"name": "finder", "for": "Finds things out."}' in said
    assert not [each for each in ("Second line", "theirs", '"off"') if each in said]


def test_the_planner_is_told_how_many_queries_are_run(ada):
    """More are not."""
    assert "the first 5 of them" in read_by(ada)


def test_a_drafted_step_may_name_an_agent(ada, settings):
    """One that its requester may use; another is sent back with the nearest name."""
    settings.TOOLGATE_MODEL = "openai:scripted"
    make_agent("finder")
    for name, errors in (("finder", 0), ("fnder", 1)):
        plan = {"goal": "Find out", "steps": [agent_step(name=name, expected_key="found")]}
        judged = judge_answer(PlannerOutput(intent="Find out", needs_tools=True, plan=plan), by=Requester(ada))
        about = [each for each in judged.errors if each.startswith("plan.steps.0.agent")]
        assert len(about) == errors
        assert judged.document is not None
        assert judged.document["steps"][0]["agent"] == name
    assert "Did you mean finder?" in about[0]
