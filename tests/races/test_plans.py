"""Races of workers, reviewers, owners and the clock: one start, one end, and events without gaps."""

from functools import partial

import pytest

from approvals.models import ApprovalRequest
from approvals.reviews import decisions
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, RunningCall
from plans.models import Step
from tests import counts
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, step_of, work_off
from tests.races.acts import EXPIRED, RAN, ROUNDS, apply_decision, approve_request, cancel, drive, expire, settled
from tests.racing import Act, rounds_at_once, staggered

pytestmark = [pytest.mark.db, pytest.mark.timeout(counts.seconds(1800))]

WORKERS = 8
CLAIMERS = 16


def test_approve_against_cancel(plans, rosa, stage, report_race):
    """The plan ends cancelled, and an approval given before that starts nothing."""
    races: list[list[Act]] = [
        [partial(approve_request, request_of(plan), rosa), partial(cancel, plan)] for plan in plans
    ]
    seed, approved = counts.seed(), 0
    for plan, (said, cancelled) in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        assert cancelled == "cancelled"
        assert isinstance(said, ApprovalRequest | Conflict)
        assert settled(plan) == ("cancelled", "cancelled", "cancelled", "withdrawn")
        approved += isinstance(said, ApprovalRequest)
    assert stage.values("dangerous") == []
    report_race("approve against cancel", len(plans), seed=seed, approved_first=approved)


@pytest.mark.slow
def test_cancel_against_the_start(plans, rosa, stage):
    """The call either runs to its end or never starts."""
    for plan in plans:
        approve(plan, rosa)
    races: list[list[Act]] = [[partial(drive, plan, 0), partial(cancel, plan)] for plan in plans]
    rounds_at_once(staggered(races, counts.seed()))
    outcomes = [settled(plan) for plan in plans]
    assert set(outcomes) <= {
        ("cancelled", "completed", "completed", "consumed"), ("cancelled", "cancelled", "cancelled", "withdrawn"),
        ("completed", "completed", "completed", "consumed"),
    }  # fmt: skip
    assert len(stage.values("dangerous")) == sum(call == "completed" for _, _, call, _ in outcomes)


@pytest.mark.slow
def test_the_start_against_the_end_of_its_window(plans, rosa, stage):
    """The call either runs or expires, never both."""
    for plan in plans:
        approve(plan, rosa)
    races: list[list[Act]] = [[partial(drive, plan, 0), partial(expire, request_of(plan))] for plan in plans]
    rounds_at_once(staggered(races, counts.seed()))
    outcomes = [settled(plan) for plan in plans]
    assert set(outcomes) <= {RAN, EXPIRED}
    assert len(stage.values("dangerous")) == outcomes.count(RAN)


@pytest.mark.slow
def test_undo_against_the_clock(plans, rosa):
    """Either the decision is undone and the request is pending again, or it stands and the call may run."""
    requests = [approve_request(request_of(plan), rosa, "page") for plan in plans]
    races: list[list[Act]] = [
        [partial(decisions.undo_decision, each, by=rosa), partial(apply_decision, each)] for each in requests
    ]
    results = rounds_at_once(staggered(races, counts.seed()))
    for plan, (undone, _) in zip(plans, results, strict=True):
        stands = isinstance(undone, Conflict)
        expected = ("approved", "ready", True) if stands else ("pending", "held", False)
        claimable = step_of(plan).ready_at is not None
        assert (request_of(plan).status, call_of(plan).status, claimable) == expected
        assert_gapless(plan)


def test_one_ready_step_is_claimed_once(transactional_db, stage, ada, report_race):
    """Of many workers that claim the same step, one gets it."""
    plans = [make_plan(ada, act(1, number)) for number in range(ROUNDS)]
    races = [[partial(loop.claim_work, plan.pk, owner=f"worker-{lane}") for lane in range(CLAIMERS)] for plan in plans]
    for results in rounds_at_once(races):
        assert [type(work) for work in results if work is not None] == [RunningCall]
    assert Call.objects.count() == ROUNDS
    report_race(f"{CLAIMERS} claimers of one ready step", ROUNDS)


@pytest.mark.slow
def test_one_approved_call_is_started_once(plans, rosa, stage, report_race):
    """Of many workers that all hold the same claim, one starts the call."""
    races = []
    for plan in plans:
        approve(plan, rosa)
        resume = loop.claim_work(plan.pk, owner="one of many")
        assert isinstance(resume, ApprovedCall)
        races.append([partial(loop.advance, resume, TimeSlice("one of many")) for _ in range(CLAIMERS)])
    for results in rounds_at_once(races):
        assert sorted(type(each).__name__ for each in results) == ["Conflict"] * (CLAIMERS - 1) + ["RunningCall"]
    assert set(Call.objects.filter(tool_name="dangerous").values_list("attempt", flat=True)) == {1}
    report_race(f"{CLAIMERS} claimers of one approved call", ROUNDS)


@pytest.mark.slow
def test_many_workers_share_a_plan(transactional_db, stage, ada, checked):
    """Every step runs once, and the step that joins the branches runs last."""
    branches = [act(number, number, dependencies=[1]) for number in range(2, 42)]
    plan = make_plan(ada, act(1, 1), *branches, act(42, 42, dependencies=list(range(2, 42))))
    rounds_at_once([[partial(drive, plan, lane) for lane in range(WORKERS)]])
    assert work_off(plan).status == "completed"
    assert sorted(stage.values("safe")) == list(range(1, 43))
    assert stage.values("safe")[-1] == 42
    assert_gapless(plan)


@pytest.mark.slow
def test_a_late_finish_against_recovery(transactional_db, stage, ada, checked):
    """The step ends once, whether the worker finished before its lease was taken back or after."""
    plans = [make_plan(ada, act(1, number, "cautious")) for number in range(ROUNDS)]
    races: list[list[Act]] = []
    for plan in plans:
        run = loop.claim_work(plan.pk, owner="late")
        assert isinstance(run, RunningCall)
        races.append([partial(loop.advance, run, TimeSlice("late")), take_back])
    Step.objects.update(lease_until=clock.now())
    rounds_at_once(races)
    for plan in plans:
        work_off(plan)
        assert (step_of(plan).status, call_of(plan).status) in {
            ("completed", "completed"),
            ("in_progress", "outcome_unknown"),
        }
        assert_gapless(plan)


def take_back() -> int:
    """Do what the ticker does with lost leases."""
    return recovery.take_back_lost_steps(clock.now())
