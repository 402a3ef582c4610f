"""Tests of cloning plans, including private values."""

from datetime import timedelta

import pytest

from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import ToolError
from plans.actions.change import change_plan, read_plan_change
from plans.actions.clone import clone_links, clone_plan, cloned_document
from plans.actions.create import PlanProblems, start_plan
from plans.engine.cancellation import end_overdue_plans
from plans.models import Plan
from plans.store.plan_documents import step_documents
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from tests.builders import act, call_of, events_of, make_plan, step_of, work_off
from tests.conftest import person
from tests.plans.factories import act_raising
from tests.rest import Rest, agent

SECRET = "jo@example.org"


def clone(plan: Plan, by=None, **how: bool) -> Plan:
    """Clone a plan for its author, or for `by`."""
    return clone_plan(plan, by=Requester(by or plan.author), **how)


def test_clone_equals_submitted_plan(stage, ada, ben):
    stage.acts["keeping"] = act_raising(ToolError("no"))
    steps = (
        act(1, "${who} $${x}", expected_key="x", output_path=["results"], done_check="x == 1"),
        act(4, tool="keeping", dependencies=[1]),
    )
    fields = {"owner": "planner", "can_modify": False, "deadline_seconds": 600, "memory": {"who": "you"}}
    plan = work_off(make_plan(ada, *steps, **fields))
    made = clone(plan, ben)
    assert (made.author, made.status, made.goal, made.owner) == (ben, "pending", "Try it", "planner")
    assert (made.can_modify, made.deadline_seconds) == (False, 600)
    assert step_documents(made) == step_documents(plan)
    assert memory_of(made)["values"] == {"who": "you"}
    assert (events_of(made), made.events.get().data_json) == (["plan.created"], {"cloned_from": plan.public_id})
    assert not made.steps.exclude(status="pending", call=None, error="", ready_at=None).exists()


def test_clone_can_start_immediately(stage, ada):
    plan = work_off(make_plan(ada, act(1, "a")))
    assert work_off(clone(plan, start=True)).status == "completed"
    assert stage.values("safe") == ["a", "a"]


def test_initial_memory_is_cloned_without_values_of_steps(stage, ada):
    steps = (
        act(1, "new", "keeping"),
        act(2, "b", expected_key="seen", output_path=["results", "0"]),
        act(3, expected_key="z"),
    )
    plan = work_off(make_plan(ada, *steps, memory={"kept": "old", "seen": 1, "other": [2]}))
    assert memory_of(plan)["values"]["seen"] == "b"
    assert memory_of(clone(plan))["values"] == {"kept": "old", "seen": 1, "other": [2]}
    assert {item["type"] for item in memory_of(plan)["items"]} == {"value"}


def test_added_step_may_overwrite_initial_value_in_clone(stage, ada):
    plan = make_plan(ada, act(1), start=False, memory={"x": "given"})
    change_plan(plan, read_plan_change({"add": [act(2, "b", expected_key="x")]}), by=Requester(ada))
    start_plan(plan, by=Requester(ada))
    made = clone(work_off(plan))
    assert memory_of(made)["values"] == {"x": "given"}
    assert list(step_documents(made)) == [1, 2]


def test_deadline_of_clone_counts_from_its_start(stage, ada):
    plan = make_plan(ada, act(1, tool="dangerous"), start=False, deadline_seconds=600)
    Plan.objects.filter(pk=plan.pk).update(deadline_at=clock.now() - timedelta(days=1))
    start_plan(plan, by=Requester(ada))
    assert (end_overdue_plans(clock.now()), work_off(plan).status) == (0, "in_progress")
    Plan.objects.filter(pk=plan.pk).update(deadline_seconds=None, deadline_at=plan.created_at + timedelta(seconds=90))
    plan.refresh_from_db()
    assert cloned_document(plan)["deadline_seconds"] == 90


