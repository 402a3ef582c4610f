"""Tests of what the page of a plan says about its waits."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from approvals.models import ApprovalRequest
from catalog.core import clock
from catalog.errors import UpstreamUnavailable
from plans.actions.control import pause_plan
from plans.models import Plan, Step
from plans.store.requesters import Requester
from plans.web.fragments import plan_source
from plans.web.plan.overview import load_overview
from plans.web.plan.waits import PlanWaits, WaitKind
from tests.approvals.factories import hand, set_rule
from tests.builders import act, approve, make_plan, reject, request_of, work_off
from tests.conftest import person
from tests.pages import compact
from tests.plans.factories import act_raising

pytestmark = pytest.mark.usefixtures("stage")


def waits_of(plan: Plan) -> PlanWaits:
    return load_overview(Plan.objects.get(pk=plan.pk)).waits


def gated(ada: User, *others: dict[str, Any]) -> Plan:
    """Return a plan whose first step waits for approval."""
    return work_off(make_plan(ada, act(1, "x", "dangerous"), *others))


def page(plan: Plan, viewer: User, step: int = 1) -> str:
    client = Client()
    client.force_login(viewer)
    response = client.get(f"/plans/{plan.public_id}/?step={step}")
    assert response.status_code == 200
    return response.content.decode()


def sentence(plan: Plan, viewer: User) -> str:
    """Return the sentence of the plan's head as text."""
    part = page(plan, viewer).partition('id="sentence">')[2].partition("</p>")[0]
    return compact(strip_tags(part)).strip()


def test_approval_names_people_and_what_waits_behind(ada, rosa, tomas):
    plan = gated(ada, act(2, dependencies=[1]), act(3, dependencies=[2]), act(4))
    wait = waits_of(plan).first
    assert wait is not None
    assert (wait.kind, wait.number, wait.people) == (WaitKind.APPROVAL, 1, "Rosa or Tomas")
    assert (wait.until, wait.then) == (request_of(plan).expires_at, "then it fails")
    text = sentence(plan, ada)
    assert text.startswith("Waiting for Rosa or Tomas to approve step 1, for")
    assert text.endswith("2 steps wait behind it.")
    assert ">Waiting for Rosa or Tomas<" in page(plan, ada)


