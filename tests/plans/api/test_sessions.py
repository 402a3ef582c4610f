"""REST endpoints of sessions, and planning tools in named sessions."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from tests.builders import make_plan, step, work_off
from tests.conftest import person
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")
NIGHT = {"Toolgate-Session": "night"}
SETUP = {"tool": "planning_setup_plan", "arguments": {"objective": "Try it", "initial_steps": ["a", "b"]}}


@pytest.fixture
def nobody(db: None) -> User:
    """Someone without a role."""
    return person("nobody")


def called(rest: Rest, tool: str, session: str | None = "night", **arguments: Any) -> dict[str, Any]:
    """Call a planning tool in a session; return the call when it has ended."""
    body = {"tool": f"planning_{tool}", "arguments": arguments, "wait_seconds": 0}
    response = rest.post("calls/", body, **({"Toolgate-Session": session} if session is not None else {}))
    assert response.status_code == 201, response.json()
    work_off(Plan.objects.get(public_id=response.json()["plan"]))
    found: dict[str, Any] = rest.get(f"calls/{response.json()['id']}/").json()
    return found


def list_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return the list that a planning tool answered with."""
    found: dict[str, Any] = call["result"]["results"][0]
    return found


def test_an_agent_maintains_its_list_over_calls(ada):
    rest = agent(ada)
    called(rest, "setup_plan", objective="Resend the badge", initial_steps=["Find it"])
    called(rest, "add_step", steps=["Send it"])
    called(rest, "update_step", step_id=1, status="done")
    assert list_of(called(rest, "read_plan")) == {
        "objective": "Resend the badge",
        "status": "active",
        "steps": [
            {"step_id": 1, "title": "Find it", "status": "done"},
            {"step_id": 2, "title": "Send it", "status": "pending"},
        ],
    }


def test_a_refusal_is_a_failed_call_with_its_message(ada):
    call = called(agent(ada), "read_plan")
    assert (call["status"], call["result"]["success"]) == ("failed", False)
    assert call["result"]["error"]


@pytest.mark.parametrize(
    ("arguments", "paths", "detail"),
    [
        ({}, ["objective"], "Missing required field: 'objective'"),
        ({"objective": None}, ["objective"], "objective: value cannot be None"),
        ({"objective": "x", "notes": "y"}, ["notes"], "Extra keys not permitted: ['notes']"),
        ({"objective": "x", "initial_steps": [1, None]}, ["initial_steps.0", "initial_steps.1"], "expected text"),
    ],
)
def test_invalid_planning_arguments_are_422_and_not_stored(ada, arguments, paths, detail):
    response = agent(ada).post("calls/", {"tool": "planning_setup_plan", "arguments": arguments}, **NIGHT)
    assert (response.status_code, wrong_paths(response)) == (422, paths)
    assert detail in response.json()["errors"][0]["message"]
    assert not Plan.objects.exists()


def test_each_name_is_a_session_and_no_name_is_the_default(ada):
    rest = agent(ada)
    for name in ("night", "day", None):
        called(rest, "setup_plan", name, objective=f"In {name}")
    assert [list_of(called(rest, "read_plan", name))["objective"] for name in ("night", "day", None)] == [
        "In night",
        "In day",
        "In None",
    ]
    assert [each["name"] for each in rest.get("sessions/").json()["results"]] == ["", "day", "night"]


def test_a_session_has_its_list_and_calls(ada):
    rest = agent(ada)
    called(rest, "setup_plan", objective="Try it", initial_steps=["a", "b"])
    last = called(rest, "update_step", step_id=1, status="done")
    called(rest, "setup_plan", "other", objective="Not this one")
    listed = rest.get("sessions/").json()["results"][1]
    assert (listed["name"], listed["goal"], listed["status"], listed["requested_by"]) == (
        "night",
        "Try it",
        "in_progress",
        "ada",
    )
    body = rest.get(f"sessions/{listed['id']}/").json()
    assert {name: body[name] for name in ("id", "name", "goal", "status")} == {
        name: listed[name] for name in ("id", "name", "goal", "status")
    }
    assert [(step["step_id"], step["description"], step["status"]) for step in body["steps"]] == [
        (1, "a", "completed"),
        (2, "b", "pending"),
    ]
    assert [call["tool"] for call in body["calls"]] == ["planning_update_step", "planning_setup_plan"]
    assert (body["calls"][0]["id"], body["calls"][0]["plan"]) == (last["id"], last["plan"])


def test_a_session_is_found_by_any_plan_of_it(ada):
    rest = agent(ada)
    first = called(rest, "read_plan")
    nothing = rest.get(f"sessions/{first['plan']}/").json()
    assert (nothing["goal"], nothing["steps"], len(nothing["calls"])) == (None, [], 1)
    called(rest, "setup_plan", objective="Old")
    old = rest.get("sessions/").json()["results"][0]["id"]
    called(rest, "setup_plan", objective="New")
    new = rest.get("sessions/").json()["results"]
    assert [each["goal"] for each in new] == ["New"]
    for known in (old, first["plan"], new[0]["id"]):
        assert rest.get(f"sessions/{known}/").json()["id"] == new[0]["id"]


