"""Threads detached while they wait for async handlers: others use their slots and connections."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import connection

from catalog.core import clock
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.engine import recovery
from plans.engine.cancellation import end_overdue_plans
from plans.executor import pool as executors
from plans.executor import worker_thread
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.metrics import REGISTRY
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, call_of, make_plan, step_of
from tests.invariants import assert_invariants
from tests.tools_for_tests import Stage
from tests.waiting import eventually

MOST = 3


@pytest.fixture
def pool(transactional_db: None, catalog: None, workspace: Path) -> Iterator[ExecutorPool]:
    """A pool of one thread, without a ticker."""
    pool = ExecutorPool(threads=1)
    pool.start()
    yield pool
    pool.stop(seconds=10)


@pytest.fixture
def ticker(pool: ExecutorPool, short_leases: None) -> Iterator[Ticker]:
    """The pool's ticker, with the renewal of leases."""
    ticker = Ticker(pool)
    ticker.start()
    yield ticker
    ticker.stop()


@pytest.fixture
def gate(pool: ExecutorPool, stage: Stage) -> Iterator[threading.Event]:
    """An event for which the async handlers wait; it is set at the end of the test."""
    gate = threading.Event()
    for name in ("safe_async", "cautious_async"):
        stage.acts[name] = lambda value, context: wait_for(gate, value)
    yield gate
    gate.set()


async def wait_for(gate: threading.Event, value: Any) -> Any:
    """Return the value once the gate is open."""
    while not gate.is_set():
        await asyncio.sleep(0.01)
    return value


async def refuse_to_stop(gate: threading.Event) -> str:
    """Return once the gate is open, ignoring cancellation."""
    while not gate.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
    return "late"


def waiting(author: User, count: int = 1, tool: str = "safe_async") -> Plan:
    """Create a plan with this many waiting steps in parallel, and one that depends on the first."""
    steps = [act(number, number, tool) for number in range(1, count + 1)]
    return make_plan(author, *steps, act(count + 1, "after", dependencies=[1]))


def are_detached(pool: ExecutorPool, count: int) -> Callable[[], bool]:
    """Return a function that returns whether this many threads are detached."""
    return lambda: len(pool._detached) == count


def has_ended(plan: Plan) -> bool:
    """Return whether the plan is completed."""
    return Plan.objects.get(pk=plan.pk).status == "completed"


def test_another_plan_runs_while_the_only_thread_waits(pool, stage, ada, gate):
    plan = waiting(ada)
    eventually(are_detached(pool, 1), what="the wait")
    other = make_plan(ada, act(1, "x"), act(2, "y", dependencies=[1]))
    eventually(partial(has_ended, other), what="the other plan's end")
    assert (step_of(plan).status, len(pool._active)) == ("in_progress", 1)
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    assert stage.values("safe") == ["x", "y", "after"]
    eventually(lambda: pool._finishing._value == 1, what="the thread's end")
    assert (len(pool._active), len(pool._detached)) == (1, 0)
    assert_gapless(plan)


def test_steps_of_one_plan_wait_concurrently(pool, stage, ada, gate):
    """More than there are threads, without a ticker."""
    plan = waiting(ada, 12)
    eventually(are_detached(pool, 12), what="all the waits")
    assert sorted(stage.values("safe_async")) == list(range(1, 13))
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    eventually(are_detached(pool, 0), what="the threads' end")
    assert_gapless(plan)
    assert_invariants()


def test_number_of_detached_threads_is_limited(pool, stage, ada, gate, monkeypatch):
    """The next thread is not replaced, and the process reports that it is full; all of them end."""
    monkeypatch.setattr(executors, "MAX_DETACHED", MOST)
    plan = waiting(ada, MOST + 2)
    eventually(lambda: len(stage.values("safe_async")) == MOST + 1 and pool.is_full(), what="the full executor")
    assert (len(pool._detached), pool.busy_threads()) == (MOST, 1)
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    assert len(stage.values("safe_async")) == MOST + 2


