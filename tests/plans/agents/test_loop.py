"""Tests of the agent loop and its limits."""

import json
from datetime import timedelta

import pytest

from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.errors import ToolError
from catalog.models import Call
from catalog.results import ToolResult
from plans.actions.create import start_plan
from plans.actions.retry import retry_plan
from plans.agents import loop, messages, tool_calls
from plans.agents.definitions import AgentBudget, ToolFilter
from plans.llm import provider
from plans.models import Plan, Step
from plans.planning_tools import todo_list
from plans.spec import MAX_STEPS
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, reject, request_of, step_of, work_off
from tests.plans.agents.scripted import agent_plan, agent_step, calls, children_of, make_agent, run_of, tools_of
from tests.waiting import eventually


def test_immediate_answer_completes_step(script, ada):
    make_agent()
    script.says("All is well.")
    plan = agent_plan(ada, agent_step(expected_key="told", output_path=["results", "0"]))
    assert work_off(plan).status == "completed"
    assert plan.memory.get(key="told").value_json == "All is well."
    assert (run_of(plan).stopped_for, run_of(plan).rounds, run_of(plan).tokens) == ("done", 1, 110)
    assert_gapless(plan)


def test_calls_run_in_parallel_and_results_keep_order(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"value": 1}), ("safe", {"value": 2})), "Three.")
    plan = work_off(agent_plan(ada))
    assert plan.status == "completed"
    assert sorted(stage.values("safe")) == [1, 2]
    assert tools_of(plan) == [f"{name} completed" for name in ("agent_turn", "safe", "safe", "agent_turn")]
    assert ["1" in script.last_results()[0], "2" in script.last_results()[1]] == [True, True]


def test_value_excluded_from_context_reaches_no_model(script, stage, ada):
    make_agent()
    stage.acts["safe"] = lambda value, context: ToolResult(
        "Stored.", f"hidden-{value}", exclude_value_from_context=True
    )
    script.says(calls(("safe", {"value": 2})), "Done.")
    first = act(1, 1, expected_key="kept", output_path=["results", "0"])
    given = {"whole": "${kept}", "part": "About ${kept.name}"}
    plan = work_off(agent_plan(ada, first, agent_step(2, parameters=given, dependencies=[1])))
    assert plan.status == "completed"
    assert "hidden" not in json.dumps(script.read)
    assert ["Stored." in text for text in script.last_results()] == [True]
    results = [call.response_json["results"] for call in Call.objects.filter(tool_name="safe").order_by("pk")]
    assert results == [["hidden-1"], ["hidden-2"]]


def test_value_is_sent_as_rendered_text(script, stage, ada):
    make_agent()
    listed = todo_list.Plan("Tidy up", "active", (todo_list.PlanStep(1, "Look", "pending"),))
    stage.acts["safe"] = lambda value, context: listed
    script.says(calls(("safe", {"value": 1})), "Done.")
    assert work_off(agent_plan(ada)).status == "completed"
    assert listed.render() in script.last_results()[0]
    assert Call.objects.get(tool_name="safe").response_json["results"][0]["objective"] == "Tidy up"


def test_dependent_step_waits_for_agent_not_its_calls(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"value": "called"})), "Done.")
    after = act(2, "${told}", dependencies=[1])
    plan = agent_plan(ada, agent_step(expected_key="told", output_path=["results", "0"]), after)
    assert work_off(plan).status == "completed"
    assert stage.values("safe") == ["called", "Done."]


def test_failed_call_is_reported_to_model(script, stage, ada):
    make_agent()
    stage.acts["safe"] = lambda value, context: (_ for _ in ()).throw(ToolError("No such thing."))
    script.says(calls(("safe", {"value": 1})), "It did not work.")
    plan = work_off(agent_plan(ada))
    assert plan.status == "completed"
    assert "No such thing." in script.last_results()[0]
    assert step_of(plan, 3).status == "failed"


