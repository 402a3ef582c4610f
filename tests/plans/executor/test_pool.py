"""The thread pool: dead threads are replaced, delayed hints, results after database errors, and logging."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from django.db import OperationalError, connection

from approvals.models import ApprovalRequest
from approvals.requests import deadlines
from approvals.reviews import effects
from catalog.core import clock
from catalog.dispatch.pipeline import CallOutcome
from catalog.models import Call, IdempotencyKey
from catalog.rest.idempotency import KEY_LIFETIME_HOURS
from plans.actions.call import CallOrder, create_call
from plans.engine import cancellation, hints, loop, recovery
from plans.engine.work import RunningCall, WorkItem
from plans.executor import worker_thread
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import SHORTEST_SECONDS, Ticker
from plans.executor.worker_thread import ThreadState, WorkerThread
from plans.models import Plan
from plans.store import statements
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, call_of, make_plan, step_of, work_off
from tests.waiting import eventually

pytestmark = pytest.mark.db

SECRET = "hunter2"


def has_ended(plan: Plan) -> bool:
    """Return whether the plan is completed."""
    return Plan.objects.get(pk=plan.pk).status == "completed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("end", [SystemExit("hunter2"), RuntimeError("hunter2")])
def test_a_thread_that_dies_is_replaced(executor, stage, ada, monkeypatch, end):
    deaths, claim = [end] * 3, loop.claim_work

    def die_first(plan_pk, *, owner, time_slice):
        if deaths:
            raise deaths.pop()
        return claim(plan_pk, owner=owner, time_slice=time_slice)

    monkeypatch.setattr(loop, "claim_work", die_first)
    plan = make_plan(ada, act(1))
    eventually(lambda: has_ended(plan), what="the plan's end")
    eventually(lambda: len(executor._active) == 2, what="two threads")


@pytest.mark.django_db(transaction=True)
def test_errors_are_logged_without_their_message(stage, ada, monkeypatch, caplog):
    """It may contain arguments."""

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(loop, "claim_work", fail)
    monkeypatch.setattr(effects, "apply_due", fail)
    monkeypatch.setattr(deadlines, "next_due", fail)
    pool = ExecutorPool(threads=1)
    with caplog.at_level(logging.INFO, "toolgate"):
        pool._add_thread()
        pool._hints.put(make_plan(ada, act(1)).pk)
        Ticker(None).tick()
        assert Ticker(None)._pause() == 1.0
        eventually(lambda: "was dropped" in caplog.text, what="the thread's words")
        pool.stop(seconds=5)
    assert "cut short: apply" in caplog.text
    assert (SECRET in caplog.text, caplog.text.count("Unexpected RuntimeError")) == (False, 3)


def test_failing_job_of_the_ticker_does_not_stop_the_others(stage, ada, monkeypatch):
    plans = [make_plan(ada, act(1), deadline_seconds=60) for _ in range(2)]
    for plan in plans:
        loop.claim_work(plan.pk, owner="lost")
    later, fails = clock.now() + timedelta(seconds=61), iter([True, False, True, False])
    for module, name in ((recovery, "_reassign"), (cancellation, "terminate_plan")):
        monkeypatch.setattr(module, name, lambda *arguments, **options: 1 / 0 if next(fails) else None)
    monkeypatch.setattr(statements, "is_lost", lambda *arguments, **options: True)
    assert (recovery.take_back_lost_steps(later), cancellation.end_overdue_plans(later)) == (1, 1)


def test_call_queued_while_stopping_is_released(transactional_db, stage, ada):
    """At once, without counting an attempt."""
    stopped, other = ExecutorPool(threads=1), ExecutorPool(threads=1)
    hints.register_executor(stopped)
    stopped._add_thread()
    with given_late(stopped) as taken:
        call = create_call(CallOrder("cautious", {"value": "x"}), by=Requester(ada))
    stopped.stop(seconds=10)
    stopped.run_call(*taken)
    assert Call.objects.get(pk=call.pk).status == "ready"
    assert step_of(Plan.objects.get(public_id=call.plan_ref)).lease_until is None
    other.start()
    hints.deliver_now(Plan.objects.get(public_id=call.plan_ref).pk)
    eventually(lambda: Call.objects.get(pk=call.pk).status == "completed", what="the call's end")
    other.stop(seconds=10)
    assert (stage.values("cautious"), Call.objects.get(pk=call.pk).attempt) == (["x"], 1)
    assert_gapless(Plan.objects.get(public_id=call.plan_ref))


def has_called(stage, times):
    """Return whether the safe tool was called this many times."""
    return len(stage.values("safe")) == times


def test_executor_is_full_when_all_threads_run_long_tools(transactional_db, stage, ada):
    """Then hints are left to other processes, although none waits here."""
    gate, pool = threading.Event(), ExecutorPool(threads=2)
    stage.acts["safe"] = lambda value, context: gate.wait(60)
    pool.start()
    for number in (1, 2):
        assert not pool.is_full()
        make_plan(ada, act(1, number))
        eventually(partial(has_called, stage, number), what="the calls")
    eventually(pool.is_full, what="the executor's being full")
    assert pool._hints.waiting() == 0
    gate.set()
    eventually(lambda: not pool.is_full(), what="an idle thread")
    pool.stop(seconds=10)


def test_threads_are_idle_after_their_time_slice(transactional_db, stage, ada, monkeypatch):
    """The next hint is for them, not for other processes."""
    monkeypatch.setattr(worker_thread, "LONG_SECONDS", 0.0)
    pool = ExecutorPool(threads=2)
    pool.start()
    eventually(partial(has_ended, make_plan(ada, act(1))), what="the plan's end")
    eventually(lambda: not pool.busy_threads(), what="two idle threads")
    assert not pool.is_full()
    assert not any(worker.is_long() for worker in pool._all())
    pool.stop(seconds=10)


def test_slow_steps_of_one_plan_run_concurrently(transactional_db, stage, ada, monkeypatch):
    """On all threads, although the hints arrive while the step before them is being written; without a ticker."""
    monkeypatch.setattr(worker_thread, "PATIENT_SECONDS", 60.0)
    gate, pool = threading.Event(), ExecutorPool(threads=4)
    stage.acts["safe"] = lambda value, context: value == "root" or gate.wait(60)
    pool.start()
    plan = make_plan(ada, act(1, "root"), *(act(number, dependencies=[1]) for number in range(2, 8)))
    eventually(partial(has_called, stage, 5), what="four calls at once")
    gate.set()
    eventually(partial(has_ended, plan), what="the plan's end")
    pool.stop(seconds=10)


@pytest.fixture
def held_back(transactional_db: None) -> Iterator[tuple[ExecutorPool, WorkerThread, threading.Thread]]:
    """Two delayed hints of plan 7, on which a thread writes; no thread can follow them."""
    pool, worker = ExecutorPool(threads=2), WorkerThread(loop.TimeSlice("tests"), plan_pk=7)
    pool._active.add(worker)
    holder = threading.Thread(target=pool._needs_help, args=[7], daemon=True)
    holder.start()
    eventually(lambda: pool._delayed_hints[7] == 1, what="the first hint")
    assert not pool._needs_help(7)
    yield pool, worker, holder
    worker.plan_pk = None
    holder.join(60)


def test_delayed_hints_are_followed_when_a_second_thread_helps(held_back, monkeypatch):
    """Both, as soon as the working thread runs a long tool."""
    pool, worker, holder = held_back
    looks, needs_nobody = [], pool._needs_nobody

    def look(plan_pk: int) -> bool:
        looks.append(plan_pk)
        return bool(needs_nobody(plan_pk))

    monkeypatch.setattr(pool, "_needs_nobody", look)
    eventually(lambda: len(looks) > 3, what="further looks")
    assert (holder.is_alive(), pool._hints.waiting()) == (True, 0)
    worker.state = ThreadState.IN_TOOL
    holder.join(60)
    assert pool._needs_help(7)
    assert (pool._hints.waiting(), pool._hints.get(), pool._hints.get(), dict(pool._delayed_hints)) == (2, 7, 7, {})


@pytest.mark.parametrize("job", [8, None])
def test_thread_that_delays_hints_takes_other_work(held_back, job):
    """Another plan, or the end of the process; the hints are queued behind it."""
    pool, _, holder = held_back
    pool._hints.put(job)
    holder.join(60)
    assert [pool._hints.get() for _ in range(3)] == [job, 7, 7]


@contextmanager
def given_late(executor: ExecutorPool) -> Iterator[list[RunningCall]]:
    """Delay the calls queued for the executor, like a web thread about to queue one."""
    taken: list[RunningCall] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "run_call", taken.append)
        yield taken


def test_queued_calls_are_released_at_the_end(transactional_db, stage, ada, caplog):
    """A running call is waited for until the drain timeout and then logged."""
    gate = threading.Event()
    stage.acts["safe"] = lambda value, context: gate.wait(60)
    pool = ExecutorPool(threads=1)
    pool.start()
    calls = [create_call(CallOrder("safe", {}), by=Requester(ada)) for _ in range(2)]
    eventually(lambda: stage.values("safe"), what="the first call")
    pool.stop(seconds=0.1)
    assert [Call.objects.get(pk=call.pk).status for call in calls] == ["running", "ready"]
    assert "a step still runs after 0.1 s" in caplog.text
    gate.set()
    eventually(lambda: not pool._active, what="the thread's end")
    assert Call.objects.get(pk=calls[0].pk).status == "completed"


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[RunningCall]:
    """The calls whose end was written, once for each attempt to write it."""
    begun, end = list[RunningCall](), loop.finish_and_claim_next

    def begin(run: RunningCall, outcome: CallOutcome, turn: loop.TimeSlice) -> WorkItem | None:
        begun.append(run)
        return end(run, outcome, turn)

    monkeypatch.setattr(loop, "finish_and_claim_next", begin)
    return begun


def lose_the_database(tries: list[RunningCall]) -> str:
    """Let the connection fail when the result is written, until the second attempt."""
    if connection.vendor == "postgresql":
        mine = connection.connection.info.backend_pid
        with psycopg.connect(connection.connection.info.dsn, password="toolgate", autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [mine])
    else:
        connection.cursor().execute("PRAGMA busy_timeout = 20")
        locked = threading.Event()
        threading.Thread(target=keep_the_lock, args=[connection.settings_dict["NAME"], locked, tries]).start()
        assert locked.wait(60)
    return "kept"


def keep_the_lock(path: str, locked: threading.Event, tries: list[RunningCall]) -> None:
    """Block other writers until the first attempt to end the call has failed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        locked.set()
        eventually(lambda: len(tries) > 1, what="the second try")


