"""The tool that asks an agent's model: what is sent, what comes back, and what its failures are called."""

import json
from typing import Any

import pytest

from plans.models import ModelUse
from tests.builders import step_of, work_off
from tests.plans.agents.scripted import agent_plan, make_agent, run_of, tools_of
from tests.plans.planner.server import MODEL, Reply

pytestmark = pytest.mark.django_db(transaction=True)


def wants(*calls: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    """An answer that wants tools called."""
    return Reply(text, tool_calls=tuple((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls, 1)))


def test_a_text_ends_the_agents_work(server, stage, ada):
    make_agent(instructions="Speak plainly.")
    server.says("All is well.")
    plan = work_off(agent_plan(ada))
    assert plan.status == "completed"
    run = run_of(plan)
    assert (run.stopped_for, run.rounds, run.tokens) == ("done", 1, 14)
    use = ModelUse.objects.get()
    assert (use.purpose, use.model, use.error, use.call.tool_name) == ("agent", MODEL, "", "agent_turn")
    sent = server.asked[0]
    assert sent["stream"] is True
    assert "Speak plainly." in sent["messages"][0]["content"]
    assert "safe" in [each["function"]["name"] for each in sent["tools"]]
    assert "agent_turn" not in json.dumps(sent["tools"])


def test_calls_are_made_and_told_under_their_ids(server, stage, ada):
    make_agent()
    server.says(wants(("safe", {"value": 1}), ("safe", {"value": 2}), text="Both."), "Three.")
    plan = work_off(agent_plan(ada))
    assert sorted(stage.values("safe")) == [1, 2]
    assert tools_of(plan) == [f"{name} completed" for name in ("agent_turn", "safe", "safe", "agent_turn")]
    *_, asked, first, second = server.asked[1]["messages"]
    assert [each["id"] for each in asked["tool_calls"]] == ["c1", "c2"]
    assert [(each["role"], each["tool_call_id"]) for each in (first, second)] == [("tool", "c1"), ("tool", "c2")]
    assert "```json" in first["content"]
    kept = [each["by"] for each in json.loads(ModelUse.objects.latest("pk").prompt)]
    assert kept == ["instructions", "offered", "user", "model", "tools"]
    assert step_of(plan, 3).description == "Both."
