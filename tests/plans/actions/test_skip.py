"""Tests of skipping steps."""

from datetime import timedelta

import pytest

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.errors import Conflict, ParameterError, ToolError
from catalog.models import Call
from plans.actions.control import pause_plan
from plans.actions.create import start_plan
from plans.actions.skip import MAX_REASON, is_idle, skip_step
from plans.engine import hints, loop, recovery
from plans.engine.retries import TRIES
from plans.models import Plan, Step
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from tests.builders import (
    act,
    approve,
    assert_gapless,
    call_of,
    events_of,
    make_plan,
    request_of,
    step_of,
    work_off,
)
from tests.invariants import assert_invariants
from tests.pages import Pages
from tests.plans.factories import act_raising
from tests.rest import Rest, agent


def skip(plan: Plan, step_id: int = 1, reason: str = "Done by hand.") -> Plan:
    """Skip a step as the plan's owner; return the plan."""
    skip_step(plan, step_id, reason, by=Requester(plan.author))
    plan.refresh_from_db()
    return plan


def test_step_waiting_for_approval_is_skipped(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous", expected_key="x"), act(2, "${x.reason}", dependencies=[1])))
    skip(plan)
    step, call = step_of(plan), call_of(plan)
    assert (step.status, step.skipped, step.waiting_for, step.ready_at) == ("completed", True, "", None)
    assert (request_of(plan).status, call.status) == ("withdrawn", "cancelled")
    assert "Done by hand." in call.message
    with pytest.raises(Conflict):
        approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert (stage.values("dangerous"), stage.values("safe")) == ([], ["Done by hand."])
    kept = AuditEntry.objects.filter(plan_ref=plan.public_id).order_by("seq")
    assert [entry.action for entry in kept] == ["approval.opened", "approval.withdrawn"]
    assert_gapless(plan)


def test_skipped_step_is_not_shown_as_done_on_request(stage, ada, rosa):
    plan, pages = (
        work_off(make_plan(ada, act(1, tool="dangerous"), act(2, tool="dangerous", dependencies=[1]))),
        Pages(rosa),
    )
    skip(plan)
    work_off(plan)
    for step_id in (1, 2):
        pages.open(f"/approvals/?item={request_of(plan, step_id).public_id}")
        path = pages.html.partition('class="pathline"')[2].partition("</ol>")[0]
        assert ("#i-skip" in path, "#i-ok" in path) == (True, False)


def test_skip_leaves_note_value_and_event(stage, ada):
    given = {"y": "kept"}
    steps = (
        act(1, tool="dangerous", expected_key="x", output_path=["results"]),
        act(2, tool="dangerous", expected_key="y"),
    )
    plan = work_off(make_plan(ada, *steps, memory=given))
    skip(skip(plan, 1), 2)
    memory = memory_of(plan)
    assert memory["values"] == {"x": {"skipped": True, "reason": "Done by hand."}, "y": "kept"}
    notes = [item for item in memory["items"] if item["type"] == "step_skipped"]
    assert [(note["step_id"], note["expected_key"], note["tool"], note["by"]) for note in notes] == [
        (1, "x", "dangerous", "Ada"), (2, "y", "dangerous", "Ada"),
    ]  # fmt: skip
    assert (notes[0]["output_path"], notes[0]["reason"], notes[0]["done_check"]) == (["results"], "Done by hand.", "")
    event = plan.events.get(type="step.skipped", step_id=1)
    assert event.data_json == {"by": "Ada", "reason": "Done by hand."}
    assert plan.status == "completed"


def test_pending_step_is_skipped(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1]), act(3, "c", dependencies=[2])))
    skip(plan, 2)
    assert (work_off(plan).status, stage.values("safe")) == ("in_progress", ["c"])
    skip(plan, 1)
    assert (plan.status, events_of(plan)[-1]) == ("completed", "plan.completed")


def test_step_of_unstarted_plan_is_skipped(stage, ada):
    plan = make_plan(ada, act(1), act(2, "b", dependencies=[1]), start=False)
    skip(plan)
    assert (plan.status, plan.steps.exclude(ready_at=None).exists()) == ("pending", False)
    assert work_off(plan).status == "pending"
    start_plan(plan, by=Requester(ada))
    assert (work_off(plan).status, stage.values("safe")) == ("completed", ["b"])


def test_plan_with_all_steps_skipped_ends_on_start(stage, ada, monkeypatch):
    monkeypatch.setattr(hints, "hint", lambda plan_pk, count=1: None)
    plan = make_plan(ada, act(1), act(2, dependencies=[1]), start=False)
    assert [skip(plan, 1).status, skip(plan, 2).status] == ["pending", "pending"]
    start_plan(plan, by=Requester(ada))
    assert events_of(plan)[-2:] == ["plan.started", "plan.completed"]
    plan.refresh_from_db()
    assert (plan.status, plan.completed_at is None) == ("completed", False)


