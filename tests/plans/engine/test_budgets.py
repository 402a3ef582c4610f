"""Budgets of plans: counting of calls, remaining time for tools, and refusal of further calls."""

from datetime import timedelta
from typing import Any

import pytest

from approvals.models import ApprovalRequest
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from catalog.results import Preview
from plans.actions.call import CallOrder, create_call
from plans.actions.clone import clone_plan
from plans.engine import loop, recovery
from plans.engine.limits import budget_text
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, step, step_of, work_off
from tests.racing import at_once
from tests.rest import Rest


def spent(plan: Plan) -> tuple[int, bool]:
    """Return the number of calls the plan has started, and whether its tools used any time."""
    plan.refresh_from_db()
    return plan.calls_used, plan.seconds_used > 0


def test_call_beyond_the_budget_is_refused(stage, ada):
    """The step has the reason, the plan fails, and steps without a call continue."""
    plan = make_plan(ada, *(act(number) for number in (1, 2, 3)), step(4, None, parameters={}), budget={"calls": 2})
    assert work_off(plan).status == "failed"
    assert [step_of(plan, number).status for number in (1, 2, 3, 4)] == [
        "completed",
        "completed",
        "failed",
        "completed",
    ]
    assert plan.events.get(type="step.failed").data_json == {"error": "budget_exceeded"}
    assert (spent(plan), step_of(plan, 3).call, len(stage.values("safe"))) == ((2, True), None, 2)
    assert budget_text(plan) == "2 of 2 calls used"
    assert_gapless(plan)


def test_seconds_of_all_tools_are_added_up(stage, ada):
    """A call gets no more than the remaining time, and the next one is refused."""
    seen: list[Any] = []
    stage.acts["safe"] = lambda value, context: seen.append((context.budget, context.deadline.remaining()))
    plan = make_plan(ada, act(1), act(2), act(3), budget={"seconds": 10, "calls": 9})
    run = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(run, RunningCall)
    assert run.call.started_at
    run.call.started_at -= timedelta(seconds=6)
    loop.advance(run, TimeSlice("tests", steps_left=0))
    work_off(plan)
    (first, _), (second, left), _ = seen
    assert (first.calls, second.calls, first.seconds) == (8, 7, 10)
    assert 0 < left <= second.seconds <= 4
    Plan.objects.filter(pk=plan.pk).update(seconds_used=10.0, status="in_progress")
    with pytest.raises(Conflict):
        create_call(CallOrder("safe", {}, plan_ref=plan.public_id), by=Requester(ada))


@pytest.mark.django_db(transaction=True)
def test_concurrent_starts_are_counted(stage, ada):
    """With as many workers as steps."""
    plan = make_plan(ada, *(act(number) for number in range(1, 9)), budget={"calls": 3})
    runs = at_once(*[lambda: loop.claim_work(plan.pk, owner="tests")] * 8)
    assert (len([run for run in runs if run]), Call.objects.count(), spent(plan)[0]) == (3, 3, 3)


def test_retries_and_time_of_lost_workers_count(stage, ada):
    """A stored call that may not start again fails with the code of the budget."""
    plan = make_plan(ada, act(1), budget={"calls": 1, "seconds": 100})
    loop.claim_work(plan.pk, owner="lost")
    Call.objects.update(started_at=clock.now() - timedelta(seconds=20))
    Step.objects.update(lease_until=clock.now())
    assert recovery.take_back_lost_steps(clock.now()) == 1
    assert work_off(plan).status == "failed"
    assert (call_of(plan).status, call_of(plan).error_kind) == ("failed", "budget_exceeded")
    assert 20 <= plan.seconds_used < 30


def test_no_approval_is_requested_beyond_the_budget(stage, ada, rosa):
    """Nor does a call start that was approved before the budget was used up."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[]), budget={"calls": 1}))
    approve(plan, rosa)
    assert work_off(plan).status == "failed"
    assert (stage.values("dangerous"), request_of(plan).status) == ([], "invalidated")
    late = work_off(make_plan(ada, act(1), act(2, tool="dangerous", dependencies=[1]), budget={"calls": 1}))
    assert (late.status, ApprovalRequest.objects.filter(plan_ref=late.public_id).exists()) == ("failed", False)


@pytest.mark.parametrize("unused", [False, True])
def test_budget_is_the_reason_for_an_outdated_approval_too(stage, ada, rosa, unused):
    """Although the target of the call has changed since, or the approval was not used in time."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[]), budget={"calls": 1}))
    approve(plan, rosa)
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    if unused:
        ApprovalRequest.objects.update(not_after=clock.now())
    assert work_off(plan).status == "failed"
    assert (request_of(plan).status, call_of(plan).status) == ("invalidated", "cancelled")
    assert "budget of 1 call is used up" in call_of(plan).message


def test_an_approved_call_counts_once(stage, ada, rosa):
    """At its start, not at its request."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), budget={"calls": 1}))
    assert spent(plan) == (0, False)
    approve(plan, rosa)
    assert (work_off(plan).status, spent(plan)) == ("completed", (1, True))


def test_released_call_counts_once(stage, ada):
    """Its worker stopped before the handler began; the next worker starts it within the same budget."""
    plan = make_plan(ada, act(1, "x"), budget={"calls": 1})
    run = loop.claim_work(plan.pk, owner="stopping")
    assert isinstance(run, RunningCall)
    recovery.hand_back(run)
    assert spent(plan)[0] == 0
    assert (work_off(plan).status, spent(plan)[0], stage.values("safe")) == ("completed", 1, ["x"])


@pytest.mark.parametrize("wrong", [{"calls": 0}, {"seconds": 0}, {"calls": True}, {"calls": 1.5}, {"tokens": 5}, 5, []])
def test_invalid_budgets_are_refused(stage, ada, wrong):
    step = act(1)
    answer = Rest(ada).post("plans/", {"goal": "x", "steps": [step], "budget": wrong})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith("budget")


def test_budget_is_shown_with_usage_and_cloned(stage, ada):
    """REST shows null for plans without a budget."""
    rest = Rest(ada)
    made = rest.post("plans/", {"goal": "x", "steps": [act(1)], "budget": {"calls": 5}}).json()
    assert made["budget"] == {"calls": 5, "seconds": None, "calls_used": 0, "seconds_used": 0.0}
    plan = work_off(Plan.objects.get(public_id=made["id"]))
    assert rest.get(f"plans/{made['id']}/").json()["budget"]["calls_used"] == 1
    clone = clone_plan(plan, by=Requester(ada))
    assert (clone.budget_calls, clone.budget_seconds, clone.calls_used) == (5, None, 0)
    assert rest.post("plans/", {"goal": "x", "steps": [act(1)]}).json()["budget"] is None