def test_clone_of_direct_call_keeps_arguments_literal(stage, ada):
    body = {"tool": "safe", "arguments": {"value": ["${x}", {"y": "$${"}]}}
    alone = Plan.objects.get(public_id=Rest(ada).post("calls/", body).json()["plan"])
    joined = make_plan(ada, act(1, tool="dangerous"))
    Rest(ada).post("calls/", {**body, "plan": joined.public_id})
    for plan, number in ((work_off(alone), 1), (work_off(joined), 2)):
        made = work_off(clone(plan, start=True))
        assert made.kind == "plan"
        assert call_of(made, number).arguments_json == body["arguments"]


def test_clone_is_validated_like_new_plan(stage, ada):
    plan = work_off(make_plan(ada, act(1), act(2)))
    plan.steps.filter(step_id=2).update(tool="gone")
    with pytest.raises(PlanProblems) as refused:
        clone(plan)
    assert [problem.path for problem in refused.value.problems] == ["steps.1.tool"]
    answer = Rest(ada).post(f"plans/{plan.public_id}/clone/")
    assert (answer.status_code, Plan.objects.count()) == (422, 1)


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_cloning_does_not_reveal_private_values(stage, ada, role):
    called = work_off(make_plan(ada, act(1, SECRET, "private")))
    given = make_plan(ada, act(1, tool="private", expected_key="x", done_check="x"), memory={"x": SECRET}, start=False)
    given.steps.update(parameters="{}")
    for plan in (called, given):
        with pytest.raises(NotAllowed):
            clone(plan, person(f"{role}{plan.pk}", role))
    assert Plan.objects.count() == 2


def test_viewers_of_private_values_can_clone_them(stage, ada, admin):
    plan = work_off(make_plan(ada, act(1, SECRET, "private")))
    assert [step_documents(clone(plan, who)) == step_documents(plan) for who in (ada, admin)] == [True, True]


def test_clone_over_rest(stage, ada, ben, vera):
    plan = work_off(make_plan(ada, act(1)))
    path = f"plans/{plan.public_id}/clone/"
    client = Rest(ben)
    answer = client.post(path, {"start": True}, key="k")
    made = answer.json()
    assert (answer.status_code, made["requested_by"], made["status"]) == (201, "ben", "in_progress")
    assert client.post(path, {"start": True}, key="k").json()["id"] == made["id"]
    assert (made["cloned_from"], made["clones"]) == (plan.public_id, [])
    assert Rest(ada).get(f"plans/{plan.public_id}/").json()["clones"] == [made["id"]]
    assert Rest(vera).post(path).status_code == 403
    assert agent(ada, "plans:read", "plans:write").post(path).status_code == 404
    assert [Rest(ben).post(path, body).status_code for body in ({"start": 1}, {"goal": "x"})] == [422, 422]
    assert Plan.objects.count() == 2


def test_agents_clone_belongs_to_agent(stage, ada):
    client = agent(ada, "plans:read", "plans:write")
    first = client.post("plans/", {"goal": "Try", "steps": [act(1)], "start": False}).json()["id"]
    second = client.post(f"plans/{first}/clone/").json()
    assert second["cloned_from"] == first
    Plan.objects.filter(public_id=first).update(token=None)
    assert client.get(f"plans/{second['id']}/").json()["cloned_from"] is None
    assert clone_links(Plan.objects.get(public_id=first), ada).clones == [second["id"]]


def test_clone_of_retried_direct_call_keeps_arguments_literal(stage, ada):
    joined = make_plan(ada, act(1, tool="dangerous"))
    Rest(ada).post("calls/", {"tool": "safe", "arguments": {"value": "${x}"}, "plan": joined.public_id})
    work_off(joined)
    call = call_of(joined, 2)
    joined.steps.filter(step_id=2).update(call=None, retry_of=call)
    assert cloned_document(joined)["steps"][1]["parameters"] == {"value": "$${x}"}
    assert step_of(joined, 2).retry_of == call
