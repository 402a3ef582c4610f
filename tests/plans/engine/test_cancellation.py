"""Cancelled plans: nothing more starts, waiting calls are withdrawn, running calls finish."""

import asyncio
from datetime import timedelta

import pytest
from django.db import transaction

from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.states import ReviewVerdict
from catalog.core import clock, transactions
from catalog.errors import Conflict
from catalog.models import Call
from plans.actions.control import cancel_plan
from plans.actions.create import start_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import cancellation
from plans.models import Plan
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


def cancel(plan: Plan) -> None:
    """Cancel the plan as its owner."""
    cancel_plan(plan, by=Requester(plan.author))


def test_unstarted_plan_is_cancelled(stage, ada):
    """All its steps are cancelled and it cannot be started."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]), start=False)
    cancel(plan)
    assert work_off(plan).status == "cancelled"
    assert events_of(plan) == ["plan.created", "plan.cancelled", "1 step.cancelled", "2 step.cancelled"]
    with pytest.raises(Conflict):
        start_plan(plan, by=Requester(ada))
    assert (stage.played, plan.completed_at is None) == ([], False)


def test_ready_steps_are_not_claimed_after_cancellation(stage, ada):
    plan = make_plan(ada, act(1), act(2))
    cancel(plan)
    assert (work_off(plan).status, stage.played) == ("cancelled", [])
    assert not plan.steps.exclude(ready_at=None, lease_until=None, claimed_by="").exists()


def test_a_held_call_is_withdrawn(stage, ada, rosa):
    """It can no longer be approved."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1])))
    cancel(plan)
    assert (request_of(plan).status, call_of(plan).status, step_of(plan).waiting_for) == ("withdrawn", "cancelled", "")
    with pytest.raises(Conflict):
        approve(plan, rosa)
    assert (work_off(plan).status, stage.played) == ("cancelled", [])
    assert_gapless(plan)


def test_an_approved_call_that_has_not_started_is_withdrawn(stage, ada, rosa):
    """Its approval stays unused."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    cancel(plan)
    assert (work_off(plan).status, stage.played) == ("cancelled", [])
    assert (request_of(plan).status, call_of(plan).status) == ("withdrawn", "cancelled")


def test_running_call_finishes(stage, ada):
    """Its result is stored; its dependents do not start."""
    plan = make_plan(ada, act(1, expected_key="x"), act(2, dependencies=[1]))
    stage.acts["safe"] = lambda value, context: cancel(plan)
    assert work_off(plan).status == "cancelled"
    assert [step_of(plan, number).status for number in (1, 2)] == ["completed", "cancelled"]
    assert (call_of(plan).status, len(stage.played)) == ("completed", 1)
    assert_gapless(plan)


def test_step_waiting_for_a_retry_is_cancelled(distant_tries, stage, ada):
    stage.acts["patient"] = act_raising(OSError("busy"))
    plan = work_off(make_plan(ada, act(1, tool="patient")))
    cancel(plan)
    hurry(plan)
    assert (work_off(plan).status, call_of(plan).status, len(stage.played)) == ("cancelled", "cancelled", 1)


def test_unknown_outcome_remains_to_be_settled(stage, ada):
    """A person must settle it, but the call is not requested again."""
    plan = make_plan(ada, act(1, tool="hasty_async"))
    stage.acts["hasty_async"] = lambda value, context: asyncio.sleep(60)
    work_off(plan)
    cancel(plan)
    assert (call_of(plan).status, step_of(plan).waiting_for) == ("outcome_unknown", "outcome")
    by = Requester(ada)
    with pytest.raises(Conflict), transaction.atomic():
        settle_outcome(plan, 1, settlement=Settlement("request_again"), by=by)
    settle_outcome(plan, 1, settlement=Settlement("happened"), by=by)
    assert (work_off(plan).status, step_of(plan).status, call_of(plan).status) == (
        "cancelled", "completed", "completed",
    )  # fmt: skip


def test_an_ended_plan_cannot_be_cancelled(stage, ada):
    plan = work_off(make_plan(ada, act(1)))
    with pytest.raises(Conflict):
        cancel(plan)


def test_a_rejection_fails_the_step_with_its_reason(stage, ada, rosa):
    """Other branches continue; the plan fails as soon as nothing else can run."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1]), act(3)))
    reject(plan, rosa)
    plan.refresh_from_db()
    assert (plan.status, "No." in step_of(plan).error) == ("failed", True)
    assert [step_of(plan, number).status for number in (1, 2, 3)] == ["failed", "pending", "completed"]
    assert events_of(plan)[-3:] == ["1 approval.decided", "1 step.failed", "plan.failed"]
    assert_gapless(plan)


def test_a_cancelled_plan_leaves_no_decision_to_undo(stage, ada, rosa):
    """Neither an approval nor a rejection that had not taken effect."""
    for verdict in (ReviewVerdict.APPROVE, ReviewVerdict.REJECT):
        plan = work_off(make_plan(ada, act(1, tool="dangerous")))
        request = request_of(plan)
        decide(request, by=rosa, decision=Decision(verdict, request.digest, comment="Because.", channel="page"))
        cancel(plan)
        with pytest.raises(Conflict):
            undo_decision(request, by=rosa)
        assert Call.objects.get(pk=request.call_id).status == "cancelled"


def test_retried_plan_is_not_ended_at_its_old_deadline(stage, ada, monkeypatch):
    """The plan was retried between the query for overdue plans and its turn."""
    plan = make_plan(ada, act(1), deadline_seconds=60)
    now = clock.now() + timedelta(seconds=61)

    def retry_first(end, plans):
        Plan.objects.filter(pk=plan.pk).update(deadline_at=now + timedelta(seconds=60))
        return sum(map(end, plans))

    monkeypatch.setattr(transactions, "run_each", retry_first)
    assert cancellation.end_overdue_plans(now) == 0
    assert Plan.objects.get(pk=plan.pk).status == "in_progress"