def test_tool_outside_filter_is_not_called(script, stage, ada):
    make_agent(tools=ToolFilter(names=["safe"]))
    script.says(calls(("saef", {}), ("dangerous", {"value": 1})), "I may not.")
    plan = work_off(agent_plan(ada))
    assert plan.status == "completed"
    assert tools_of(plan) == ["agent_turn completed", "agent_turn completed"]
    unknown, unoffered = script.last_results()
    assert ("safe" in unknown, unoffered) == (True, tool_calls.NOT_OFFERED.format(tool="dangerous"))


def test_references_in_arguments_stay_literal(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"value": "${told} and $${more}"})), "Done.")
    assert work_off(agent_plan(ada, memory={"told": "secret"})).status == "completed"
    assert stage.values("safe") == ["${told} and $${more}"]


def test_held_call_waits_without_lease(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), "Done.")
    plan = work_off(agent_plan(ada))
    agent = step_of(plan, 1)
    assert (agent.waiting_for, agent.claimed_by, agent.lease_until, agent.ready_at) == ("calls", "", None, None)
    assert step_of(plan, 3).waiting_for == "approval"
    approve(plan, rosa, 3)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == [1]


def test_held_calls_are_decided_one_by_one(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1}), ("dangerous", {"value": 2})), "One of two.")
    plan = work_off(agent_plan(ada))
    reject(plan, rosa, 3)
    assert len(script.read) == 1
    assert work_off(plan).status == "in_progress"
    approve(plan, rosa, 4)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == [2]
    assert ["No." in script.last_results()[0], "2" in script.last_results()[1]] == [True, True]


def test_rejected_call_is_rejected_again(script, stage, ada, rosa):
    make_agent()
    turn = calls(("dangerous", {"value": 1}))
    script.says(turn, turn, "I gave up.")
    plan = work_off(agent_plan(ada))
    reject(plan, rosa, 3)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == []
    assert step_of(plan, 5).status == "failed"


@pytest.mark.parametrize(
    "limit",
    [
        ({"rounds": 2}, "rounds", "Maximum iterations reached"),
        ({"calls": 1}, "calls", "more than 1 calls"),
        ({"tokens": 200}, "tokens", "220 tokens"),
        ({"cost": "0.02"}, "cost", "0.0200 US dollars"),
    ],
)
def test_agent_stops_at_its_limits(script, stage, ada, limit):
    budget, why, words = limit
    make_agent(budget=AgentBudget.model_validate(budget))
    again = calls(("safe", {"value": 1}))
    script.says(again, again, again, "Never said.")
    plan = work_off(agent_plan(ada))
    assert (plan.status, run_of(plan).stopped_for) == ("failed", why)
    assert words in step_of(plan, 1).error
    assert stage.values("safe") == [1]


def test_waiting_for_people_does_not_count_as_work(script, stage, ada, rosa):
    make_agent(budget=AgentBudget(seconds=3600))
    script.says(calls(("dangerous", {"value": 1})), "Done.")
    plan = work_off(agent_plan(ada))
    Call.objects.filter(plan_ref=plan.public_id).update(created_at=clock.now() - timedelta(days=1))
    approve(plan, rosa, 3)
    assert work_off(plan).status == "completed"
    assert 0 < run_of(plan).seconds < 3600


def test_agent_stops_when_its_seconds_are_used(script, stage, ada):
    make_agent(budget=AgentBudget(seconds=60))
    script.says(calls(("safe", {"value": 1})), "Never said.")
    plan = agent_plan(ada)
    stage.acts["safe"] = lambda value, context: Call.objects.filter(public_id=context.call_id).update(
        started_at=clock.now() - timedelta(seconds=90)
    )
    assert work_off(plan).status == "failed"
    assert run_of(plan).stopped_for == "seconds"


def test_unknown_price_stops_agent_with_cost_limit(script, stage, ada):
    make_agent(budget=AgentBudget.model_validate({"cost": "1"}))
    script.says(calls(("safe", {"value": 1})) | {"cost": None})
    plan = work_off(agent_plan(ada))
    assert (plan.status, stage.values("safe"), run_of(plan).stopped_for) == ("failed", [], "cost")
    assert step_of(plan, 1).error == loop.NO_PRICE.format(model="scripted")


