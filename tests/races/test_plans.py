"""Workers, reviewers, owners and the clock at once: one start, one end, and a history without gaps."""

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import decisions, expiry
from approvals.decisions import Decision, decide
from approvals.models import ApprovalRequest
from approvals.states import Verdict
from catalog import clock
from catalog.errors import Conflict
from catalog.models import Call
from plans import engine, recovery
from plans.controls import cancel_plan
from plans.engine import Turn
from plans.models import Plan, Step
from plans.services import Requester
from plans.work import Resume, Run
from tests import counts
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, step_of, work_off
from tests.races.conftest import ROUNDS
from tests.racing import Act, rounds_at_once, staggered

pytestmark = pytest.mark.timeout(counts.seconds(1800))

WORKERS = 8
CLAIMERS = 16
RAN = ("completed", "completed", "completed", "consumed")
EXPIRED = ("failed", "failed", "failed", "expired")


def say(request: ApprovalRequest, by: User, channel: Any = "rest") -> ApprovalRequest:
    """Approve a request."""
    return decide(request, by=by, decision=Decision(Verdict.APPROVE, request.digest, "", channel))


def cancel(plan: Plan) -> str:
    """Cancel a plan as its owner."""
    cancel_plan(plan, by=Requester(plan.author))
    return "cancelled"


def carry_out(request: ApprovalRequest) -> int:
    """Do what the clock does when the time to undo is over."""
    assert request.effective_at
    return decisions.apply_due(request.effective_at)


def expire(request: ApprovalRequest) -> bool:
    """Do what the clock does when the time of a request, or of its approval, is over."""
    end = request.not_after or request.expires_at
    return expiry.expire_if_due(request, end)


def drive(plan: Plan, worker: int) -> None:
    """Claim and run what is ready, as one of many workers."""
    owner = f"worker-{worker}"
    work = engine.claim(plan.pk, owner=owner)
    while work is not None:
        work = engine.advance(work, Turn(owner, until=float("inf"), steps_left=1000))


def settled(plan: Plan) -> tuple[str, str, str, str]:
    """Return how a plan, its first step, that step's call and its request stand, once nothing is left to do."""
    plan = work_off(plan)
    assert_gapless(plan)
    assert not plan.steps.exclude(claimed_by="", lease_until=None).exists()
    return plan.status, step_of(plan).status, call_of(plan).status, request_of(plan).status


def test_approve_against_cancel(plans, rosa, stage, report_race):
    """Cancelled is the end; what was approved before it does not start after it."""
    races: list[list[Act]] = [[partial(say, request_of(plan), rosa), partial(cancel, plan)] for plan in plans]
    seed, approved = counts.seed(), 0
    for plan, (said, cancelled) in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        assert cancelled == "cancelled"
        assert settled(plan) == ("cancelled", "cancelled", "cancelled", "withdrawn")
        approved += isinstance(said, ApprovalRequest)
    assert stage.values("dangerous") == []
    report_race("approve against cancel", len(plans), seed=seed, approved_first=approved)


def test_cancel_against_the_start(plans, rosa, stage):
    """Either it runs to its end or it never starts."""
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


def test_the_start_against_the_end_of_its_window(plans, rosa, stage):
    """Either it runs or it has expired, never both."""
    for plan in plans:
        approve(plan, rosa)
    races: list[list[Act]] = [[partial(drive, plan, 0), partial(expire, request_of(plan))] for plan in plans]
    rounds_at_once(staggered(races, counts.seed()))
    outcomes = [settled(plan) for plan in plans]
    assert set(outcomes) <= {RAN, EXPIRED}
    assert len(stage.values("dangerous")) == outcomes.count(RAN)


def test_undo_against_the_clock(plans, rosa):
    """Either the decision is taken back and the request waits again, or it stands and the call may run."""
    requests = [say(request_of(plan), rosa, "page") for plan in plans]
    races: list[list[Act]] = [[partial(decisions.undo, each, by=rosa), partial(carry_out, each)] for each in requests]
    results = rounds_at_once(staggered(races, counts.seed()))
    for plan, (undone, _) in zip(plans, results, strict=True):
        stands = isinstance(undone, Conflict)
        expected = ("approved", "ready", True) if stands else ("pending", "held", False)
        claimable = step_of(plan).ready_at is not None
        assert (request_of(plan).status, call_of(plan).status, claimable) == expected
        assert_gapless(plan)


def test_one_ready_step_is_claimed_once(transactional_db, stage, ada, report_race):
    """However many workers come for it."""
    plans = [make_plan(ada, act(1, number)) for number in range(ROUNDS)]
    races = [[partial(engine.claim, plan.pk, owner=f"worker-{lane}") for lane in range(CLAIMERS)] for plan in plans]
    for results in rounds_at_once(races):
        assert [type(work) for work in results if work is not None] == [Run]
    assert Call.objects.count() == ROUNDS
    report_race(f"{CLAIMERS} claimers of one ready step", ROUNDS)


def test_one_approved_call_is_started_once(plans, rosa, stage, report_race):
    """Also by workers that all believe the step to be theirs."""
    races = []
    for plan in plans:
        approve(plan, rosa)
        resume = engine.claim(plan.pk, owner="one of many")
        assert isinstance(resume, Resume)
        races.append([partial(engine.advance, resume, Turn("one of many")) for _ in range(CLAIMERS)])
    for results in rounds_at_once(races):
        assert sorted(type(each).__name__ for each in results) == ["Conflict"] * (CLAIMERS - 1) + ["Run"]
    assert set(Call.objects.filter(tool_name="dangerous").values_list("attempt", flat=True)) == {1}
    report_race(f"{CLAIMERS} claimers of one approved call", ROUNDS)


def test_many_workers_share_a_plan(transactional_db, stage, ada, checked):
    """Every step runs once, the join last."""
    branches = [act(number, number, dependencies=[1]) for number in range(2, 42)]
    plan = make_plan(ada, act(1, 1), *branches, act(42, 42, dependencies=list(range(2, 42))))
    rounds_at_once([[partial(drive, plan, lane) for lane in range(WORKERS)]])
    assert work_off(plan).status == "completed"
    assert sorted(stage.values("safe")) == list(range(1, 43))
    assert_gapless(plan)


def test_a_late_finish_against_recovery(transactional_db, stage, ada, checked):
    """Either the worker was in time or it was not: the step ends once."""
    plans = [make_plan(ada, act(1, number, "cautious")) for number in range(ROUNDS)]
    races: list[list[Act]] = []
    for plan in plans:
        run = engine.claim(plan.pk, owner="late")
        assert isinstance(run, Run)
        races.append([partial(engine.advance, run, Turn("late")), take_back])
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
