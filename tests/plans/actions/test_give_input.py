"""Tests of new arguments for calls that reviewers sent back."""

from datetime import timedelta

import pytest
from django.db.models import F

from approvals.models import ApprovalRequest
from catalog.core import clock
from catalog.errors import Conflict
from plans.actions.give_input import give_input
from plans.models import Plan
from plans.store.requesters import Requester
from plans.web.plan.overview import load_overview
from plans.web.plan.timeline import interval_events, step_intervals
from tests.approvals.factories import send_back
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step_of, work_off, write_step
from tests.invariants import assert_invariants
from tests.pages import Pages
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada, rosa) -> Plan:
    """A plan whose dangerous step was sent back."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    send_back(plan, rosa)
    return plan


def give(plan: Plan, by, value) -> Plan:
    give_input(plan, None, {"value": value}, by=Requester(by))
    return work_off(plan)


def test_step_requests_approval_again_with_new_arguments(plan, stage, ada, rosa):
    old = request_of(plan)
    assert give(plan, ada, "less").status == "in_progress"
    old.refresh_from_db()
    new = request_of(plan)
    assert (old.status, old.superseded_by, new.status) == ("superseded", new, "pending")
    assert (new.call.replaces, call_of(plan).arguments_json) == (old.call, {"value": "less"})
    assert "1 input.received" in events_of(plan)
    approve(plan, rosa)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["less"])
    assert_invariants()


def let_minutes_pass(plan: Plan, minutes: int = 20) -> None:
    """Move all stored times back by this many minutes."""
    ago = timedelta(minutes=minutes)
    ApprovalRequest.objects.update(opened_at=F("opened_at") - ago)
    plan.steps.update(started_at=F("started_at") - ago)
    plan.events.update(at=F("at") - ago)
    Plan.objects.update(started_at=F("started_at") - ago)


def assert_waited(plan: Plan, minutes: int) -> None:
    """Assert that the timeline shows this long wait for people and almost no work."""
    plan = Plan.objects.get(pk=plan.pk)
    assert load_overview(plan).working_ms < 60_000
    waits = [
        each for each in step_intervals([step_of(plan)], {1: list(interval_events(plan))}) if each.kind == "waiting"
    ]
    assert [round(((each.end or clock.now()) - each.start) / timedelta(minutes=1)) for each in waits] == [minutes]


def test_review_before_sending_back_counts_as_wait(plan):
    let_minutes_pass(plan)
    assert_waited(plan, 20)
    assert "human" in [stroke.look for stroke in load_overview(plan).steps[0].timeline_bars]


def test_wait_for_new_arguments_counts_as_wait(plan, ada, rosa):
    let_minutes_pass(plan)
    give(plan, ada, "less")
    let_minutes_pass(plan)
    send_back(plan, rosa)
    let_minutes_pass(plan)
    assert_waited(plan, 60)
    give(plan, ada, "lesser")
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert_waited(plan, 60)


def test_given_arguments_stay_literal(plan, stage, ada, rosa):
    give(plan, ada, "${nothing}")
    approve(plan, rosa)
    work_off(plan)
    assert stage.values("dangerous") == ["${nothing}"]
    assert step_of(plan).parameters_json == {"value": "x"}


def test_person_who_gives_arguments_cannot_approve(plan, ada, admin):
    give(plan, admin, "less")
    assert {each.user_id for each in request_of(plan).call.requesters.all()} == {ada.pk, admin.pk}


def test_only_waiting_step_accepts_input(plan, ada):
    give(plan, ada, "less")
    with pytest.raises(Conflict):
        give(plan, ada, "lesser")


def test_input_over_rest(plan, ada, ben):
    path = f"plans/{plan.public_id}/input/"
    assert wrong_paths(Rest(ada).post(path, {"step_id": 1})) == ["arguments"]
    assert Rest(ada).post(path, {"step_id": 2, "arguments": {}}).status_code == 404
    assert wrong_paths(Rest(ada).post(path, {"arguments": {"valu": 1}})) == ["valu"]
    assert Rest(ben).post(path, {"arguments": {"value": 1}}).status_code == 403
    answer = Rest(ada).post(path, {"arguments": {"value": 1}})
    assert (answer.status_code, answer.json()["steps"][0]["waiting_for"]) == (200, None)
    assert Rest(ada).post(path, {"arguments": {"value": 1}}).status_code == 409


def test_sent_back_call_of_agent_fails_and_is_replaced(catalog, workspace, ada, rosa):
    client = agent(ada)
    body = {"tool": "write_file", "arguments": {"path": "note.txt", "content": "much"}, "wait_seconds": 0}
    first = client.post("calls/", body).json()
    send_back(Plan.objects.get(public_id=first["plan"]), rosa)
    document = client.get(f"calls/{first['id']}/").json()
    assert (document["status"], "Smaller, please." in document["result"]["error"]) == ("failed", True)
    second = client.post("calls/", body | {"replaces": first["id"]})
    assert (second.status_code, second.json()["replaces"]) == (201, first["id"])
    old, new = ApprovalRequest.objects.order_by("pk")
    assert (old.status, old.superseded_by, new.status) == ("superseded", new, "pending")
    assert client.get(f"approvals/{old.public_id}/").json()["superseded_by"] == new.public_id
    assert client.post("calls/", body | {"replaces": first["id"]}).status_code == 409
    assert_invariants()


def test_only_own_failed_call_of_same_tool_can_be_replaced(catalog, workspace, ada, ben):
    body = {"tool": "write_file", "arguments": {"path": "note.txt", "content": "much"}, "wait_seconds": 0}
    first = Rest(ada).post("calls/", body).json()["id"]
    assert Rest(ada).post("calls/", body | {"replaces": first}).status_code == 409  # it waits
    other = {"tool": "render_text", "arguments": {"template": "x", "values": {}}, "replaces": first}
    assert wrong_paths(Rest(ada).post("calls/", other)) == ["replaces"]
    assert wrong_paths(Rest(ben).post("calls/", body | {"replaces": first})) == ["replaces"]


def test_sent_back_step_of_agents_plan_does_not_wait(catalog, workspace, ada, rosa):
    client = agent(ada, "plans:write", "plans:read", "calls:create")
    made = client.post("plans/", {"goal": "Write", "steps": [write_step(1)]}).json()
    plan = work_off(Plan.objects.get(public_id=made["id"]))
    send_back(plan, rosa)
    plan.refresh_from_db()
    assert (plan.status, "Smaller, please." in step_of(plan).error) == ("failed", True)


def test_page_shows_requested_change_and_form(plan, ada):
    pages = Pages(ada)
    address = f"/plans/{plan.public_id}/steps/1/input/"
    pages.open(f"/plans/{plan.public_id}/?step=1")
    assert address in pages.html
    assert "Smaller, please." in pages.open(address)


def test_page_checks_and_submits_arguments(plan, ada, rosa):
    address, pages = f"/plans/{plan.public_id}/steps/1/input/", Pages(ada)
    pages.open(address)
    fields = {"mode": "json", "json": '{"valu": 1}'}
    assert "valu" in pages.send(address, fields | {"do": "send"}, status=422)
    fields = {"mode": "json", "json": '{"value": "less"}'}
    pages.send(address, fields | {"do": "check"})
    assert step_of(plan).waiting_for == "input"
    pages.send(address, fields | {"do": "send"})
    assert step_of(plan).waiting_for == ""
    work_off(plan)
    assert call_of(plan).arguments_json == {"value": "less"}


def test_only_owner_sees_form(plan, vera, admin):
    address = f"/plans/{plan.public_id}/steps/1/input/"
    others = Pages(vera)
    others.open(address, status=403)
    assert 'name="mode"' not in others.html
    assert "Smaller, please." in Pages(admin).open(address)
