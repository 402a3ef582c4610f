"""Recovery of lost workers: steps are taken back, nothing dangerous runs twice, late results change nothing."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import AuditEntry, PolicyRevision
from catalog.core import clock
from catalog.errors import Conflict
from plans.actions.control import cancel_plan
from plans.engine import hints, loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.retries import CRASHES
from plans.engine.work import ApprovedCall, HeldCall, RunningCall
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.models import Plan, Step
from plans.store import statements
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.conftest import forget_what_was_read
from tests.plans.factories import claimed_and_lost, expire, started_and_lost, take_back
from tests.waiting import eventually

pytestmark = pytest.mark.db


def test_a_safe_call_runs_again(stage, ada):
    """The same call, with its next attempt."""
    plan = make_plan(ada, act(1, "x"), act(2, "y", dependencies=[1]))
    lost = claimed_and_lost(plan)
    assert take_back() == 1
    assert (step_of(plan).crashes, call_of(plan).status) == (1, "ready")
    assert work_off(plan).status == "completed"
    assert isinstance(lost, RunningCall)
    assert (call_of(plan), call_of(plan).attempt, stage.values("safe")) == (lost.call, 2, ["x", "y"])
    assert [kind for kind in events_of(plan) if kind.startswith("1 ")] == [
        "1 step.started", "1 call.started", "1 step.retrying", "1 step.started", "1 call.started", "1 call.succeeded",
        "1 tool.invoked", "1 step.completed",
    ]  # fmt: skip
    assert_gapless(plan)


def test_a_dangerous_call_never_runs_again_by_itself(stage, ada, rosa):
    """Even if it is declared retry-safe; a person must settle it."""
    plan = make_plan(ada, act(1, "x", "dangerous"), act(2, dependencies=[1]))
    started_and_lost(plan, rosa)
    assert take_back() == 1
    assert (call_of(plan).status, step_of(plan).waiting_for) == ("outcome_unknown", "outcome")
    assert (work_off(plan).status, stage.played, take_back()) == ("in_progress", [], 0)
    assert AuditEntry.objects.filter(action="step.outcome_unknown").count() == 1
    assert_gapless(plan)


@pytest.mark.parametrize(("tool", "status"), [("cautious", "outcome_unknown"), ("cautious_patient", "ready")])
def test_retry_safe_cautious_call_runs_again(stage, ada, tool, status):
    plan = make_plan(ada, act(1, tool=tool))
    claimed_and_lost(plan)
    take_back()
    assert call_of(plan).status == status


def test_approved_retry_safe_call_runs_again(stage, ada, rosa):
    """Without a second approval."""
    stages = [{"group": "reviewer", "count": 1}]
    PolicyRevision.objects.filter(safety_level="cautious").update(effect="hold", stages=stages)
    forget_what_was_read()
    plan = make_plan(ada, act(1, "x", "cautious_patient"))
    started_and_lost(plan, rosa)
    take_back()
    assert (work_off(plan).status, stage.values("cautious_patient")) == ("completed", ["x"])


def test_a_call_that_loses_every_worker_is_left_to_a_person(stage, ada):
    """The call may be what kills its workers."""
    plan = make_plan(ada, act(1))
    for _ in range(CRASHES):
        assert call_of_or_none(plan) in (None, "ready")
        claimed_and_lost(plan)
        take_back()
    assert (call_of(plan).status, call_of(plan).attempt) == ("outcome_unknown", CRASHES)
    assert loop.claim_work(plan.pk, owner="tests") is None


def call_of_or_none(plan: Plan) -> str | None:
    """Return the status of the first step's call, or None."""
    call = step_of(plan).call
    return call.status if call else None


def test_a_preview_that_kills_its_workers_fails_its_step(stage, ada):
    """Before an approval is requested."""
    plan = make_plan(ada, act(1, tool="dangerous"))
    for _ in range(CRASHES):
        assert isinstance(claimed_and_lost(plan), HeldCall)
        take_back()
    plan.refresh_from_db()
    assert (plan.status, step_of(plan).status, step_of(plan).call) == ("failed", "failed", None)
    assert f"lost {CRASHES} times" in step_of(plan).error
    assert_gapless(plan)