def test_step_waiting_for_retry_is_skipped(stage, ada):
    stage.acts["cautious_patient"] = act_raising(ValueError("later"))
    plan = make_plan(ada, act(1, tool="cautious_patient"), act(2, dependencies=[1]))
    work_off(plan)
    assert (step_of(plan).waiting_for, TRIES > 1) == ("retry", True)
    skip(plan)
    assert (call_of(plan).status, work_off(plan).status) == ("cancelled", "completed")
    assert AuditEntry.objects.filter(action="call.skipped", actor=ada).count() == 1


def test_approved_step_is_skipped(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    skip(plan)
    assert (work_off(plan).status, stage.played, request_of(plan).status) == ("completed", [], "withdrawn")


@pytest.mark.parametrize("how", ["paused", "stopped", "lost"])
def test_released_step_is_skipped(stage, ada, rosa, how):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    resume = loop.claim_work(plan.pk, owner="tests")
    assert resume is not None and not is_idle(step_of(plan))
    if how == "paused":
        pause_plan(plan, by=Requester(ada))
        loop.advance(resume, loop.TimeSlice("tests"))
    elif how == "stopped":
        recovery.release_claim(resume)
    else:
        Step.objects.update(lease_until=clock.now() - timedelta(seconds=1))
        assert recovery.take_back_lost_steps(clock.now()) == 1
    assert (step_of(plan).status, step_of(plan).waiting_for, is_idle(step_of(plan))) == ("in_progress", "", True)
    assert (skip(plan).status, stage.played, request_of(plan).status) == ("completed", [], "withdrawn")
    assert call_of(plan).status == "cancelled"
    assert_gapless(plan)


def test_step_of_paused_plan_is_skipped(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1])))
    pause_plan(plan, by=Requester(ada))
    skip(plan)
    assert (plan.status, step_of(plan, 2).status, step_of(plan, 2).ready_at is None) == (
        "in_progress",
        "pending",
        False,
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "in_progress", "waiting_for": "", "claimed_by": "someone"}, "has started"),
        ({"status": "in_progress", "waiting_for": "outcome"}, "unknown"),
        ({"status": "completed"}, "it is completed"),
    ],
)
def test_step_that_cannot_be_skipped_is_conflict(stage, ada, fields, words):
    plan = make_plan(ada, act(1))
    plan.steps.update(**fields)
    with pytest.raises(Conflict, match=words):
        skip(plan)
    assert not plan.steps.filter(skipped=True).exists()
    assert plan.events.count() == 2


def test_step_of_ended_plan_is_not_skipped(stage, ada):
    stage.acts["safe"] = act_raising(ValueError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, dependencies=[1])))
    with pytest.raises(Conflict):
        skip(plan, 2)


@pytest.mark.parametrize("reason", ["", " \n ", "a\0b", "x" * (MAX_REASON + 1)])
def test_reason_is_required(stage, ada, reason):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    with pytest.raises(ParameterError):
        skip(plan, reason=reason)
    assert request_of(plan).status == "pending"


def test_skip_over_rest(stage, ada, ben, rosa):
    """Owner and administrators may skip steps; an agent's token may not, even in its own plan."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    path = f"plans/{plan.public_id}/steps/1/skip/"
    assert [Rest(who).post(path, {"reason": "No"}).status_code for who in (ben, rosa)] == [403, 403]
    assert [Rest(ada).post(path, body).status_code for body in ({}, {"reason": " "}, {"reason": 1}, {"why": "x"})] == [
        422
    ] * 4
    assert Rest(ada).post(path.replace("/1/", "/9/"), {"reason": "No"}).status_code == 404
    answer = Rest(ada).post(path, {"reason": "Done by hand."})
    assert (answer.status_code, answer.json()["steps"][0]["skipped"], answer.json()["status"]) == (
        200,
        True,
        "completed",
    )
    assert Rest(ada).post(path, {"reason": "Again"}).status_code == 409
    own = agent(ada, "plans:read", "plans:write")
    theirs = own.post("plans/", {"goal": "Try", "steps": [act(1)], "start": False}).json()["id"]
    refused = own.post(f"plans/{theirs}/steps/1/skip/", {"reason": "No"})
    assert (refused.status_code, "person" in refused.json()["detail"]) == (403, True)
    assert Call.objects.filter(plan_ref=theirs).count() == 0


def test_failed_step_is_skipped_and_plan_continues(stage, ada):
    stage.acts["cautious_patient"] = act_raising(ToolError("no"))
    first = act(1, tool="cautious_patient", expected_key="x")
    plan = work_off(make_plan(ada, first, act(2, "${x.reason}", dependencies=[1])))
    assert plan.status == "failed"
    assert skip(plan).status == "in_progress"
    assert (step_of(plan).status, step_of(plan).skipped, step_of(plan).error) == ("completed", True, "")
    events = events_of(plan)
    assert events[events.index("plan.failed") :][1:4] == ["plan.resumed", "1 step.retrying", "1 memory.written"]
    assert AuditEntry.objects.filter(action="call.skipped", actor=ada).count() == 1
    assert (work_off(plan).status, stage.values("safe")) == ("completed", ["Done by hand."])
    assert_gapless(plan)
    assert_invariants()
