"""Tests of failures, races and interventions around calls of agents."""

import json
from datetime import timedelta
from typing import Any

import pytest

from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import ToolError
from catalog.models import Call
from plans.actions.retry import retry_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.actions.skip import skip_step
from plans.agents import loop, messages, tool_calls
from plans.agents.definitions import AgentBudget
from plans.engine.loop import TimeSlice, advance, claim_work
from plans.models import Agent, MemoryItem, Plan
from plans.spec import MAX_STEP_ID
from plans.store import statements
from plans.store.requesters import Requester, extra_requesters
from tests.builders import act, approve, events_of, request_of, step_of, work_off
from tests.plans.agents.scripted import SCRIPT, agent_plan, agent_step, calls, make_agent, run_of, tools_of
from tests.racing import at_once


def answer(plan: Plan, by: Any, verdict: ReviewVerdict, step_id: int = 3, **more: Any) -> None:
    """Answer the question of a waiting step."""
    request = request_of(plan, step_id)
    decide(request, by=by, decision=Decision(verdict, request.digest, comment="Because of the audit.", **more))


def test_result_of_agents_call_is_not_stored_in_memory(script, stage, ada):
    make_agent()
    script.says(calls(("keeping", {"value": "the agent's"})), "Done.")
    plan = work_off(agent_plan(ada, memory={"kept": "the plan's"}))
    assert (plan.status, stage.values("keeping")) == ("completed", ["the agent's"])
    values = MemoryItem.objects.filter(plan=plan, type="value").values_list("key", "value")
    assert dict(values) == {"kept": '"the plan\'s"'}


def test_requested_changes_are_reported_to_model(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), "I will not.")
    plan = work_off(agent_plan(ada))
    answer(plan, rosa, ReviewVerdict.REQUEST_CHANGES)
    assert work_off(plan).status == "completed"
    assert (step_of(plan, 3).status, stage.values("dangerous")) == ("failed", [])
    assert "Because of the audit." in script.last_results()[0]


def test_reviewers_read_text_of_model(script, stage, ada, rosa, client):
    make_agent()
    turn = calls(("dangerous", {"value": 1}), text="The disk is <full>.")
    script.says(turn, calls(("dangerous", {"value": 2})))
    plan = work_off(agent_plan(ada))
    request = request_of(plan, 3)
    client.force_login(rosa)
    page = client.get(f"/approvals/?item={request.public_id}").content.decode()
    assert "The disk is &lt;full&gt;." in page
    assert client.get(f"/api/v1/approvals/{request.public_id}/").json()["reason"] == "The disk is <full>."
    approve(plan, rosa, 3)
    work_off(plan)
    assert request_of(plan, 5).call.reason == ""


def test_reason_of_rejection_is_reported_to_model(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), "Then not.")
    plan = work_off(agent_plan(ada))
    answer(plan, rosa, ReviewVerdict.REJECT, effect="skip")
    assert work_off(plan).status == "completed"
    assert "Because of the audit." in script.last_results()[0]


def test_reason_of_skip_is_reported_to_model(script, stage, ada):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), "Then not.")
    plan = work_off(agent_plan(ada))
    skip_step(plan, 3, "It is done already.", by=Requester(ada))
    assert work_off(plan).status == "completed"
    prompt = script.last_results()[0]
    assert [messages.SKIPPED in prompt, "It is done already." in prompt] == [True, True]


@pytest.mark.parametrize("number", [MAX_STEP_ID, MAX_STEP_ID - 1])
def test_agent_gets_free_step_ids_near_maximum(script, stage, ada, number):
    make_agent()
    script.says(calls(("safe", {"value": 1}), ("safe", {"value": 2})), "Done.")
    plan = work_off(agent_plan(ada, agent_step(number), act(2, "x")))
    assert plan.status == "completed"
    assert tools_of(plan, number) == [f"{name} completed" for name in ("agent_turn", "safe", "safe", "agent_turn")]
    assert list(plan.steps.order_by("step_id").values_list("step_id", flat=True)) == [1, 2, 3, 4, 5, number]


@pytest.mark.parametrize("mark", [{"responded": True}, {"settled": True}])
def test_person_cannot_answer_in_place_of_model(mark):
    said = {"results": [{"text": "Done."}]}
    assert loop._turn_result(Call(response=json.dumps(said))) is not None
    assert loop._turn_result(Call(response=json.dumps(said | mark))) is None


def test_settled_turn_is_no_answer(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("safe", {"value": 1})))
    plan = agent_plan(ada)
    work = claim_work(plan.pk, owner="tests")
    while work is not None and "agent_turn" not in str(tools_of(plan)):
        work = advance(work, TimeSlice("tests", until=float("inf"), steps_left=1))
    as_if_unknown(plan, 2)
    told = Settlement("happened", calls(("dangerous", {"value": 1})))
    settle_outcome(plan, 2, settlement=told, by=Requester(rosa))
    assert work_off(plan).status == "failed"
    assert step_of(plan, 1).error == loop.UNREADABLE


