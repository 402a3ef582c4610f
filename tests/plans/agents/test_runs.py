"""Tests of the work of agents over REST."""

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
    """Return a plan with an agent that waits for approval, and a step that depends on it."""
    make_agent()
    script.says(calls(*WANTED, text="Both."))
    return work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))


def test_steps_name_parent_step(plan, ada):
    body = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"]
    assert [(each["step_id"], each["parent"]) for each in body] == [(1, None), (2, None), (3, 1), (4, 1), (5, 1)]


def test_step_of_agent_shows_usage_and_awaited_steps(plan, script, ada, rosa):
    body = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"]
    run = body[0]["agent_run"]
    assert run.pop("seconds") >= 0
    assert run == {
        "agent": "ann", "rounds": 1, "calls": 2, "tokens": 110, "cost": "0.010000", "stopped_for": None,
        "waiting_for": [4, 5],
    }  # fmt: skip
    assert [each["agent_run"] for each in body[1:]] == [None] * 4
    script.says("Done.")
    reject(plan, rosa, 4)
    assert work_off(plan).status == "completed"
    run = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"][0]["agent_run"]
    assert (run["stopped_for"], run["waiting_for"]) == ("done", [])


def test_usage_in_words(plan):
    work = work_of(step_of(plan))
    assert work is not None
    assert work.took == "1 model turn, 2 calls, 110 tokens, 0.0100 US dollars"
    assert work_of(step_of(plan, 2)) is None


def test_step_counts_exclude_agents_calls(plan, ada):
    counts = step_counts([plan])[plan.pk]
    assert (counts["steps"], counts["in_progress"], counts["pending"], counts["completed"]) == (2, 1, 1, 0)
    assert Rest(ada).get("plans/").json()["results"][0]["counts"]["steps"] == 2


def test_upcoming_steps_include_agent_and_its_request(plan):
    ahead = {each.step.step_id: each for each in upcoming_steps(plan)}
    assert (ahead[1].kind, ahead[1].step.waiting_for) == ("alone", "calls")
    assert (ahead[4].kind, ahead[4].is_open) == ("waits", True)


def test_upcoming_step_of_agent_that_has_not_begun(script, ada):
    make_agent()
    plan = agent_plan(ada, start=False)
    first = upcoming_steps(plan)[0]
    assert (first.kind, "ann" in first.why) == ("alone", True)


def test_agents_call_follows_agent_in_plan_around_request(plan, rosa):
    around = plan_around(plan.public_id, "4", rosa)
    assert around is not None
    assert [each.step_id for each in around.way] == [1]
    assert [each.step_id for each in around.next] == [2]
    assert around.asks is not None
    assert (around.asks.step_id, "step 1" in around.stake) == (1, True)
    assert around.purpose == around.asks.description
