"""REST endpoints of plans."""

import json
from typing import Any

import pytest

from catalog.core import clock
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call, ToolVersion
from plans.models import Plan, Step
from plans.web.plan.overview import load_overview
from plans.web.plan.step_detail import load_step_card
from tests.builders import make_plan, step, write_step
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")


def document(*steps, **fields):
    """Return the document of a plan that does not start by itself."""
    return {"goal": "Try it", "steps": list(steps) or [step(1)], "start": False, **fields}


def test_a_plan_is_stored_with_its_steps(ada):
    steps = [step(1, expected_key="greeting"), write_step(2, dependencies=[1], output_path=["path"])]
    response = Rest(ada).post("plans/", document(*steps, owner="planner", memory={"who": "you"}))
    plan = response.json()

    assert (response.status_code, plan["status"], plan["kind"]) == (201, "pending", "plan")
    assert (plan["owner"], plan["requested_by"], plan["can_modify"]) == ("planner", "ada", True)
    assert plan["counts"]["steps"] == plan["counts"]["pending"] == 2
    assert plan["created_at"].endswith("Z")
    first, second = plan["steps"]
    assert (first["expected_key"], first["agent"], first["waiting_for"]) == ("greeting", None, None)
    assert (second["dependencies"], second["output_path"], second["call"]) == ([1], ["path"], None)


def test_a_plan_starts_by_default(ada):
    plan = Rest(ada).post("plans/", {"goal": "Go", "steps": [step(1)]}).json()

    assert plan["status"] == "in_progress"


BAD_PLANS: list[tuple[dict[str, Any], str]] = [
    ({"goal": ""}, "goal"),
    ({"goal": "a\u0000b"}, "goal"),
    ({"colour": "red"}, "colour"),
    ({"steps": []}, "steps"),
    ({"steps": [step(1, status="completed")]}, "steps.0.status"),
    ({"steps": [step(1, "no_such_tool")]}, "steps.0.tool"),
    ({"steps": [step(1), step(1)]}, "steps.1.step_id"),
    ({"steps": [step(1, dependencies=[2])]}, "steps.0.dependencies.0"),
    ({"steps": [step(1, dependencies=[2]), step(2, dependencies=[1])]}, "steps.0.dependencies"),
    ({"steps": [step(1, "write_file", parameters={"path": "a"})]}, "steps.0.parameters.content"),
    ({"steps": [step(1, done_check="import os")]}, "steps.0.done_check"),
    ({"steps": [step(number) for number in range(1, 502)]}, "steps"),
    ({"steps": [write_step(1, content="x" * 262_145)]}, "steps.0.parameters"),
    ({"memory": {"big": "x" * 262_145}}, "memory"),
]


def test_an_invalid_plan_is_422_and_not_stored(ada):
    rest = Rest(ada)
    answers = [(path, rest.post("plans/", document(**change))) for change, path in BAD_PLANS]
    assert [(path, answer.content) for path, answer in answers if path not in wrong_paths(answer)] == []
    assert {answer.status_code for _, answer in answers} == {422}
    assert not Plan.objects.exists()


def test_a_body_that_is_no_plan_is_422(ada):
    rest = Rest(ada)
    bodies: tuple[Any, ...] = ([], 1, None, "text", {})
    for body in bodies:
        answer = rest.post("plans/", json.dumps(body))
        assert (answer.status_code, wrong_paths(answer)[0]) == (422, "goal" if body == {} else ""), body


def test_a_check_lists_all_problems_with_lines_and_stores_nothing(ada):
    text = '{\n "goal": "Try",\n "steps": [\n  {"step_id": 1, "description": "x",\n   "tool": "write_fil"}]}'
    answer = Rest(ada).post("plans/check/", text).json()

    assert answer["valid"] is False
    (problem,) = [each for each in answer["problems"] if each["severity"] == "error"]
    assert (problem["path"], problem["line"], problem["code"]) == ("steps.0.tool", 5, "unknown_tool")
    assert "write_file" in problem["suggestion"]
    assert not Plan.objects.exists()


def test_a_plan_with_warnings_only_is_valid(ada):
    answer = Rest(ada).post("plans/check/", document(write_step(1))).json()

    assert answer["valid"] is True
    assert "waits_for_approval" in {problem["code"] for problem in answer["problems"]}


def test_warnings_use_the_level_set_by_an_administrator(ada, admin):
    tool = step(1)["tool"]
    apply_overrides(tool, {"safety_level": "dangerous"}, by=admin)
    (problem,) = [
        each for each in Rest(ada).post("plans/check/", document()).json()["problems"] if each["severity"] == "warning"
    ]

    assert (problem["code"], problem["path"]) == ("waits_for_approval", "steps.0.tool")
    card = load_step_card(load_overview(make_plan(ada, step(1), start=False)), 1)
    assert card is not None and card.level == "dangerous"


def test_lists_show_plans_newest_first_by_kind_and_status(ada):
    first, second = make_plan(ada, step(1)), make_plan(ada, step(1), start=False)
    Plan.objects.create(goal="A call", kind="call", author=ada, created_at=first.created_at)
    rest = Rest(ada)

    def ids(**query):
        return [plan["id"] for plan in rest.get("plans/", **query).json()["results"]]

    assert ids() == [second.public_id, first.public_id]
    assert ids(status="pending") == [second.public_id]
    assert len(ids(kind="call")) == 1
    assert wrong_paths(rest.get("plans/", kind="poem")) == ["kind"]