def test_second_approval_waits_for_the_others(ada, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    Group.objects.get_or_create(name="finance")[0].user_set.add(tomas, *[person(f"fin{n}") for n in range(3)])
    set_rule(stages=[{"group": "reviewer", "count": 1}, {"group": "finance", "count": 1}])
    plan = gated(ada)
    approve(plan, rosa)
    wait = waits_of(plan).first
    assert wait is not None
    assert wait.approvals == "1 of 2 approvals; Rosa approved"
    assert wait.people == "1 member of finance"


def test_nobody_may_approve(rosa):
    rosa.groups.add(Group.objects.get_or_create(name="operator")[0])
    plan = gated(rosa)
    assert sentence(plan, rosa).startswith("Nobody may approve step 1, which needs 1 reviewer")


def test_delegate_is_named(ada, rosa, tomas):
    plan = gated(ada)
    olaf = person("olaf")
    hand(request_of(plan), rosa, olaf)
    wait = waits_of(plan).by_number[1]
    assert wait.people == "Rosa, Tomas or Olaf"


def test_each_person_gets_their_own_action(ada, rosa, vera):
    plan = gated(ada)
    assert 'id="next-review"' in page(plan, rosa)
    assert 'id="next-remind"' in page(plan, ada)
    assert "Open request" in page(plan, vera)
    client = Client()
    client.force_login(ada)
    response = client.post(f"/plans/{plan.public_id}/steps/1/remind/", follow=True)
    assert "The reviewers were reminded" in response.content.decode()
    assert ApprovalRequest.objects.get().reminders == 1
    assert 'id="next-remind"' not in page(plan, ada)
    assert client.post(f"/plans/{plan.public_id}/steps/1/remind/").status_code == 409
    client.force_login(vera)
    assert client.post(f"/plans/{plan.public_id}/steps/1/remind/").status_code == 403
    client.force_login(person("olaf"))
    assert client.post(f"/plans/{plan.public_id}/steps/1/remind/").status_code == 404


def test_failure_blocks_steps(ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    plan = gated(ada, act(2, dependencies=[1]), act(3, dependencies=[2]))
    reject(plan, rosa)
    work_off(plan)
    assert sentence(plan, ada) == "Failed at step 1. 2 steps are blocked."
    found = waits_of(plan).by_number
    assert {number: wait.kind for number, wait in found.items()} == {
        1: WaitKind.FAILED,
        2: WaitKind.BLOCKED,
        3: WaitKind.BLOCKED,
    }
    assert found[3].behind == (1,)


def test_failures_are_named_beside_what_people_must_do(ada, rosa, stage):
    stage.acts["safe"] = act_raising(RuntimeError("broken"))
    plan = gated(ada, act(2), act(3, dependencies=[2]))
    assert sentence(plan, ada).endswith("1 step has failed. 1 step is blocked.")
    assert 'href="?step=1"' in page(plan, ada).partition('id="sentence">')[2].partition("</p>")[0]


def test_question_is_for_the_owner(ada, admin):
    question = act(1, tool="ask_user") | {"parameters": {"question": "Which?"}}
    plan = work_off(make_plan(ada, question))
    assert sentence(plan, admin).startswith("Step 1 has asked Ada a question")
    assert "The question is for you." in page(plan, ada)


def test_several_waits_of_one_kind_are_counted(ada):
    questions = [act(number, tool="ask_user") | {"parameters": {"question": "Which?"}} for number in (1, 2)]
    plan = work_off(make_plan(ada, *questions))
    assert sentence(plan, ada).startswith("2 questions wait for an answer. Step 1 has asked Ada a question")


def test_retry_says_why_and_when(ada, stage):
    stage.acts["patient"] = act_raising(UpstreamUnavailable("gone"))
    plan = work_off(make_plan(ada, act(1, tool="patient")))
    wait = waits_of(plan).first
    assert wait is not None
    assert wait.kind == WaitKind.RETRY
    assert wait.reason == "Its source could not be reached. Attempt 1 of 3."
    assert wait.until == Step.objects.get(plan=plan).ready_at


def test_ready_step_waits_for_a_worker(ada):
    plan = make_plan(ada, act(1))
    Step.objects.filter(plan=plan).update(ready_at=clock.now() - timedelta(minutes=1))
    assert "waits for a worker" in sentence(plan, ada)
    assert sentence(plan, ada).endswith("No worker runs.")


def test_step_behind_others_tells_what_they_wait_for(ada, rosa):
    plan = gated(ada, act(2, dependencies=[1]), act(3, dependencies=[2]))
    card = page(plan, ada, step=3).partition('id="wait"')[2].partition("id=")[0]
    text = compact(strip_tags(f"<i {card}"))
    assert "It starts after: step 2" in text
    assert "Waiting for Rosa to approve step 1" in text


def test_paused_plan_and_one_that_has_not_started(ada):
    plan = make_plan(ada, act(1), start=False)
    assert waits_of(plan).by_number[1].kind == WaitKind.NOT_STARTED
    running = make_plan(ada, act(1))
    pause_plan(running, by=Requester(ada))
    assert waits_of(running).by_number[1].kind == WaitKind.PAUSED
    assert waits_of(running).first is None


def test_vote_reloads_what_depends_on_the_person(ada, rosa, tomas, settings):
    """The page asks for its controls and card again; the sentence comes with the event."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    plan = gated(ada)
    before = plan_source(plan.public_id).draw()
    approve(plan, rosa)
    after = plan_source(plan.public_id).draw()
    changed = {name for name, html in after.fragments.items() if before.fragments.get(name) != html}
    assert changed >= {"standing", "look-controls", "look-1"}
    assert "1 of 2 approvals; Rosa approved." in after.fragments["standing"]


def test_number_of_queries_does_not_grow_with_waiting_steps(ada, rosa, tomas, settings):
    settings.TOOLGATE_MAX_PENDING_PER_PLAN = 0

    def queries(count: int) -> int:
        plan = work_off(make_plan(ada, *[act(number, f"v{number}", "dangerous") for number in range(1, count + 1)]))
        with CaptureQueriesContext(connection) as made:
            waits = waits_of(plan)
        assert waits.alike == count
        return len(made)

    assert queries(60) == queries(2)
