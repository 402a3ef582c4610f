"""Tests of the time that stops stood: deadlines of what they held up are later by it, at most by 24 h."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Stop
from approvals.requests import deadlines
from approvals.requests.lifecycle import lock_request
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.core import clock
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from plans.engine import stops
from plans.engine.cancellation import end_overdue_plans
from plans.engine.stops import resume_after_stops
from plans.models import Plan
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.invariants import assert_invariants
from tests.plans.factories import act_raising

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


def begin_earlier(plan: Plan) -> None:
    """Let a plan with a deadline of an hour have begun 50 minutes ago."""
    began = clock.now() - 50 * MINUTE
    Plan.objects.filter(pk=plan.pk).update(created_at=began, started_at=began, deadline_at=began + 60 * MINUTE)


def plan_given(ada, stood, *steps, **scope) -> Plan:
    """Return a plan with a deadline that a stop of 40 minutes, lifted a minute ago, has moved."""
    plan = make_plan(ada, *steps, deadline_seconds=3600)
    begin_earlier(plan)
    stood(41 * MINUTE, until=MINUTE, **scope)
    resume_after_stops(clock.now())
    assert given(plan) == 40
    return plan


def given(plan: Plan) -> float:
    """Return by how many minutes stops have moved a plan's deadline."""
    plan.refresh_from_db()
    assert plan.deadline_at is not None
    assert plan.started_at is not None
    moved = plan.deadline_at - plan.started_at - 60 * MINUTE
    assert abs(moved.total_seconds() - plan.stopped_seconds) < 1
    return round(moved / MINUTE, 1)


def test_time_of_a_stop_remains_after_the_stopped_step_has_ended(stage, ada, ben, stood):
    plan = plan_given(ada, stood, act(1, 7), act(2, 8, tool="dangerous", dependencies=[1]), tool="safe")
    work_off(plan)
    assert stage.values("safe") == [7]
    stood(30 * MINUTE, until=0 * MINUTE, requester="ben")
    resume_after_stops(clock.now())
    assert given(plan) == 40


def test_time_of_a_stop_is_first_counted_after_the_stopped_step_has_ended(stage, ada, stood):
    """As if another process had made the step ready, and run it, before this one counts."""
    plan = make_plan(ada, act(1, 7), act(2, 8, tool="dangerous", dependencies=[1]), deadline_seconds=3600)
    work_off(plan)
    begin_earlier(plan)
    stood(41 * MINUTE, until=MINUTE, tool="safe")
    resume_after_stops(clock.now())
    assert given(plan) == 40


def test_stop_counts_until_the_running_step_in_its_scope_has_ended(stage, ada, stood):
    plan = make_plan(ada, act(1, 7), act(2, 8, tool="dangerous", dependencies=[1]), deadline_seconds=3600)
    work_off(plan)
    begin_earlier(plan)
    plan.steps.filter(step_id=1).update(completed_at=clock.now() - 31 * MINUTE)
    stood(41 * MINUTE, until=MINUTE, tool="safe")
    resume_after_stops(clock.now())
    assert given(plan) == 10


def test_time_of_a_stop_remains_after_the_stopped_step_was_changed(stage, ada, ben, stood):
    plan = plan_given(ada, stood, act(1, 7, tool="dangerous"), act(2, 8, dependencies=[1]), tool="safe")
    plan.steps.filter(step_id=2).delete()
    stood(30 * MINUTE, until=0 * MINUTE, requester="ben")
    resume_after_stops(clock.now())
    assert given(plan) == 40


def test_time_of_a_stop_remains_after_the_tool_has_left_the_category(held, stood, admin, ben):
    apply_overrides("dangerous", {"categories": ["own"]}, by=admin, reason="A test.")
    snapshot.drop_snapshot()
    before = opened(held, 30 * MINUTE, MINUTE)
    stood(20 * MINUTE, until=5 * MINUTE, category="own")
    resume_after_stops(clock.now())
    assert moved(held, before) == 15
    apply_overrides("dangerous", {"categories": []}, by=admin, reason="A test.")
    snapshot.drop_snapshot()
    stood(2 * MINUTE, until=0 * MINUTE, requester="ben")
    resume_after_stops(clock.now())
    assert moved(held, before) == 15