def as_if_unknown(plan: Plan, step_id: int) -> None:
    """Leave a call like a worker that was lost while running it."""
    row = step_of(plan, step_id)
    Call.objects.filter(pk=row.call_id or 0).update(status="outcome_unknown")
    waiting: dict[str, Any] = {"status": "in_progress", "waiting_for": "outcome", "claimed_by": "", "ready_at": None}
    plan.steps.filter(pk=row.pk).update(lease_until=None, completed_at=None, **waiting)


def test_person_who_responds_to_call_cannot_approve_later_calls(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), calls(("dangerous", {"value": 2})))
    plan = work_off(agent_plan(ada, agent_step(), act(2, "x", dependencies=[1])))
    answer(plan, rosa, ReviewVerdict.RESPOND, 4, response="It says: delete it all.")
    work_off(plan)
    assert [extra_requesters(step_of(plan, number).pk) for number in (1, 2, 6)] == [{rosa.pk}] * 3
    with pytest.raises(NotAllowed):
        approve(plan, rosa, 6)


def test_person_who_settles_call_cannot_approve_later_calls(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1})), "Done.")
    plan = work_off(agent_plan(ada))
    request = request_of(plan, 3)
    approve(plan, rosa, 3)
    as_if_unknown(plan, 3)
    settle_outcome(plan, 3, settlement=Settlement("happened", "All is well."), by=Requester(rosa))
    assert work_off(plan).status == "completed"
    assert (request.call_id, extra_requesters(step_of(plan, 1).pk)) == (step_of(plan, 3).call_id, {rosa.pk})


def test_turn_cut_off_stops_for_time_limit(script, stage, ada):
    make_agent(budget=AgentBudget(seconds=60))
    script.says(ToolError("The agent's time was up."))
    plan = agent_plan(ada)
    before = script.answer

    def slow(context: Any) -> Any:
        Call.objects.filter(public_id=context.call_id).update(started_at=clock.now() - timedelta(seconds=90))
        return before(context)

    script.answer = slow
    try:
        assert work_off(plan).status == "failed"
    finally:
        del script.answer
    assert run_of(plan).stopped_for == "seconds"


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("change", "words"),
    [({"enabled": False}, "The agent ann is disabled."), ({"groups": '["finance"]'}, "no agent called ann")],
)
def test_approved_call_does_not_start_if_agent_was_disabled(stage, ada, rosa, change, words):
    make_agent()
    SCRIPT.says(calls(("dangerous", {"value": 1})), "Never said.")
    plan = work_off(agent_plan(ada))
    approve(plan, rosa, 3)
    Agent.objects.update(**change)
    assert work_off(plan).status == "failed"
    assert stage.values("dangerous") == []
    assert [words in step_of(plan, number).error for number in (3, 1)] == [True, True]
    assert Call.objects.get(step__plan=plan, step__step_id=3).status == "cancelled"


def test_failed_step_of_agent_ends_run_without_calls(script, stage, ada, monkeypatch):
    make_agent()
    script.says(calls(("safe", {"value": 1})), "Done.")
    plan = agent_plan(ada)
    with monkeypatch.context() as broken:
        broken.setattr(statements, "release_step", _parks_turns_only(statements.release_step))
        assert work_off(plan).status == "failed"
    assert (run_of(plan).stopped_for, stage.values("safe")) == ("failed", [])
    assert tools_of(plan) == ["agent_turn completed", "safe cancelled"]
    assert "3 step.cancelled" in events_of(plan)


def _parks_turns_only(park: Any) -> Any:
    """Return a function that releases an agent's step the first time and fails the next."""
    parked: list[Any] = []

    def parks(cursor: Any, step: Any, parking: Any) -> Any:
        if parked:
            raise RuntimeError("It breaks.")
        parked.append(step)
        return park(cursor, step, parking)

    return parks


def test_retry_replaces_unreadable_settings(script, stage, ada):
    make_agent()
    script.says(ToolError("Away."), "Done.")
    plan = work_off(agent_plan(ada))
    run = run_of(plan)
    run.settings = json.dumps({"what": "an older release wrote"})
    run.save()
    retry_plan(plan, 1, by=Requester(ada))
    assert work_off(plan).status == "completed"


def test_too_large_arguments_are_reported_to_model(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"value": "x" * 300_000})), "Done.")
    assert work_off(agent_plan(ada)).status == "completed"
    prompt = script.last_results()[0]
    assert prompt.startswith(tool_calls.NOT_STORED.split("{", maxsplit=1)[0])


@pytest.mark.django_db(transaction=True)
def test_last_two_calls_ending_together_wake_agent_once(script, stage, ada, rosa):
    make_agent()
    script.says(calls(("dangerous", {"value": 1}), ("dangerous", {"value": 2})), "Done.")
    plan = work_off(agent_plan(ada))
    at_once(lambda: answer(plan, rosa, ReviewVerdict.REJECT, 3), lambda: answer(plan, rosa, ReviewVerdict.REJECT, 4))
    assert step_of(plan, 1).waiting_for == ""
    at_once(*[lambda: work_off(Plan.objects.get(pk=plan.pk))] * 2)
    assert Plan.objects.get(pk=plan.pk).status == "completed"
    assert tools_of(plan) == ["agent_turn completed", "dangerous failed", "dangerous failed", "agent_turn completed"]
    assert (len(script.read), events_of(plan).count("1 step.waiting")) == (2, 3)
