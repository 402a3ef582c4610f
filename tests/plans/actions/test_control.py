"""Plans that people pause, resume and cancel: nothing starts meanwhile, what runs goes on, one of two wins."""

from datetime import timedelta

import pytest
from django.db import connection

from approvals.requests import deadlines
from catalog.core import clock
from catalog.errors import Conflict
from plans.actions.call import CallOrder, create_call
from plans.actions.control import at_stake, cancel_plan, pause_plan, resume_plan
from plans.actions.create import start_plan
from plans.engine import execution
from plans.engine.execution import TimeSlice
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
    """Claim and run as long as something can be claimed; return the plan as it is then."""
    while (work := execution.claim_work(plan.pk, owner="tests")) is not None:
        while work is not None:
            work = execution.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    plan.refresh_from_db()
    return plan


def test_nothing_is_claimed_while_a_plan_is_paused(stage, ada):
    """It goes on where it was when it is resumed; the history says who did both."""
    plan = make_plan(ada, act(1, "a"), act(2, "b", dependencies=[1]))
    pause(plan)
    assert (carry_on(plan).status, stage.played) == ("in_progress", [])
    assert plan.paused_at is not None and plan.paused_by == ada
    resume(plan)
    assert (work_off(plan).status, stage.values("safe")) == ("completed", ["a", "b"])
    assert events_of(plan)[:4] == ["plan.created", "plan.started", "plan.paused", "plan.resumed"]
    assert plan.events.get(type="plan.paused").data_json == {"by": "Ada"}
    assert_gapless(plan)


def test_what_runs_goes_on_and_its_result_is_kept(stage, ada):
    """What depends on it waits for the resume."""
    plan = make_plan(ada, act(1, "a", expected_key="kept"), act(2, "b", dependencies=[1]))
    stage.acts["safe"] = lambda value, context: pause(plan) if value == "a" else value
    assert carry_on(plan).status == "in_progress"
    assert [step_of(plan, number).status for number in (1, 2)] == ["completed", "pending"]
    assert plan.memory.filter(key="kept").exists()
    resume(plan)
    assert work_off(plan).status == "completed"


def test_the_last_step_of_a_paused_plan_ends_it(stage, ada):
    """An ended plan is not paused any more."""
    plan = make_plan(ada, act(1))
    stage.acts["safe"] = lambda value, context: pause(plan)
    assert (carry_on(plan).status, plan.paused_at) == ("completed", None)
    with pytest.raises(Conflict):
        resume(plan)


def test_an_approved_call_starts_after_the_resume(stage, ada, rosa):
    """People decide while the plan is paused."""
    plan = work_off(make_plan(ada, act(1, "x", tool="dangerous")))
    pause(plan)
    approve(plan, rosa)
    assert (carry_on(plan).status, stage.played, call_of(plan).status) == ("in_progress", [], "ready")
    resume(plan)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x"])


def test_a_step_that_was_claimed_before_the_pause_does_not_start_after_it(stage, ada, rosa):
    """While its preview was computed the plan was paused: it is claimed again later."""
    plan = work_off(make_plan(ada, act(1, "x", tool="dangerous")))
    approve(plan, rosa)
    work = execution.claim_work(plan.pk, owner="tests")
    assert isinstance(work, ApprovedCall)
    pause(plan)
    assert execution.advance(work, TimeSlice("tests")) is None
    assert (stage.played, request_of(plan).status, step_of(plan).claimed_by) == ([], "approved", "")
    resume(plan)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x"])
    assert_gapless(plan)


def test_a_limited_call_that_was_counted_before_the_pause_does_not_start_after_it(stage, ada):
    """It is counted again when the plan goes on."""
    plan = make_plan(ada, act(1, "x", tool="limited"))
    work = execution.claim_work(plan.pk, owner="tests")
    assert work is not None
    pause(plan)
    assert (execution.advance(work, TimeSlice("tests")), stage.played) == (None, [])
    resume(plan)
    assert work_off(plan).status == "completed"


def test_an_approval_runs_out_while_the_plan_is_paused(stage, ada, rosa):
    """Its window goes on: the step fails as always, and with it the plan when nothing else is left."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, tool="dangerous")))
    approve(plan, rosa)
    pause(plan)
    request = request_of(plan)
    assert request.not_after is not None and deadlines.expire_if_due(request, request.not_after)
    assert (step_of(plan).status, carry_on(plan).status) == ("failed", "in_progress")
    reject(plan, rosa, 2)
    plan.refresh_from_db()
    assert (plan.status, plan.paused_at) == ("failed", None)


def test_a_retry_waits_for_the_resume(stage, ada):
    """Also when its time has come."""
    stage.acts["patient"] = act_raising(OSError("busy"))
    plan = work_off(make_plan(ada, act(1, tool="patient")))
    pause(plan)
    hurry(plan)
    assert (carry_on(plan).status, len(stage.played)) == ("in_progress", 1)
    stage.acts.clear()
    resume(plan)
    assert work_off(plan).status == "completed"


def test_the_clock_wakes_no_paused_plan(stage, ada):
    """There is nothing to claim."""
    plan = make_plan(ada, act(1))
    soon = clock.now() + timedelta(seconds=1)
    with connection.cursor() as cursor:
        assert statements.due_plans(cursor, now=soon, limit=10) == [plan.pk]
        pause(plan)
        assert statements.due_plans(cursor, now=soon, limit=10) == []


def test_only_a_plan_under_way_is_paused(stage, ada):
    """And only one that is paused is resumed."""
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


def test_a_paused_plan_is_cancelled(stage, ada):
    """It is over then, and not paused."""
    plan = make_plan(ada, act(1))
    pause(plan)
    cancel_plan(plan, by=Requester(ada))
    assert (carry_on(plan).status, plan.paused_at, stage.played) == ("cancelled", None, [])


def test_no_call_is_added_to_a_paused_plan(stage, ada):
    """Whoever wants one resumes it first."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    pause(plan)
    with pytest.raises(Conflict, match="paused"):
        create_call(CallOrder("safe", {}, plan_ref=plan.public_id), by=Requester(ada))


def test_what_cancelling_would_cut_short_is_counted(stage, ada, rosa):
    """Calls that run, and calls that people have approved."""
    plan = make_plan(ada, act(1), act(2, tool="dangerous"), act(3, tool="dangerous"))
    assert not at_stake(plan)
    assert isinstance(execution.claim_work(plan.pk, owner="someone"), RunningCall)
    work_off(plan)
    approve(plan, rosa, 2)
    stake = at_stake(plan)
    assert (stake.running, stake.approved) == (1, 1)
