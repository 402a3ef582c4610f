"""Limits of concurrent steps per plan and per tool, across processes, and fairness between plans."""

from collections.abc import Iterator

import pytest
from django.db import connection

from plans.actions.call import CallOrder, create_call
from plans.engine import hints as engine_hints
from plans.engine import limits as engine_limits
from plans.engine import loop
from plans.engine.loop import INLINE_STEPS, TimeSlice
from plans.engine.work import RunningCall
from plans.executor import worker_thread
from plans.executor.job_queue import JobQueue
from plans.executor.pool import ExecutorPool
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, make_plan, step, work_off
from tests.racing import at_once
from tests.waiting import eventually

pytestmark = pytest.mark.db


@pytest.fixture
def no_clock(transactional_db: None, workspace: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExecutorPool]:
    """Threads without a ticker: work that no hint announces is not found."""
    monkeypatch.setattr(worker_thread, "PATIENT_SECONDS", 60.0)  # or hints past a slow thread would be dropped
    pool = ExecutorPool(threads=2)
    pool.start()
    yield pool
    pool.stop(seconds=10)


def claim(plan: Plan, owner: str = "tests") -> RunningCall | None:
    """Claim a plan's next step as any worker does."""
    work = loop.claim_work(plan.pk, owner=owner)
    assert work is None or isinstance(work, RunningCall)
    return work


def running() -> int:
    """Count the steps that run."""
    return Step.objects.filter(lease_until__isnull=False).count()


def have_ended(plans: list[Plan]) -> bool:
    """Return whether all of them are completed."""
    return Plan.objects.filter(pk__in=[plan.pk for plan in plans], status="completed").count() == len(plans)


def test_concurrent_steps_of_a_plan_are_limited(stage, ada, settings):
    """The next step is claimed by the worker that ends one, in the same transaction."""
    settings.TOOLGATE_MAX_RUNNING_PER_PLAN = 2
    plan = make_plan(ada, *(act(number) for number in range(1, 6)))
    first, second = claim(plan), claim(plan)
    assert first and second
    assert (claim(plan), running()) == (None, 2)
    assert isinstance(loop.advance(first, TimeSlice("tests")), RunningCall)
    assert (running(), Plan.objects.get(pk=plan.pk).status) == (2, "in_progress")
    settings.TOOLGATE_MAX_RUNNING_PER_PLAN = 0
    assert claim(plan)
    assert running() == 3


@pytest.mark.django_db(transaction=True)
def test_concurrent_claims_are_counted(stage, ada, settings):
    """For one plan, and for one tool in many plans; a worker that was passed over finds the free slot."""
    settings.TOOLGATE_MAX_RUNNING_PER_PLAN = 3
    wide = make_plan(ada, *(act(number) for number in range(1, 9)))
    runs = at_once(*[lambda: claim(wide)] * 8)
    assert (len([run for run in runs if run]), running()) == (3, 3)
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL = {"patient": 3}
    plans = [make_plan(ada, act(1, tool="patient")) for _ in range(8)]
    at_once(*[lambda plan=plan: claim(plan) for plan in plans])
    assert 3 < running() <= 6
    for plan in plans:
        claim(plan)
    assert running() == 6


def test_waiting_step_does_not_block_other_steps(stage, ada, settings):
    """The plan continues with steps of other tools; a limit for every tool does not apply to notes."""
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL = {"patient": 1, "*": 2}
    held = make_plan(ada, act(1, tool="patient"))
    assert claim(held)
    plan = make_plan(ada, act(1, tool="patient"), act(2), act(3), act(4), step(5, None))
    assert [run.step.step_id for run in (claim(plan), claim(plan)) if run] == [2, 3]
    assert claim(plan) is None
    assert list(plan.steps.exclude(status="pending").values_list("step_id", flat=True)) == [2, 3, 5]


@pytest.mark.parametrize("limits", [{"patient": 1}, {"*": 2}])
def test_end_of_a_call_wakes_plans_waiting_for_its_tool(no_clock, stage, ada, settings, limits):
    """Without a ticker, and within the limit."""
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL, seen = limits, []
    stage.acts["patient"] = lambda value, context: seen.append(running())
    plans = [make_plan(ada, *(act(number, tool="patient") for number in (1, 2, 3))) for _ in range(6)]
    eventually(lambda: have_ended(plans), what="the end of all plans")
    assert (len(seen), max(seen) <= max(limits.values())) == (18, True)
    assert_gapless(plans[0])