def test_full_plan_ends_agent(script, stage, ada):
    make_agent()
    turn = calls(("safe", {"value": 1}))
    script.says(turn, turn, "Never said.")
    plan = agent_plan(ada, start=False)
    others = [Step(plan=plan, step_id=number, status="cancelled") for number in range(2, MAX_STEPS - 1)]
    Step.objects.bulk_create(others)
    start_plan(plan, by=Requester(ada))
    work_off(plan)
    assert (plan.steps.count(), plan.status) == (MAX_STEPS, "failed")
    assert (len(script.read), stage.values("safe"), step_of(plan, 1).error) == (2, [], loop.FULL)


def test_model_learns_of_edited_arguments(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": "asked"})), "Done.")
    plan = work_off(agent_plan(ada))
    request = request_of(plan, 3)
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments={"value": "given"}))
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["given"]
    assert [messages.EDITED in script.last_results()[0], '"given"' in script.last_results()[0]] == [True, True]


def test_retried_agent_continues_conversation_with_reset_counters(script, stage, ada):
    make_agent(budget=AgentBudget(rounds=2))
    script.says(calls(("safe", {"value": 1})), calls(("safe", {"value": 2})), "Done.")
    plan = work_off(agent_plan(ada))
    retry_plan(plan, 1, by=Requester(ada))
    assert work_off(plan).status == "completed"
    assert stage.values("safe") == [1]
    assert len(script.read[-1]) > 2


def test_failed_turn_fails_step(script, ada):
    make_agent()
    script.says(ToolError("The model is away."))
    plan = work_off(agent_plan(ada))
    assert plan.status == "failed"
    assert "The model is away." in step_of(plan, 1).error


@pytest.mark.parametrize("answer", ["", "  ", {"text": 1}, {"calls": [{"tool": "safe"}]}])
def test_empty_answer_fails_step(script, ada, answer):
    make_agent()
    script.says(answer)
    plan = work_off(agent_plan(ada))
    assert (plan.status, run_of(plan).stopped_for) == ("failed", "failed")


def test_agent_that_may_not_be_used_fails_step(script, ada):
    agent = make_agent()
    plan = agent_plan(ada, start=False)
    type(agent).objects.update(groups='["finance"]')

    start_plan(plan, by=Requester(ada))
    assert work_off(plan).status == "failed"
    assert step_of(plan, 1).error == loop.NO_AGENT.format(name="ann", who="ada")


def test_requesters_of_agent_are_requesters_of_its_calls(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})))
    plan = work_off(agent_plan(ada))
    assert request_of(plan, 3).call.requested_by == ada


def test_threads_run_several_agents(executor, script, stage, ada):
    make_agent()
    script.says(*[calls(("safe", {"value": number})) for number in range(4)], *["Done."] * 4)
    plan = agent_plan(ada, *(agent_step(number) for number in range(1, 5)))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    assert sorted(stage.values("safe")) == [0, 1, 2, 3]
    assert sum(len(children_of(plan, number)) for number in range(1, 5)) == 4 * 3  # whoever was told what


def test_tools_get_prompt_of_their_agent(script, stage, ada):
    make_agent(instructions="Keep it short.")
    script.says(calls(("safe", {"value": "by the agent"})), "Done.")
    assert work_off(agent_plan(ada, agent_step(), act(2, "by the plan", dependencies=[1]))).status == "completed"
    contexts = {value: context for _, value, context in stage.played}
    by_agent, by_plan = contexts["by the agent"], contexts["by the plan"]
    assert "Keep it short." in by_agent.rendered_prompt.text
    assert (by_agent.prompt is not None, by_agent.adapter) == (True, provider.configured_model())
    assert (by_plan.prompt, by_plan.rendered_prompt, by_plan.adapter) == (None, None, None)