@pytest.mark.django_db(transaction=True)
def test_result_survives_an_unavailable_database(stage, ada, tries):
    """The call runs once. No other thread waits for the lock, or it would delay the second attempt."""
    stage.acts["cautious"] = lambda value, context: lose_the_database(tries)
    plan, turn = make_plan(ada, act(1, "x", "cautious")), loop.TimeSlice("tests")
    work = loop.claim_work(plan.pk, owner="tests")
    while work is not None:
        work = loop.advance(work, turn)
    assert Plan.objects.get(pk=plan.pk).completed_at
    assert (call_of(plan).status, stage.values("cautious")) == ("completed", ["x"])
    assert "kept" in call_of(plan).response
    assert_gapless(plan)


def test_result_is_dropped_after_half_a_lease(stage, ada, monkeypatch, settings):
    settings.TOOLGATE_LEASE_SECONDS = 2
    tries: list[int] = []

    def fail(*arguments: object, **options: object) -> None:
        tries.append(1)
        raise OperationalError(SECRET)

    work = loop.claim_work(make_plan(ada, act(1)).pk, owner="tests")
    monkeypatch.setattr(loop, "finish_and_claim_next", fail)
    assert work is not None
    with pytest.raises(OperationalError):
        loop.advance(work, loop.TimeSlice("tests"))
    assert 1 < len(tries) < 5