def test_steps_go_on_before_any_time_is_counted(stage, ada, admin, monkeypatch):
    held = work_off(make_plan(ada, act(1, 7, tool="dangerous")))
    opened(held, 30 * MINUTE, MINUTE)
    stop = set_stop(parse_scope({"everything": True}), "A bad day.", by=admin)
    Stop.objects.update(since=clock.now() - 10 * MINUTE)
    waits = work_off(make_plan(ada, act(1, 8)))
    lift_stop(stop, "Over.", by=admin)
    monkeypatch.setattr(deadlines, "lock_request", act_raising(ValueError("a broken row")))
    resume_after_stops(clock.now())
    assert work_off(waits).status == "completed"
    assert not Stop.objects.filter(counted_at=None).exclude(pk=stop.pk).exists()
    assert Stop.objects.filter(counted_at=None, pk=stop.pk).exists()


def test_deadlines_that_no_lifted_stop_moves_cost_no_query_each(stage, ada, stood):
    def queries_of_resuming(number: int) -> list[str]:
        for _ in range(number):
            opened(work_off(make_plan(ada, act(1, 7, tool="dangerous"))), 30 * MINUTE, MINUTE)
            make_plan(ada, act(1, 7, tool="dangerous"), deadline_seconds=3600)
        stood(10 * MINUTE, until=MINUTE, tool="safe")
        with CaptureQueriesContext(connection) as queries:
            resume_after_stops(clock.now())
        assert not Stop.objects.filter(counted_at=None).exists()
        return [each["sql"] for each in queries]

    assert len(queries_of_resuming(1)) == len(queries_of_resuming(4))


def test_a_failing_deadline_is_counted_again_alone(stage, ada, stood, monkeypatch):
    plans = [work_off(make_plan(ada, act(1, 7, tool="dangerous"))) for _ in range(3)]
    before = [opened(plan, 30 * MINUTE, MINUTE) for plan in plans]
    stood(10 * MINUTE, until=0 * MINUTE)
    locked, broken = [], request_of(plans[0]).pk

    def lock(request: ApprovalRequest) -> ApprovalRequest:
        locked.append(request.pk)
        if request.pk == broken:
            raise ValueError("a broken row")
        return lock_request(request)

    monkeypatch.setattr(deadlines, "lock_request", lock)
    resume_after_stops(clock.now())
    assert [moved(*each) for each in zip(plans, before, strict=True)] == [0, 10, 10]
    locked.clear()
    resume_after_stops(clock.now())
    assert locked == [broken]
    assert Stop.objects.filter(counted_at=None).exists()


def test_deadlines_are_moved_a_few_at_a_time(stage, ada, stood, monkeypatch):
    """So that other work of the ticker does not wait for them."""
    monkeypatch.setattr(stops, "COUNTED_PER_TICK", 1)
    monkeypatch.setattr(deadlines, "COUNTED_AT_ONCE", 1)
    plans = [work_off(make_plan(ada, act(1, 7, tool="dangerous"))) for _ in range(2)]
    before = [opened(plan, 30 * MINUTE, MINUTE) for plan in plans]
    late = make_plan(ada, act(1, 7), deadline_seconds=3600)
    begin_earlier(late)
    stood(10 * MINUTE, until=0 * MINUTE)
    assert resume_after_stops(clock.now()) == 1
    assert [moved(*each) for each in zip(plans, before, strict=True)] == [10, 0]
    while resume_after_stops(clock.now()):
        pass
    assert [moved(*each) for each in zip(plans, before, strict=True)] == [10, 10]
    assert given(late) == 10
    assert not Stop.objects.filter(counted_at=None).exists()
