"""Restarts: work that became due while no process ran is done by the next process's first tick."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core import clock
from plans.engine import loop
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.models import Plan, Step
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, work_off
from tests.waiting import eventually

PAST = timedelta(seconds=1)


@pytest.fixture
def left_behind(transactional_db, stage, ada, rosa):
    """Plans left by a process that ended, one for each kind of timed work."""
    stage.acts["patient"] = lambda value, context: value if context.attempt > 1 else 1 / 0
    tools = {"backoff": "patient", "undo": "dangerous", "expiry": "dangerous", "window": "dangerous", "lease": "safe"}
    plans = {name: make_plan(ada, act(1, name, tool)) for name, tool in tools.items()}
    plans["deadline"] = make_plan(ada, act(1, tool="dangerous"), deadline_seconds=60)
    for name in ("backoff", "undo", "expiry", "window", "deadline"):
        work_off(plans[name])
    loop.claim_work(plans["lease"].pk, owner="lost")
    decide(
        request_of(plans["undo"]),
        by=rosa,
        decision=Decision(ReviewVerdict.APPROVE, request_of(plans["undo"]).digest, channel="page"),
    )
    approve(plans["window"], rosa)
    return plans


def let_time_pass(plans: dict[str, Plan]) -> None:
    """Make everything due."""
    past = clock.now() - PAST
    Step.objects.filter(plan=plans["backoff"]).update(ready_at=past)
    Step.objects.filter(plan=plans["lease"]).update(lease_until=past)
    Plan.objects.filter(pk=plans["deadline"].pk).update(deadline_at=past)
    requests = {
        name: ApprovalRequest.objects.filter(pk=request_of(plans[name]).pk) for name in ("undo", "expiry", "window")
    }
    requests["undo"].update(effective_at=past)
    requests["expiry"].update(expires_at=past)
    requests["window"].update(not_after=past)


def test_one_tick_does_everything_that_is_due(left_behind, stage):
    """Retries, decisions, expired requests and approvals, lost workers."""
    let_time_pass(left_behind)
    pool = ExecutorPool(threads=2)
    pool.start()
    Ticker(pool).tick()
    eventually(lambda: all(Plan.objects.get(pk=plan.pk).completed_at for plan in left_behind.values()), what="all ends")
    pool.stop(seconds=10)
    statuses = {name: Plan.objects.get(pk=plan.pk).status for name, plan in left_behind.items()}
    assert statuses == dict.fromkeys(("backoff", "undo", "lease"), "completed") | dict.fromkeys(
        ("expiry", "window", "deadline"), "failed"
    )
    assert (stage.values("patient"), stage.values("dangerous")) == (["backoff"] * 2, ["undo"])
    assert {request_of(left_behind[name]).status for name in ("expiry", "window")} == {"expired"}
    for plan in left_behind.values():
        assert_gapless(plan)


def test_claim_notices_that_the_run_window_has_passed(left_behind, stage):
    """Without a ticker."""
    plan = left_behind["window"]
    let_time_pass(left_behind)
    assert work_off(plan).status == "failed"
    assert (request_of(plan).status, call_of(plan).status, stage.values("dangerous")) == ("expired", "failed", [])