def test_the_list_of_sessions_comes_in_pages(ada):
    rest = agent(ada)
    for number in range(3):
        called(rest, "setup_plan", f"s{number}", objective="Try it")
    page = rest.get("sessions/", page_size=2).json()
    assert [each["name"] for each in page["results"]] == ["s2", "s1"]
    rest_of_it = rest.client.get(page["next"], headers=rest.headers).json()
    assert ([each["name"] for each in rest_of_it["results"]], rest_of_it["next"]) == (["s0"], None)
    assert rest.get("sessions/", status="completed").json()["results"] == []
    assert rest.get("sessions/", state="x").status_code == 422


def test_visibility_of_sessions(ada, ben, vera, nobody):
    mine, other = agent(ada), agent(ada)
    called(mine, "setup_plan", objective="Mine")
    called(agent(ben), "setup_plan", objective="Ben's")
    address = f"sessions/{mine.get('sessions/').json()['results'][0]['id']}/"
    assert [each["goal"] for each in mine.get("sessions/").json()["results"]] == ["Mine"]
    for stranger in (other, agent(ben), Rest(nobody)):
        assert stranger.get(address).status_code == 404
        assert "Mine" not in str(stranger.get("sessions/").json())
    assert len(Rest(vera).get("sessions/").json()["results"]) == 2
    assert Rest(vera).get(address).json()["goal"] == "Mine"
    assert Rest(None).get("sessions/").status_code == 401
    assert agent(ada, "calls:create").get("sessions/").status_code == 403


def test_only_planning_tools_change_a_list(ada):
    rest = Rest(ada)
    called(rest, "setup_plan", objective="Try it", initial_steps=["a"])
    plan = rest.get("sessions/").json()["results"][0]["id"]
    before = rest.get(f"plans/{plan}/").json()
    refused = [
        *(rest.post(f"plans/{plan}/{action}/") for action in ("start", "pause", "resume", "cancel", "retry")),
        rest.post(f"plans/{plan}/steps/1/skip/", {"reason": "No."}),
        rest.patch(f"plans/{plan}/", {"goal": "Other"}),
        rest.post("calls/", {"tool": "render_text", "arguments": {"template": "x", "values": {}}, "plan": plan}),
    ]
    assert [response.status_code for response in refused] == [409] * len(refused)
    assert rest.get(f"plans/{plan}/").json() == before


def test_a_list_is_a_plan_of_kind_session_and_in_no_list_of_plans(ada):
    rest = agent(ada)
    called(rest, "setup_plan", objective="Try it")
    assert rest.get("plans/").json()["results"] == []
    assert [plan["kind"] for plan in rest.get("plans/", kind="session").json()["results"]] == ["session"]


def test_the_planning_tools_are_in_the_catalog(ada):
    tools = agent(ada).get("tools/", category="planning").json()["results"]
    assert [tool["name"] for tool in tools] == [
        "planning_add_step",
        "planning_read_plan",
        "planning_setup_plan",
        "planning_update_step",
    ]


def test_session_without_a_list_is_listed_by_its_calls(ada, vera):
    first, second = agent(ada), agent(ada)
    called(first, "read_plan", "silent")
    called(second, "setup_plan", "planned", objective="Try it")
    called(second, "read_plan", "planned")
    make_plan(ada, step(1))
    rows = Rest(vera).get("sessions/").json()["results"]
    assert [(row["name"], row["goal"], row["status"], row["token_id"]) for row in rows] == [
        ("planned", "Try it", "in_progress", second.token.pk),
        ("silent", None, None, first.token.pk),
    ]
    silent = first.get(f"sessions/{rows[1]['id']}/").json()
    assert (silent["goal"], len(silent["calls"]), silent["token_id"]) == (None, 1, first.token.pk)
    assert [row["name"] for row in Rest(vera).get("sessions/", token=first.token.pk).json()["results"]] == ["silent"]
    assert [row["name"] for row in Rest(vera).get("sessions/", status="in_progress").json()["results"]] == ["planned"]


def test_personal_tokens_share_the_sessions_of_their_person(ada):
    first, second = Rest(ada), Rest(ada)
    called(first, "setup_plan", objective="Try it")
    called(second, "read_plan")
    assert [row["token_id"] for row in first.get("sessions/").json()["results"]] == [None]
    for rest in (first, second):
        assert [row["name"] for row in first.get("sessions/", token=rest.token.pk).json()["results"]] == ["night"]
    assert first.get("sessions/", token=agent(ada).token.pk).json()["results"] == []
