"""Agents over REST: whose steps are whose, what an agent took, and what it waits for."""

import pytest

from plans.actions.upcoming import upcoming_steps
from plans.agents.runs import work_of
from plans.store.selectors import step_counts
from plans.templatetags.plan_context import plan_around
from tests.builders import act, reject, step_of, work_off
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent
from tests.rest import Rest

WANTED = (("dangerous", {"value": 1}), ("safe", {"value": 2}))


@pytest.fixture
def plan(script, ada):
    """Return a plan whose agent waits for an approval, and a step that waits for the agent."""
    make_agent()
    script.says(calls(*WANTED, text="Both."))
    return work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))


def test_steps_name_their_agents_step(plan, ada):
    """Those of the plan as it was written have none."""
    shown = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"]
    assert [(each["step_id"], each["parent"]) for each in shown] == [(1, None), (2, None), (3, 1), (4, 1), (5, 1)]


def test_an_agents_step_says_what_it_took_and_waits_for(plan, script, ada, rosa):
    """And, once it has ended, why it stopped; other steps have no run."""
    shown = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"]
    run = shown[0]["agent_run"]
    assert run.pop("seconds") >= 0
    assert run == {
        "agent": "ann", "rounds": 1, "calls": 2, "tokens": 110, "cost": "0.010000", "stopped_for": None,
        "waiting_for": [4, 5],
    }  # fmt: skip
    assert [each["agent_run"] for each in shown[1:]] == [None] * 4
    script.says("Done.")
    reject(plan, rosa, 4)
    assert work_off(plan).status == "completed"
    run = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"][0]["agent_run"]
    assert (run["stopped_for"], run["waiting_for"]) == ("done", [])


def test_what_it_took_is_said_in_words(plan):
    """For pages."""
    work = work_of(step_of(plan))
    assert work is not None
    assert work.took == "asked once, 2 calls, 110 tokens, 0.0100 US dollars"
    assert work_of(step_of(plan, 2)) is None


def test_the_steps_of_a_plan_are_counted_without_what_its_agents_call(plan, ada):
    """How far a plan has come is said in the steps that somebody wrote."""
    counts = step_counts([plan])[plan.pk]
    assert (counts["steps"], counts["in_progress"], counts["pending"], counts["completed"]) == (2, 1, 1, 0)
    assert Rest(ada).get("plans/").json()["results"][0]["counts"]["steps"] == 2


def test_what_is_to_come_names_the_agent_and_what_waits_for_people(plan):
    """The request of its call can be answered there like any other."""
    ahead = {each.step.step_id: each for each in upcoming_steps(plan)}
    assert (ahead[1].kind, ahead[1].step.waiting_for) == ("alone", "calls")
    assert (ahead[4].kind, ahead[4].is_open) == ("waits", True)


def test_what_is_to_come_of_an_agent_that_has_not_begun(script, ada):
    """Nobody knows yet what it will call."""
    make_agent()
    plan = agent_plan(ada, start=False)
    first = upcoming_steps(plan)[0]
    assert (first.kind, "ann" in first.why) == ("alone", True)


def test_a_call_stands_in_its_plan_after_its_agent(plan, rosa):
    """The path of a request leads over the agent's step; what the model said is not in it."""
    around = plan_around(plan.public_id, "4", rosa)
    assert around is not None
    assert [each.step_id for each in around.way] == [1]
    assert [each.step_id for each in around.next] == [2]
    assert around.asks is not None
    assert (around.asks.step_id, "step 1" in around.stake) == (1, True)