def test_approved_call_whose_preview_kills_workers_does_not_start(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    for _ in range(CRASHES):
        assert isinstance(claimed_and_lost(plan), ApprovedCall)
        take_back()
    assert (request_of(plan).status, call_of(plan).status) == ("invalidated", "cancelled")
    assert (step_of(plan).status, stage.played) == ("failed", [])


def test_late_result_of_a_lost_worker_changes_nothing(stage, ada):
    """It is stored as evidence."""
    plan = make_plan(ada, act(1, "x", expected_key="answer"), act(2, dependencies=[1]))
    late = claimed_and_lost(plan)
    assert isinstance(late, RunningCall)
    take_back()
    assert work_off(plan).status == "completed"
    before, events = Step.objects.filter(plan=plan).values().get(step_id=1), events_of(plan)
    assert loop.advance(late, TimeSlice("lost")) is None
    assert Step.objects.filter(plan=plan).values().get(step_id=1) == before
    assert (events_of(plan), call_of(plan).status) == (events, "completed")
    assert '"x"' in call_of(plan).late_evidence
    assert len(stage.values("safe")) == 3


def test_a_late_result_does_not_end_the_next_attempt(stage, ada):
    """Not even while that attempt runs."""
    plan = make_plan(ada, act(1, "x"))
    late = claimed_and_lost(plan)
    take_back()
    assert isinstance(loop.claim_work(plan.pk, owner="lost"), RunningCall)
    loop.advance(late, TimeSlice("lost", steps_left=0))
    assert (call_of(plan).status, call_of(plan).attempt, step_of(plan).status) == ("running", 2, "in_progress")


def test_late_result_of_a_dangerous_call_is_evidence(stage, ada, rosa):
    """The outcome stays unknown."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    late = started_and_lost(plan, rosa)
    take_back()
    loop.advance(late, TimeSlice("lost"))
    assert (call_of(plan).status, step_of(plan).waiting_for) == ("outcome_unknown", "outcome")
    assert '"x"' in call_of(plan).late_evidence


@pytest.mark.parametrize("tool", ["patient", "cautious"])
def test_a_late_failure_changes_nothing(stage, ada, tool):
    """Nor does a retryable one."""
    plan = make_plan(ada, act(1, tool=tool))
    late = claimed_and_lost(plan)
    take_back()
    before, events = Step.objects.filter(plan=plan).values().get(), events_of(plan)
    stage.acts[tool] = lambda value, context: 1 / 0
    loop.advance(late, TimeSlice("lost", steps_left=0))
    assert (Step.objects.filter(plan=plan).values().get(), events_of(plan)) == (before, events)


def test_lost_worker_cannot_hold_its_call(stage, ada):
    """Another worker's preview is used for the request."""
    plan = make_plan(ada, act(1, tool="dangerous"))
    late = claimed_and_lost(plan)
    take_back()
    work_off(plan)
    request = request_of(plan)
    with pytest.raises(Conflict):
        loop.advance(late, TimeSlice("lost"))
    assert request_of(plan) == request


def test_lease_is_shortened_after_the_clock_was_set_back(stage, ada, settings):
    """By an hour; a live worker has one lease period to renew it."""
    plan = make_plan(ada, act(1))
    claimed_and_lost(plan)
    back, lasts = clock.now() - timedelta(hours=1), timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
    assert recovery.take_back_lost_steps(back) == 0
    assert step_of(plan).lease_until == back + lasts
    assert recovery.take_back_lost_steps(back + lasts + timedelta(seconds=1)) == 1


def test_renewed_lease_is_not_taken_back(stage, ada, monkeypatch):
    """Even if the query just before saw it expired."""
    plan = make_plan(ada, act(1))
    claimed_and_lost(plan)
    seen = statements.lost_steps

    def seen_before_it_was_renewed(cursor: Any, **fields: Any) -> Any:
        lost = seen(cursor, **fields)
        Step.objects.update(lease_until=clock.now() + timedelta(seconds=30))
        return lost

    monkeypatch.setattr(statements, "lost_steps", seen_before_it_was_renewed)
    take_back()
    assert (call_of(plan).status, step_of(plan).claimed_by) == ("running", "lost")


def test_an_ended_plan_runs_nothing_again(stage, ada):
    """The call of a lost worker is cancelled with its step."""
    plan = make_plan(ada, act(1))
    claimed_and_lost(plan)
    cancel_plan(plan, by=Requester(ada))
    take_back()
    assert (call_of(plan).status, step_of(plan).status) == ("cancelled", "cancelled")
    assert (work_off(plan).status, stage.played, take_back()) == ("cancelled", [], 0)
    assert_gapless(plan)


@pytest.mark.usefixtures("short_leases", "executor")
def test_long_handlers_keep_their_lease(stage, ada):
    """It is renewed while they run longer than one period."""
    leases: list[Any] = []

    def renewed() -> bool:
        leases.append(step_of(plan).lease_until)
        return len(set(leases)) > 4

    def watch(value: Any, context: Any) -> None:
        eventually(renewed, what="the fourth renewal")

    stage.acts["cautious"] = watch
    plan = make_plan(ada, act(1, tool="cautious"))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    assert (step_of(plan).crashes, step_of(plan).attempt, len(stage.played)) == (0, 1, 1)


def test_ticker_runs_several_times_per_lease(db, settings):
    settings.TOOLGATE_LEASE_SECONDS = 1.0
    assert Ticker(None)._pause() <= 0.25
    settings.TOOLGATE_LEASE_SECONDS = 30.0
    assert Ticker(None)._pause() == 1.0


def test_ticker_finds_work_without_hints(executor, stage, ada, monkeypatch):
    """Also steps that become ready later."""
    monkeypatch.setattr(hints, "hint", lambda plan_pk, count=1: None)
    stage.acts["patient"] = lambda value, context: value if context.attempt > 1 else 1 / 0
    plan = make_plan(ada, act(1, tool="patient"), act(2, dependencies=[1]), act(3))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")


def test_a_stopped_executor_leaves_nothing_half_done(executor, stage, ada):
    """Running calls finish, nothing more is claimed, and the next process continues."""
    stage.acts["cautious"] = lambda value, context: executor._stopping.wait(60)
    plan = make_plan(ada, act(1, tool="cautious"), act(2, dependencies=[1]))
    eventually(lambda: stage.played, what="the first step")
    executor.stop(seconds=60)
    assert [step_of(plan, number).status for number in (1, 2)] == ["completed", "pending"]
    assert not Step.objects.exclude(claimed_by="", lease_until=None).exists()
    other = ExecutorPool(threads=1)
    other.start()
    Ticker(other).tick()
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    other.stop()


def taken_over(plan: Plan) -> tuple[ApprovedCall, ApprovedCall]:
    """Let a worker miss its lease on an approved call; return its work and that of its successor."""
    slow = claimed_and_lost(plan)
    take_back()
    quick = loop.claim_work(plan.pk, owner="quick")
    assert isinstance(slow, ApprovedCall)
    assert isinstance(quick, ApprovedCall)
    return slow, quick


@pytest.fixture
def approved(stage: Any, ada: User, rosa: User) -> Plan:
    """A plan whose dangerous step is approved and has not started."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(plan, rosa)
    return plan


def test_a_worker_that_lost_its_lease_starts_nothing(approved, stage):
    """Its successor does."""
    slow, quick = taken_over(approved)
    with pytest.raises(Conflict), transaction.atomic():
        loop.advance(slow, TimeSlice("lost"))
    run = loop.advance(quick, TimeSlice("quick"))
    assert isinstance(run, RunningCall)
    loop.advance(run, TimeSlice("quick"))
    assert (call_of(approved).status, stage.values("dangerous")) == ("completed", ["x"])


def test_a_worker_that_lost_its_lease_fails_nothing(approved, stage):
    """Its refusal does not affect the call that runs elsewhere."""
    slow, quick = taken_over(approved)
    run = loop.advance(quick, TimeSlice("quick"))
    assert isinstance(run, RunningCall)
    loop.abandon(slow)
    assert (call_of(approved).status, step_of(approved).status) == ("running", "in_progress")
    loop.advance(run, TimeSlice("quick"))
    assert (call_of(approved).status, work_off(approved).status) == ("completed", "completed")


@pytest.mark.parametrize("lost", [True, False])
def test_delayed_worker_checks_its_lease_before_the_handler(approved, stage, lost):
    """A person may have been asked about the outcome; the late result is stored for them."""
    run = loop.advance(claimed_and_lost(approved), TimeSlice("lost"))
    assert isinstance(run, RunningCall)
    if lost:
        expire(approved)
        take_back()
    run.call.started_at = clock.now() - timedelta(seconds=30)
    loop.advance(run, TimeSlice("lost"))
    call = call_of(approved)
    assert (call.status, stage.values("dangerous")) == (("outcome_unknown", []) if lost else ("completed", ["x"]))
    assert (call.late_evidence != "") == lost


def test_released_work_goes_to_another_worker(stage, ada, rosa):
    """Released before its request and before its start: nothing was requested, consumed or counted."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    for kind in (HeldCall, ApprovedCall):
        work = loop.claim_work(plan.pk, owner="stopping")
        assert isinstance(work, kind)
        recovery.release_claim(work)
        assert (step_of(plan).claimed_by, step_of(plan).lease_until, step_of(plan).crashes) == ("", None, 0)
        work_off(plan)
        if kind is HeldCall:
            approve(plan, rosa)
    assert Plan.objects.get(pk=plan.pk).status == "completed"
    assert (call_of(plan).attempt, stage.values("dangerous")) == (1, ["x"])
    assert events_of(plan).count("1 step.retrying") == 2
    assert_gapless(plan)