def test_failing_job_is_retried_every_second(stage, ada, monkeypatch):
    """Not more often; other due jobs run in time."""
    work_off(make_plan(ada, act(1, tool="dangerous")))
    now = clock.now()
    ApprovalRequest.objects.update(expires_at=now - timedelta(seconds=5))
    with monkeypatch.context() as patch:
        patch.setattr(deadlines, "_expire", lambda request, moment: 1 / 0)
        ticker = Ticker(None)
        ticker.tick()
        assert ticker._pause() == 1.0
        work_off(make_plan(ada, act(1, tool="dangerous")))
        ApprovalRequest.objects.filter(expires_at__gt=now).update(expires_at=clock.now() + timedelta(seconds=0.5))
        assert ticker._pause() <= 0.5
    ticker.tick()
    assert ticker._pause() == SHORTEST_SECONDS


def test_old_idempotency_keys_are_deleted_in_batches(db):
    day_ago = clock.now() - timedelta(hours=KEY_LIFETIME_HOURS, seconds=1)
    keys = [IdempotencyKey(owner=f"user:{number}", key="k", body_digest="d") for number in range(1002)]
    IdempotencyKey.objects.bulk_create(keys)
    IdempotencyKey.objects.exclude(owner="user:0").update(created_at=day_ago)
    ticker = Ticker(None)
    ticker._clear()
    assert IdempotencyKey.objects.count() == 2
    ticker._clear()
    assert IdempotencyKey.objects.get().owner == "user:0"
    IdempotencyKey.objects.update(created_at=day_ago)
    ticker._clear()
    assert IdempotencyKey.objects.count() == 1
