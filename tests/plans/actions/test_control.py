"""Tests of pausing, resuming and cancelling plans."""

from datetime import timedelta

import pytest
from django.db import connection

from approvals.requests import deadlines
from catalog.core import clock
from catalog.errors import Conflict
from plans.actions.call import CallOrder, create_call
from plans.actions.control import at_stake, cancel_plan, pause_plan, resume_plan
from plans.actions.create import start_plan
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, RunningCall
from plans.models import Plan
from plans.store import statements
from plans.store.requesters import Requester
from tests.builders import (
    act,
    approve,
    assert_gapless,
    call_of,
    events_of,
    make_plan,
    reject,
    request_of,
    step_of,
    work_off,
)
from tests.plans.factories import act_raising, hurry


def pause(plan: Plan) -> None:
    """Pause the plan as its owner."""
    pause_plan(plan, by=Requester(plan.author))


def resume(plan: Plan) -> None:
    """Resume the plan as its owner."""
    resume_plan(plan, by=Requester(plan.author))


def carry_on(plan: Plan) -> Plan:
    """Claim and run until nothing can be claimed; return the plan."""
    while (work := loop.claim_work(plan.pk, owner="tests")) is not None:
        while work is not None:
            work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    plan.refresh_from_db()
    return plan


def test_nothing_is_claimed_while_plan_is_paused(stage, ada):
    plan = make_plan(ada, act(1, "a"), act(2, "b", dependencies=[1]))
    pause(plan)
    assert (carry_on(plan).status, stage.played) == ("in_progress", [])
    assert plan.paused_at is not None and plan.paused_by == ada
    resume(plan)
    assert (work_off(plan).status, stage.values("safe")) == ("completed", ["a", "b"])
    assert events_of(plan)[:4] == ["plan.created", "plan.started", "plan.paused", "plan.resumed"]
    assert plan.events.get(type="plan.paused").data_json == {"by": "Ada"}
    assert_gapless(plan)


def test_running_call_finishes_during_pause(stage, ada):
    plan = make_plan(ada, act(1, "a", expected_key="kept"), act(2, "b", dependencies=[1]))
    stage.acts["safe"] = lambda value, context: pause(plan) if value == "a" else value
    assert carry_on(plan).status == "in_progress"
    assert [step_of(plan, number).status for number in (1, 2)] == ["completed", "pending"]
    assert plan.memory.filter(key="kept").exists()
    resume(plan)
    assert work_off(plan).status == "completed"


def test_last_step_ends_paused_plan(stage, ada):
    plan = make_plan(ada, act(1))
    stage.acts["safe"] = lambda value, context: pause(plan)
    assert (carry_on(plan).status, plan.paused_at) == ("completed", None)
    with pytest.raises(Conflict):
        resume(plan)


def test_approved_call_starts_after_resume(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, "x", tool="dangerous")))
    pause(plan)
    approve(plan, rosa)
    assert (carry_on(plan).status, stage.played, call_of(plan).status) == ("in_progress", [], "ready")
    resume(plan)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x"])


def test_step_claimed_before_pause_does_not_start(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, "x", tool="dangerous")))
    approve(plan, rosa)
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, ApprovedCall)
    pause(plan)
    assert loop.advance(work, TimeSlice("tests")) is None
    assert (stage.played, request_of(plan).status, step_of(plan).claimed_by) == ([], "approved", "")
    resume(plan)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x"])
    assert_gapless(plan)


def test_rate_limited_call_is_counted_again_after_pause(stage, ada):
    plan = make_plan(ada, act(1, "x", tool="limited"))
    work = loop.claim_work(plan.pk, owner="tests")
    assert work is not None
    pause(plan)
    assert (loop.advance(work, TimeSlice("tests")), stage.played) == (None, [])
    resume(plan)
    assert work_off(plan).status == "completed"


def test_approval_expires_during_pause(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, tool="dangerous")))
    approve(plan, rosa)
    pause(plan)
    request = request_of(plan)
    assert request.not_after is not None and deadlines.expire_if_due(request, request.not_after)
    assert (step_of(plan).status, carry_on(plan).status) == ("failed", "in_progress")
    reject(plan, rosa, 2)
    plan.refresh_from_db()
    assert (plan.status, plan.paused_at) == ("failed", None)


def test_retry_waits_for_resume(stage, ada):
    stage.acts["patient"] = act_raising(OSError("busy"))
    plan = work_off(make_plan(ada, act(1, tool="patient")))
    pause(plan)
    hurry(plan)
    assert (carry_on(plan).status, len(stage.played)) == ("in_progress", 1)
    stage.acts.clear()
    resume(plan)
    assert work_off(plan).status == "completed"


def test_ticker_does_not_wake_paused_plan(stage, ada):
    plan = make_plan(ada, act(1))
    soon = clock.now() + timedelta(seconds=1)
    with connection.cursor() as cursor:
        assert statements.due_plans(cursor, now=soon, limit=10) == [plan.pk]
        pause(plan)
        assert statements.due_plans(cursor, now=soon, limit=10) == []


def test_only_running_plan_can_be_paused(stage, ada):
    plan = make_plan(ada, act(1), start=False)
    with pytest.raises(Conflict):
        pause(plan)
    start_plan(plan, by=Requester(ada))
    with pytest.raises(Conflict):
        resume(plan)
    pause(plan)
    with pytest.raises(Conflict):
        pause(plan)
    resume(plan)
    work_off(plan)
    with pytest.raises(Conflict):
        pause(plan)


def test_paused_plan_can_be_cancelled(stage, ada):
    plan = make_plan(ada, act(1))
    pause(plan)
    cancel_plan(plan, by=Requester(ada))
    assert (carry_on(plan).status, plan.paused_at, stage.played) == ("cancelled", None, [])


def test_call_is_not_added_to_paused_plan(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    pause(plan)
    with pytest.raises(Conflict, match="paused"):
        create_call(CallOrder("safe", {}, plan_ref=plan.public_id), by=Requester(ada))


def test_running_and_approved_calls_are_at_stake(stage, ada, rosa):
    plan = make_plan(ada, act(1), act(2, tool="dangerous"), act(3, tool="dangerous"))
    assert not at_stake(plan)
    assert isinstance(loop.claim_work(plan.pk, owner="someone"), RunningCall)
    work_off(plan)
    approve(plan, rosa, 2)
    stake = at_stake(plan)
    assert (stake.running, stake.approved) == (1, 1)