def test_direct_call_waits_for_a_free_slot(no_clock, stage, ada, settings):
    """It is stored and claimed like a step, also if it joins a plan that is full."""
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL = {"cautious": 1}
    by = Requester(ada)
    calls = [create_call(CallOrder("cautious", {"value": number}), by=by) for number in (1, 2, 3)]
    assert [call.status for call in calls] == ["created"] * 3
    eventually(lambda: len(stage.values("cautious")) == 3, what="the calls")
    engine_hints.unregister_executor(no_clock)
    settings.TOOLGATE_MAX_RUNNING_PER_PLAN = 1
    engine_hints.register_executor(no_clock)
    plan = make_plan(ada, act(1, tool="dangerous"), act(2, tool="dangerous"))
    eventually(lambda: plan.steps.filter(waiting_for="approval").count() == 2, what="the requests")
    joined = create_call(CallOrder("safe", {"value": "x"}, plan_ref=plan.public_id), by=by)
    eventually(lambda: stage.values("safe") == ["x"], what="the call that joined")
    assert joined.step_ref == "3"


@pytest.mark.django_db(transaction=True)
def test_plans_are_served_round_robin(stage, ada, monkeypatch):
    """Small plans wait for one time slice of a wide plan, not for all of its ready steps."""
    hints = JobQueue(threads=2)

    def deliver(plan_pk: int, count: int = 1) -> None:
        for _ in range(count):
            hints.put(plan_pk)

    monkeypatch.setattr(engine_hints, "deliver_now", deliver)
    wide = make_plan(ada, *(act(number, number, "keeping") for number in range(1, INLINE_STEPS + 20)))
    small = [make_plan(ada, act(1), act(2, dependencies=[1])) for _ in range(5)]
    while not have_ended(small):
        plan_pk, turn = hints.get_nowait(), TimeSlice("tests")
        assert isinstance(plan_pk, int)
        work = loop.claim_work(plan_pk, owner="tests", time_slice=turn)
        while work is not None:
            work = loop.advance(work, turn)
    assert 0 < len(stage.values("keeping")) <= INLINE_STEPS
    assert work_off(wide).status == "completed"
    assert_gapless(wide)


def test_no_step_starves_when_both_limits_are_reached(stage, ada, settings):
    settings.TOOLGATE_MAX_RUNNING_PER_PLAN, settings.TOOLGATE_MAX_RUNNING_PER_TOOL = 1, {"*": 1}
    plans = [make_plan(ada, act(1), act(2, tool="patient"), act(3, tool="dangerous")) for _ in range(3)]
    assert [work_off(plan).status for plan in plans] == ["in_progress"] * 3
    assert (len(stage.values("safe")), len(stage.values("patient"))) == (3, 3)
    assert set(Step.objects.filter(step_id=3).values_list("waiting_for", flat=True)) == {"approval"}


@pytest.mark.django_db(transaction=True)
def test_other_plans_are_hinted_after_commit(stage, ada, settings, monkeypatch):
    """A hint's row written under the lock of the audit head could deadlock in a cluster."""
    settings.TOOLGATE_EXECUTOR, settings.TOOLGATE_MAX_RUNNING_PER_TOOL = "procrastinate", {"cautious": 1}
    told: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        engine_hints, "insert_jobs", lambda plan_pk, count: told.append((plan_pk, connection.in_atomic_block))
    )
    first, second = (make_plan(ada, act(1, tool="cautious")) for _ in range(2))
    run = claim(first)
    del told[:]
    assert run
    assert loop.advance(run, TimeSlice("tests")) is None
    assert (second.pk, False) in told
    assert {plan_pk for plan_pk, is_inside in told if is_inside} <= {first.pk}


@pytest.mark.django_db(transaction=True)
def test_locked_tool_does_not_block_other_tools(stage, ada, settings, monkeypatch):
    """A worker that misses the tool's lock claims a step of another tool."""
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL = {"patient": 1, "cautious": 1}
    monkeypatch.setattr(engine_limits, "try_lock_until_commit", lambda space, tool: tool != "patient")
    plan = make_plan(ada, act(1, tool="patient"), act(2, tool="cautious"))
    run = claim(plan)
    assert run and run.step.step_id == 2
    assert claim(plan) is None