def test_queries_of_a_list_do_not_grow_with_its_length(ada, django_assert_num_queries):
    rest = Rest(ada)
    rest.get("plans/")
    for plans in (1, 3):
        for _ in range(plans):
            make_plan(ada, step(1), step(2), start=False)
        with django_assert_num_queries(3):  # token, plans, their counts
            rest.get("plans/")


def test_queries_of_a_plan_do_not_grow_with_its_steps(ada, django_assert_num_queries):
    rest = Rest(ada)
    for count in (1, 20):
        plan = make_plan(ada, *(step(number) for number in range(1, count + 1)), start=False)
        rest.get(f"plans/{plan.public_id}/")
        with django_assert_num_queries(6):  # token, plan, counts, its kin, steps, their dependencies
            rest.get(f"plans/{plan.public_id}/")


def test_plans_of_others_are_404(ada, ben, vera, django_user_model):
    stranger = django_user_model.objects.create_user("stranger")
    plan = make_plan(ada, step(1), start=False).public_id

    assert Rest(vera).get(f"plans/{plan}/").status_code == 200
    for outsider in (agent(ada), agent(ben), Rest(stranger)):
        for path in ("", "memory/", "events/"):
            assert outsider.get(f"plans/{plan}/{path}").status_code == 404
        assert outsider.get("plans/").json()["results"] == []
    for path in ("start/", "cancel/", "steps/1/outcome/"):
        assert agent(ben, "plans:write").post(f"plans/{plan}/{path}", {}).status_code in (404, 422)


def test_only_its_owner_or_an_administrator_controls_a_plan(ada, ben, admin):
    plan = make_plan(ada, step(1), start=False).public_id

    assert Rest(ben).post(f"plans/{plan}/start/").status_code == 403
    assert Rest(admin).post(f"plans/{plan}/start/").json()["status"] == "in_progress"
    assert Rest(ada).post(f"plans/{plan}/cancel/").json()["status"] == "cancelled"


def test_an_action_in_the_wrong_state_is_409(ada):
    rest, plan = Rest(ada), make_plan(ada, step(1)).public_id

    assert rest.post(f"plans/{plan}/start/").status_code == 409
    assert rest.post(f"plans/{plan}/cancel/").status_code == 200
    assert rest.post(f"plans/{plan}/cancel/").status_code == 409
    assert wrong_paths(rest.post(f"plans/{plan}/cancel/", {"why": "x"})) == ["why"]


def test_events_are_numbered_and_can_be_continued(ada):
    rest, plan = Rest(ada), make_plan(ada, step(1)).public_id
    first = rest.get(f"plans/{plan}/events/", page_size=1).json()

    assert [(event["seq"], event["type"]) for event in first["results"]] == [(1, "plan.created")]
    assert set(first["results"][0]) == {"seq", "type", "at", "step_id", "data"}
    second = rest.client.get(first["next"], headers=rest.headers).json()
    assert [event["seq"] for event in second["results"]] == [2]
    assert rest.get(f"plans/{plan}/events/", after=99).json() == {"next": None, "previous": None, "results": []}


def test_memory_has_the_initial_values(ada):
    plan = make_plan(ada, step(1), start=False, memory={"who": ["you", None]}).public_id
    memory = Rest(ada).get(f"plans/{plan}/memory/").json()

    assert memory["values"] == {"who": ["you", None]}
    assert (memory["items"][0]["type"], memory["items"][0]["key"]) == ("value", "who")


SETTLEMENT = {"verdict": "did_not_happen", "comment": "The file is not there."}


def test_only_an_unknown_outcome_can_be_settled(ada):
    rest, plan = Rest(ada), make_plan(ada, step(1), start=False).public_id

    assert rest.post(f"plans/{plan}/steps/1/outcome/", SETTLEMENT).status_code == 409
    assert rest.post(f"plans/{plan}/steps/2/outcome/", SETTLEMENT).status_code == 404
    assert rest.post(f"plans/{plan}/steps/9999999999/outcome/", SETTLEMENT).status_code == 404
    assert wrong_paths(rest.post(f"plans/{plan}/steps/1/outcome/", {"verdict": "perhaps"})) == ["verdict", "comment"]


def test_an_agent_may_not_settle_an_outcome(ada):
    rest = agent(ada, "plans:write", "plans:read")
    plan = rest.post("plans/", document()).json()["id"]

    assert rest.post(f"plans/{plan}/steps/1/outcome/", SETTLEMENT).status_code == 403


def lose_its_call(plan):
    """Put the plan's only step where a lost worker leaves a dangerous call."""
    call = Call.objects.create(
        tool_name="write_file",
        version=ToolVersion.objects.get(tool__name="write_file"),
        arguments="{}",
        status="outcome_unknown",
        requested_by=plan.author,
        plan_ref=plan.public_id,
        step_ref="1",
        created_at=clock.now(),
    )
    Step.objects.filter(plan=plan).update(status="in_progress", waiting_for="outcome", call=call, ready_at=None)


def test_an_outcome_is_settled_by_its_owner(ada):
    rest, plan = Rest(ada), make_plan(ada, write_step(1))
    lose_its_call(plan)
    answer = rest.post(f"plans/{plan.public_id}/steps/1/outcome/", SETTLEMENT).json()

    assert answer["status"] == "failed"
    assert "The file is not there." in answer["steps"][0]["error"]
