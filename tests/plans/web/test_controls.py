"""Tests of pausing, resuming and cancelling on the plan's page and over REST."""

import pytest
from django.contrib.auth.models import User

from catalog.models import Call
from plans.actions.control import pause_plan
from plans.engine import loop
from plans.models import Plan
from plans.store.requesters import Requester
from plans.web.fragments import plan_source
from tests.builders import act, approve, call_of, make_plan, work_off
from tests.pages import Pages
from tests.rest import Rest, agent
from tests.tools_for_tests import Stage

pytestmark = pytest.mark.usefixtures("workspace")


@pytest.fixture
def held(stage: Stage, ada: User) -> Plan:
    """A plan that waits for people."""
    return work_off(make_plan(ada, act(1, "x", tool="dangerous"), goal="Hold it"))


def at(plan: Plan, viewer: User) -> Pages:
    """Open the plan's page as this person."""
    pages = Pages(viewer)
    pages.open(path_of(plan))
    return pages


def path_of(plan: Plan, more: str = "") -> str:
    """Return the URL of a plan, or of a path below it."""
    return f"/plans/{plan.public_id}/{more}"


def test_owner_pauses_and_resumes_plan(held, ada):
    pages = at(held, ada)
    assert 'id="pause"' in pages.html and 'id="resume"' not in pages.html
    paused = pages.send(path_of(held, "pause/"))
    toast = pages.html.partition('id="toasts"')[2].partition("<main")[0]
    assert path_of(held, "resume/") in toast
    assert "Paused" in paused and "Waiting for approval" in paused
    assert 'id="pause"' not in pages.html and 'id="resume"' in pages.html
    pages.send(path_of(held, "resume/"))
    assert 'id="pause"' in pages.html and 'id="resume"' not in pages.html


def test_approved_call_of_paused_plan_is_shown_as_paused(held, ada, rosa):
    pause_plan(held, by=Requester(ada))
    approve(held, rosa)
    pages = Pages(ada)
    text = pages.open(path_of(held))
    assert "Paused" in text and "Waiting for approval" not in text and "Running" not in text.partition("Steps")[2]
    assert "data-after-resume" in pages.html
    assert "Waiting for approval" not in Pages(ada).open("/plans/").partition("Results")[2]


def test_only_owner_or_administrator_resumes(held, ada, ben, admin):
    pause_plan(held, by=Requester(ada))
    others = at(held, ben)
    assert 'id="resume"' not in others.html
    others.send(path_of(held, "resume/"), status=403)
    assert Plan.objects.get().paused_at
    at(held, admin).send(path_of(held, "resume/"))
    assert not Plan.objects.get().paused_at


def test_late_control_shows_current_plan(held, ada):
    pages = at(held, ada)
    pages.send(path_of(held, "resume/"), status=409)
    assert 'role="alert"' in pages.html and 'id="pause"' in pages.html
    pages.send(path_of(held, "pause/"))
    pages.send(path_of(held, "pause/"), status=409)
    assert 'role="alert"' in pages.html and 'id="resume"' in pages.html


def test_paused_plan_is_marked_in_lists(held, ada):
    pause_plan(held, by=Requester(ada))
    pages = Pages(ada)
    rows = pages.open("/plans/?status=paused").partition("Results")[2]
    assert "Hold it" in rows and "Paused" in rows and "Waiting for approval" in rows
    assert "Hold it , Paused" in pages.open("/tools/")
    make_plan(ada, act(1), goal="Go on")
    assert "Go on" not in pages.open("/plans/?status=paused").partition("Results")[2]


def test_pause_is_sent_to_other_browsers(held, ada):
    subject = plan_source(held.public_id)
    before = subject.draw().fragments
    pause_plan(held, by=Requester(ada))
    after = subject.draw()
    assert "Paused" in after.fragments["standing"] and after.says == "Plan: Paused"
    assert before["look-controls"] != after.fragments["look-controls"]


@pytest.mark.parametrize("runs", [True, False])
def test_cancelling_needs_confirmation(stage, ada, runs):
    plan = make_plan(ada, act(1))
    if runs:
        loop.claim_work(plan.pk, owner="someone")
    pages = at(plan, ada)
    pages.send(path_of(plan, "cancel/"))
    assert pages.field("confirmed") == "1"
    assert Plan.objects.get(pk=plan.pk).status == "in_progress"
    pages.send(path_of(plan, "cancel/"), {"confirmed": "1"})
    assert Plan.objects.get(pk=plan.pk).status == "cancelled"


def test_confirmation_mentions_approved_call(held, ada, rosa):
    approve(held, rosa)
    pages = at(held, ada)
    pages.send(path_of(held, "cancel/"))
    assert pages.field("confirmed") == "1"
    assert Plan.objects.get(pk=held.pk).status == "in_progress"


def test_unauthorized_cancel_is_refused_without_confirmation(held, ben, rosa):
    approve(held, rosa)
    at(held, ben).send(path_of(held, "cancel/"), status=403)
    assert Plan.objects.get().status == "in_progress"


def left_running(plan: Plan, **more: object) -> None:
    """Mark the plan's call as one whose handler could not be stopped."""
    Call.objects.filter(pk=call_of(plan).pk).update(left_running_at=call_of(plan).finished_at, **more)


def test_running_handler_of_earlier_attempt_is_named(stage, ada):
    plan = work_off(make_plan(ada, act(1)))
    Call.objects.filter(pk=call_of(plan).pk).update(left_running_at=plan.created_at)
    pages = Pages(ada)
    pages.open(path_of(plan))
    assert 'id="left-running" data-earlier' in pages.html


def test_running_handler_is_named(stage, ada):
    plan = work_off(make_plan(ada, act(1)))
    left_running(plan)
    pages = Pages(ada)
    pages.open(path_of(plan))
    assert 'class="note warn" id="left-running">' in pages.html
    step = Rest(ada).get(f"plans/{plan.public_id}/").json()["steps"][0]
    assert step["left_running"]["came_back_at"] is None and step["left_running"]["left_running_at"]
    left_running(plan, came_back_at=plan.created_at)
    pages.open(path_of(plan))
    assert 'class="note" id="left-running"' in pages.html
    call = Rest(ada).get(f"calls/{call_of(plan).public_id}/").json()
    assert call["left_running"]["came_back_at"] is not None


def test_pause_and_resume_over_rest(held, ada):
    rest, path = Rest(ada), f"plans/{held.public_id}"
    paused = rest.post(f"{path}/pause/")
    assert (paused.status_code, paused.json()["paused_by"], paused.json()["status"]) == (200, "ada", "in_progress")
    assert paused.json()["paused_at"].endswith("Z")
    assert rest.post(f"{path}/pause/").status_code == 409
    assert rest.post(f"{path}/resume/").json()["paused_at"] is None
    assert rest.post(f"{path}/resume/").status_code == 409
    assert [each["paused_at"] for each in rest.get("plans/").json()["results"]] == [None]


def test_permissions_to_pause_over_rest(held, ada, ben, vera, admin):
    path = f"plans/{held.public_id}/pause/"
    assert [Rest(each).post(path).status_code for each in (ben, vera)] == [403, 403]
    assert agent(ada, "plans:write", "plans:read").post(path).status_code == 404
    assert Rest(admin).post(path).status_code == 200
