"""Tests of agents in the planner's prompt and answers."""

import pytest

from plans.planner.output import PlannerOutput
from plans.planner.prompt import instructions_for
from plans.planner.validation import judge_answer
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy
from tests.plans.agents.scripted import agent_step, make_agent

pytestmark = pytest.mark.usefixtures("catalog")


def read_by(user) -> str:
    """Return the planner's instructions for a person."""
    return instructions_for("Find out.", PlanningStrategy.REACT, by=Requester(user))


def test_usable_agents_are_listed_with_first_line(ada):
    assert "## Agents" not in read_by(ada)
    make_agent("finder", instructions="Finds things out.\nSecond line.")
    make_agent("theirs", groups=["reviewer"])
    make_agent("off", enabled=False)
    said = read_by(ada)
    assert '{"name": "finder", "for": "Finds things out."}' in said
    assert not [each for each in ("Second line", '"theirs"', '"off"') if each in said]


def test_instructions_name_number_of_queries(ada):
    assert "the first 5 of them" in read_by(ada)


def test_drafted_step_may_name_agent(ada, settings):
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
