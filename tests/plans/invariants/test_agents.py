"""Faults in agents' steps, made by SQL in a sound plan: each is found, and a working agent breaks nothing."""

import pytest

from tests.builders import act, approve, step_of, work_off
from tests.invariants import assert_invariants, broken
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent, run_of
from tests.plans.invariants.worlds import corrupt


@pytest.fixture
def plan(script, ada):
    """Return a plan whose agent waits for an approval, with a step that depends on the agent."""
    make_agent()
    script.says(calls(("dangerous", {"value": 1}), ("safe", {"value": 2})))
    made = work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1]), act(3)))
    assert_invariants()
    return made


def place(plan, number):
    """Return a step in the form of findings."""
    return f"{plan.public_id}/{number}"


def test_working_agent_breaks_nothing(plan, script, rosa):
    """Also once it is done."""
    script.says("Done.")
    approve(plan, rosa, 5)
    assert work_off(plan).status == "completed"
    assert_invariants()


def test_an_agent_that_nothing_will_wake_is_stuck(plan):
    """All its calls have ended, but its step still waits."""
    corrupt("UPDATE plans_step SET parent_id = NULL WHERE id = %s", step_of(plan, 5).pk)
    assert broken() == {"I11": [place(plan, 1)], "I19": [place(plan, 1)]}


def test_call_without_an_agents_step_is_found(plan):
    corrupt("UPDATE plans_step SET parent_id = %s WHERE id = %s", step_of(plan, 3).pk, step_of(plan, 6).pk)
    assert broken() == {"I19": [place(plan, 6), place(plan, 1)]}


def test_step_that_depends_on_an_agents_call_is_found(plan):
    corrupt(
        "INSERT INTO plans_stepdependency (step_id, needs_id) VALUES (%s, %s)", step_of(plan, 2).pk, step_of(plan, 6).pk
    )
    assert broken()["I19"] == [place(plan, 6)]


def test_run_that_waits_for_a_missing_step_is_found(plan):
    corrupt(
        "UPDATE plans_agentrun SET pending = %s WHERE id = %s",
        '[{"id": "c1", "tool": "safe", "step_id": 99, "refusal": ""}]',
        run_of(plan).pk,
    )
    assert broken() == {"I19": [place(plan, 1)]}