def test_thread_is_not_detached_if_no_thread_can_be_started(pool, stage, ada, gate, monkeypatch):
    tried = threading.Event()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name != "toolgate-executor":
            start(thread)
            return
        tried.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        plan = waiting(ada)
        assert tried.wait(60)
    eventually(lambda: (len(pool._active), len(pool._detached)) == (1, 0), what="the active thread")
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")


def test_thread_of_a_quick_handler_is_not_detached(pool, stage, ada, monkeypatch):
    """It continues with the plan."""
    monkeypatch.setattr("catalog.dispatch.runner.SHORT_WAIT_SECONDS", 60.0)
    stage.acts["safe_async"] = lambda value, context: asyncio.sleep(0.1, threading.get_ident())
    active = set(pool._active)
    plan = waiting(ada)
    eventually(partial(has_ended, plan), what="the plan's end")
    assert pool._active == active


def test_thread_of_a_sync_handler_is_not_detached(pool, stage, ada, gate):
    """Even if it waits for the event loop itself: it may hold anything open."""
    stage.acts["safe"] = lambda value, context: wait_for(gate, value)
    plan = make_plan(ada, act(1, "x"))
    eventually(lambda: any(worker.is_long() for worker in pool._all()), what="the wait")
    assert (len(pool._active), len(pool._detached)) == (1, 0)
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")


def reported_state(pool: ExecutorPool) -> tuple[list[float | None], bool, bool, list[str]]:
    """Return the metrics and probes: busy, idle, aside and late threads, and whether more work is taken."""
    pool.measure()
    names = ("busy", "idle", "aside", "late")
    counts = [REGISTRY.get_sample_value("toolgate_executor_threads", {"state": name}) for name in names]
    return counts, pool.has_threads(), pool.is_full(), pool.late_tools()


def test_metrics_and_probes_count_detached_threads(pool, stage, ada, gate, client):
    """They are neither idle nor late, and the process takes more work."""
    waiting(ada, 2)
    eventually(are_detached(pool, 2), what="the waits")
    eventually(lambda: reported_state(pool) == ([0, 1, 2, 0], True, False, []), what="an idle thread and two aside")
    assert client.get("/readyz").json()["checks"]["executor"] == "ok"


def test_detached_call_is_cancelled_with_its_plan(pool, stage, ada, gate):
    plan = waiting(ada, 2)
    eventually(are_detached(pool, 2), what="the waits")
    assert {running_call.plan.pk for running_call in pool.calls_at_work()} == {plan.pk}
    cancel_plan(plan, by=Requester(ada))
    eventually(lambda: {step_of(plan, number).status for number in (1, 2)} == {"cancelled"}, what="the steps' end")
    eventually(are_detached(pool, 0), what="the threads' end")
    assert (call_of(plan).error_kind, call_of(plan).left_running_at) == ("stopped", None)
    assert_gapless(plan)


def test_detached_call_that_cannot_be_stopped_is_reported(pool, stage, ada, gate, monkeypatch):
    """It counts as late and occupies no thread; its late result is evidence."""
    monkeypatch.setattr(worker_thread, "STOP_SECONDS", 0.0)
    stage.acts["cautious_async"] = lambda value, context: refuse_to_stop(gate)
    plan = waiting(ada, 3, "cautious_async")
    eventually(are_detached(pool, 3), what="the waits")
    cancel_plan(plan, by=Requester(ada))
    pool.end_overdue()
    assert [step_of(plan, number).waiting_for for number in (1, 2, 3)] == ["outcome"] * 3
    assert (pool.late_tools(), pool.working_on(), pool.has_threads()) == (["cautious_async"] * 3, [], True)
    eventually(partial(has_ended, make_plan(ada, act(1))), what="the other plan's end")
    gate.set()
    eventually(lambda: call_of(plan).came_back_at, what="the handler's return")
    assert json.loads(call_of(plan).late_evidence)["results"] == ["late"]
    eventually(lambda: not pool.late_tools(), what="the threads' end")
    assert len(pool._active) == 1


def test_deadline_of_a_plan_stops_a_detached_call(pool, stage, ada, gate):
    plan = make_plan(ada, act(1, tool="safe_async"), deadline_seconds=3600)
    eventually(are_detached(pool, 1), what="the wait")
    end_overdue_plans(clock.now() + timedelta(seconds=3601))
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    assert Plan.objects.get(pk=plan.pk).status == "failed"


