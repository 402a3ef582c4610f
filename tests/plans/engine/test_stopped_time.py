"""Tests of the time that stops stood: deadlines of what they held up are later by it, at most by 24 h."""

from datetime import datetime, timedelta

import pytest

from approvals.models import ApprovalRequest, Stop
from approvals.requests import deadlines
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.core import clock
from plans.engine.cancellation import end_overdue_plans
from plans.engine.stops import resume_after_stops
from plans.models import Plan
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.invariants import assert_invariants

pytestmark = pytest.mark.db
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture
def stood(admin):
    """Let a stop of a scope stand from some time ago until another, or until now if none is given."""

    def stand(since: timedelta, until: timedelta | None = None, **scope: object) -> Stop:
        stop = set_stop(parse_scope(scope or {"everything": True}), "A bad day.", by=admin)
        Stop.objects.filter(pk=stop.pk).update(since=clock.now() - since)
        if until is not None:
            lift_stop(stop, "Over.", by=admin)
            Stop.objects.filter(pk=stop.pk).update(lifted_at=clock.now() - until)
        return stop

    return stand


@pytest.fixture
def held(stage, ada) -> Plan:
    return work_off(make_plan(ada, act(1, 7, tool="dangerous")))


def opened(plan: Plan, ago: timedelta, expires: timedelta) -> datetime:
    """Let a plan's request have been opened some time ago, to expire at a time from now; return when it expires."""
    at = clock.now() + expires
    ApprovalRequest.objects.filter(pk=request_of(plan).pk).update(opened_at=clock.now() - ago, expires_at=at)
    return at


def moved(plan: Plan, before: datetime) -> float:
    """Return by how many minutes the request's expiry was moved."""
    return round((request_of(plan).expires_at - before) / MINUTE, 1)


def test_no_request_expires_under_a_stop_and_its_time_is_counted_afterwards(held, stood, admin):
    before = opened(held, 30 * MINUTE, -MINUTE)
    stop = stood(10 * MINUTE)
    assert deadlines.expire_due(clock.now()) == 0
    assert moved(held, before) == DAY / MINUTE
    lift_stop(stop, "Over.", by=admin)
    resume_after_stops(clock.now())
    assert moved(held, before) == 10
    assert deadlines.expire_due(clock.now()) == 0
    assert deadlines.expire_due(clock.now() + 10 * MINUTE) == 1
    assert request_of(held).status == "expired"
    assert_invariants()


def test_time_is_counted_when_it_is_needed_even_if_no_ticker_has(held, stood):
    """As if every process had been killed when the stop was lifted."""
    before = opened(held, 30 * MINUTE, -MINUTE)
    stood(20 * MINUTE, until=5 * MINUTE)
    assert deadlines.expire_due(clock.now()) == 0
    assert moved(held, before) == 15


def test_overlapping_stops_count_once_and_others_not_at_all(held, stood):
    before = opened(held, 30 * MINUTE, MINUTE)
    stood(40 * MINUTE, until=20 * MINUTE)  # ten minutes of it before the request was opened
    stood(25 * MINUTE, until=15 * MINUTE, tool="dangerous")
    stood(25 * MINUTE, until=0 * MINUTE, tool="safe")
    resume_after_stops(clock.now())
    assert moved(held, before) == 15
    assert not Stop.objects.filter(counted_at=None).exists()
    resume_after_stops(clock.now())
    assert moved(held, before) == 15


def test_more_than_a_day_is_not_counted(held, stood):
    opened(held, 3 * DAY, -2 * DAY - MINUTE)
    stood(2 * DAY + 10 * MINUTE)
    assert deadlines.expire_due(clock.now()) == 1
    assert request_of(held).status == "expired"


def test_approved_call_starts_after_a_stop_that_outlasted_its_run_window(held, stood, rosa, admin, stage):
    approve(held, rosa)
    stop = stood(10 * MINUTE)
    past = {"effective_at": clock.now() - 20 * MINUTE, "not_after": clock.now() - MINUTE}
    ApprovalRequest.objects.filter(pk=request_of(held).pk).update(**past)
    assert deadlines.expire_due(clock.now()) == 0
    work_off(held)
    assert stage.values("dangerous") == []
    lift_stop(stop, "Over.", by=admin)
    resume_after_stops(clock.now())
    not_after = request_of(held).not_after
    assert not_after is not None
    assert not_after > clock.now() + 8 * MINUTE
    assert work_off(held).status == "completed"
    assert stage.values("dangerous") == [7]


def test_plan_outlasts_its_deadline_by_the_time_of_stops(stage, ada, stood, admin):
    plan = make_plan(ada, act(1, 7), deadline_seconds=900)
    stop = stood(10 * MINUTE)
    Plan.objects.filter(pk=plan.pk).update(started_at=clock.now() - 16 * MINUTE, deadline_at=clock.now() - MINUTE)
    work_off(plan)
    assert end_overdue_plans(clock.now()) == 0
    lift_stop(stop, "Over.", by=admin)
    resume_after_stops(clock.now())
    plan.refresh_from_db()
    assert plan.deadline_at is not None
    assert round((plan.deadline_at - clock.now()) / MINUTE, 1) == 9
    assert work_off(plan).status == "completed"
