"""Processes with wrong clocks: nothing is lost, expires early or starts late."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from approvals.models import Grant, GrantUse
from approvals.requests import limits
from approvals.reviews.decisions import decide
from catalog.core import clock
from plans.actions import slices
from plans.actions.create import start_plan
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import approval, grant, let_be_granted, run
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants
from tests.waiting import eventually

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.service


@pytest.fixture(params=[(HOUR, True), (-HOUR, True), (HOUR, False), (-HOUR, False)])
def wrong_clock(request, set_clock):
    """A clock that is wrong, before the database's was measured and after."""
    wrong, measured_anew = request.param
    set_clock(wrong)
    if measured_anew:
        clock.refresh()


@pytest.mark.usefixtures("short_leases", "executor", "wrong_clock")
def test_plans_go_on_as_if_the_clock_were_right(stage, ada, rosa):
    leases: list[Any] = []

    def renewed() -> bool:
        leases.append(step_of(plan, 1).lease_until)
        return len(set(leases)) > 3

    stage.acts["cautious"] = lambda value, context: eventually(renewed, what="the third renewal")
    stage.acts["patient"] = lambda value, context: value if context.attempt > 1 else 1 / 0
    steps = [act(number, tool=tool) for number, tool in enumerate(("cautious", "patient", "dangerous"), 1)]
    plan = make_plan(ada, *steps, deadline_seconds=60)
    eventually(lambda: step_of(plan, 3).waiting_for == "approval", what="the request")
    approve(plan, rosa, 3)
    eventually(lambda: Plan.objects.get(pk=plan.pk).completed_at, what="the plan's end")
    assert set(plan.steps.values_list("status", "crashes")) == {("completed", 0)}
    assert (call_of(plan, 2).attempt, request_of(plan, 3).status) == (2, "consumed")
    assert_gapless(plan)


def test_events_and_moments_follow_the_database(stage, ada, set_clock):
    plan = make_plan(ada, act(1))
    set_clock(-HOUR)
    clock.refresh()
    later = make_plan(ada, act(1))
    first, second = (each.events.get(type="plan.created").at for each in (plan, later))
    assert first < second < first + HOUR


def lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process's measurement of the database's clock lag behind, as after a slow answer."""
    measured = clock._last_measurement
    assert measured is not None
    monkeypatch.setattr(clock, "_last_measurement", replace(measured, moment=measured.moment - timedelta(seconds=0.4)))


def test_an_approval_is_used_after_its_step_became_ready(stage, ada, rosa, monkeypatch):
    """Also if the measured time lags behind the database's."""
    plan = make_plan(ada, act(1, tool="dangerous"), start=False)
    (early,) = slices.prepare_slice(plan, 1, by=rosa).requests
    decide(early, by=rosa, decision=approval(early))
    start_plan(plan, by=Requester(ada))
    lag(monkeypatch)
    assert work_off(plan).status == "completed"
    used = request_of(plan)
    assert used.consumed_at and used.ready_at and used.consumed_at > used.ready_at
    assert_invariants()


def test_a_grant_is_used_after_it_was_made(stage, ada, admin, settings, monkeypatch):
    """Also if the measured time lags behind the database's."""
    let_be_granted(admin, settings, monkeypatch)
    made = grant(admin)
    lag(monkeypatch)
    assert run(ada).status == "completed"
    assert GrantUse.objects.get().at > made.created_at
    assert_invariants()


def test_a_grant_that_is_made_while_a_start_waits_is_used_no_earlier(stage, ada, admin, settings, monkeypatch):
    """A start reads the time before it waits for its requester's limit."""
    let_be_granted(admin, settings, monkeypatch)
    monkeypatch.setattr(limits, "lock_slots", lambda asking: grant(admin))
    assert run(ada).status == "completed"
    assert GrantUse.objects.get().at >= Grant.objects.get().created_at
    assert_invariants()
