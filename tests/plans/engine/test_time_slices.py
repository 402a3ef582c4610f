"""Time slices of workers, and processes that stop: nothing new starts."""

import threading
from typing import Any

import pytest

from approvals.states import RequestStatus
from catalog.models import Call
from plans.engine import hints as engine_hints
from plans.engine import loop
from plans.engine.admission import SETTLED_AT_ONCE
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, HeldCall, RateLimitedCall, WorkItem
from plans.executor.pool import ExecutorPool
from plans.models import Plan
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step, step_of, work_off
from tests.waiting import eventually


@pytest.fixture
def stopping() -> threading.Event:
    """An event that is set when the process is told to stop."""
    return threading.Event()


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of workers of each hint."""
    sent: list[int] = []
    monkeypatch.setattr(engine_hints, "hint", lambda plan_pk, count=1: sent.append(count) if count > 0 else None)
    return sent


def claimed(plan: Plan, kind: type[Any]) -> Any:
    """Claim a plan's next step, which must be work of this kind."""
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, kind)
    return work


def advance(work: WorkItem, stopping: threading.Event) -> WorkItem | None:
    """Do one piece of work in a process that may be stopping."""
    return loop.advance(work, TimeSlice("tests", stopping=stopping))


def test_approved_call_does_not_start_in_a_stopping_process(stage, ada, rosa, stopping):
    """The process stops during the preview: the approval is kept for another process."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(plan, rosa)
    resume = claimed(plan, ApprovedCall)
    stage.previews["dangerous"] = lambda value, context: stopping.set()
    assert advance(resume, stopping) is None
    assert (request_of(plan).status, call_of(plan).status) == (RequestStatus.APPROVED, "ready")
    assert (step_of(plan).claimed_by, step_of(plan).ready_at is None, stage.played) == ("", False, [])
    assert events_of(plan)[-1] == "1 step.retrying"
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]


def test_nothing_starts_after_a_preview_in_a_stopping_process(stage, ada, stopping):
    """The held call is stored; the next step is left to other processes."""
    plan = make_plan(ada, act(1, tool="dangerous"), act(2))
    hold = claimed(plan, HeldCall)
    stage.previews["dangerous"] = lambda value, context: stopping.set()
    assert advance(hold, stopping) is None
    assert (step_of(plan).waiting_for, step_of(plan, 2).status, Call.objects.count()) == ("approval", "pending", 1)


def test_counted_call_does_not_start_in_a_stopping_process(stage, ada, stopping):
    """Nor does one of another step, if its own has to wait."""
    plans = [make_plan(ada, act(1, number, "limited")) for number in (1, 2, 3)]
    works = [claimed(plan, RateLimitedCall) for plan in plans]
    stopping.set()
    assert [advance(work, stopping) for work in works] == [None] * 3
    assert (stage.played, Call.objects.count()) == ([], 0)


def test_worker_that_stops_while_waiting_for_a_plan_claims_nothing(stage, ada, stopping, hints):
    """It hints other workers at the plan."""
    plan = make_plan(ada, act(1))
    stopping.set()
    del hints[:]
    assert loop.claim_work(plan.pk, owner="tests", time_slice=TimeSlice("tests", stopping=stopping)) is None
    assert (step_of(plan).status, hints) == ("pending", [1])


def test_executor_that_retires_during_a_preview_starts_nothing(transactional_db, stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, dependencies=[1])))
    approve(plan, rosa)
    pool = ExecutorPool(threads=1)
    stage.previews["dangerous"] = lambda value, context: pool.retire()
    pool.start()
    engine_hints.deliver_now(plan.pk)
    eventually(pool._stopping.is_set, what="the preview")
    pool.stop(seconds=60)
    assert (request_of(plan).status, step_of(plan).lease_until, stage.played) == (RequestStatus.APPROVED, None, [])


@pytest.mark.parametrize(("tool", "kind"), [("dangerous", HeldCall), ("limited", RateLimitedCall)])
def test_waiting_steps_count_for_the_time_slice(stage, ada, hints, tool, kind):
    """So that a plan of such steps cannot keep a worker."""
    plan = make_plan(ada, act(1, tool=tool), act(2))
    work = claimed(plan, kind)
    del hints[:]
    turn = TimeSlice("tests", steps_left=1)
    while work is not None:
        work = loop.advance(work, turn)
    assert (step_of(plan, 2).status, hints) == ("pending", [1])


def test_end_of_a_time_slice_hints_at_all_ready_steps(stage, ada, hints):
    """So that the branches of a fan-out run concurrently at once."""
    plan = make_plan(ada, act(1), *(act(number, dependencies=[1]) for number in (2, 3, 4)))
    work = loop.claim_work(plan.pk, owner="tests")
    del hints[:]
    assert work is not None
    assert loop.advance(work, TimeSlice("tests", steps_left=0)) is None
    assert hints == [3]


def test_worker_that_settles_many_steps_hints_at_the_rest(stage, ada, hints):
    notes = [step(number, None) for number in range(1, SETTLED_AT_ONCE + 1)]
    wide = [act(number) for number in range(SETTLED_AT_ONCE + 1, SETTLED_AT_ONCE + 6)]
    plan = make_plan(ada, *notes, *wide)
    del hints[:]
    assert loop.claim_work(plan.pk, owner="tests") is None
    assert hints == [5]