def test_deadline_of_a_tool_stops_a_detached_call(pool, stage, ada):
    stage.acts["hasty_async"] = lambda value, context: asyncio.sleep(600)
    plan = make_plan(ada, act(1, tool="hasty_async"))
    eventually(lambda: step_of(plan).waiting_for == "outcome", what="the unknown outcome")
    assert call_of(plan).status == "outcome_unknown"


def test_stopping_executor_waits_for_a_detached_call(pool, stage, ada, gate):
    """Queued calls run in the meantime; nothing more starts after its end."""
    stage.acts["safe_async"] = lambda value, context: wait_for(pool._stopping, value)
    plan = waiting(ada)
    eventually(are_detached(pool, 1), what="the wait")
    pool.stop(seconds=60)
    assert (step_of(plan).status, step_of(plan, 2).status, pool._all()) == ("completed", "pending", [])
    assert stage.values("safe") == []


def test_detached_call_that_outlasts_the_drain_is_logged(pool, stage, ada, gate, caplog):
    plan = waiting(ada)
    eventually(are_detached(pool, 1), what="the wait")
    pool.stop(seconds=0.1)
    assert "a step still runs after 0.1 s" in caplog.text
    gate.set()
    eventually(lambda: not pool._all(), what="the thread's end")
    assert step_of(plan).status == "completed"


def test_lease_of_a_detached_call_is_renewed(ticker, ada, gate):
    plan, leases = waiting(ada), set()

    def renewed() -> bool:
        leases.add(step_of(plan).lease_until)
        return len(leases) > 4

    eventually(renewed, what="the fourth renewal")
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    assert (step_of(plan).attempt, step_of(plan).crashes) == (1, 0)


def test_detached_call_without_a_lease_changes_nothing(pool, stage, ada, gate):
    """Another attempt has run; the first result is stored as evidence."""
    stage.acts["safe_async"] = lambda value, context: wait_for(gate, "first") if context.attempt == 1 else "second"
    plan = waiting(ada)
    eventually(are_detached(pool, 1), what="the wait")
    Step.objects.filter(plan=plan, step_id=1).update(lease_until=clock.now() - timedelta(seconds=1))
    recovery.take_back_lost_steps(clock.now())
    eventually(partial(has_ended, plan), what="the plan's end")
    gate.set()
    eventually(lambda: call_of(plan).late_evidence, what="the evidence")
    evidence = json.loads(call_of(plan).late_evidence)
    assert (evidence["results"], call_of(plan).response_json["results"]) == (["first"], ["second"])


def test_direct_call_is_answered_while_another_waits(pool, stage, ada, gate):
    waiting(ada, 2)
    eventually(are_detached(pool, 2), what="the waits")
    call = create_call(CallOrder("safe", {"value": "x"}), by=Requester(ada))
    eventually(lambda: Call.objects.get(pk=call.pk).status == "completed", what="the call's end")


def test_detached_calls_count_for_the_limit_of_a_tool(pool, stage, ada, gate, settings):
    settings.TOOLGATE_MAX_RUNNING_PER_TOOL = {"safe_async": 2}
    plan = waiting(ada, 4)
    eventually(are_detached(pool, 2), what="the waits")
    eventually(partial(has_ended, make_plan(ada, act(1))), what="another plan's end")
    assert (len(stage.values("safe_async")), len(pool._detached)) == (2, 2)
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")


@pytest.mark.service
def test_detached_threads_close_their_connections(pool, stage, ada, gate):
    def in_use() -> int:
        stats = cast("Any", connection).pool.get_stats()
        return int(stats["pool_size"] - stats["pool_available"])

    most = in_use() + 1  # earlier tests of this process may have left some; one is for the pool's only idle thread
    plan = waiting(ada, 12)
    eventually(are_detached(pool, 12), what="the waits")
    eventually(lambda: in_use() <= most, what="the connections' return")
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    eventually(are_detached(pool, 0), what="the threads' end")
    eventually(lambda: in_use() <= most, what="the connections' return")
