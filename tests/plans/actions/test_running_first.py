"""Safe calls that run in the thread that admitted them: their rows, and what becomes of those that take long."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from time import sleep
from typing import Any

import pytest
from django.db import OperationalError, connection

from approvals.models import Stop
from approvals.stops.services import Scope, lift_stop, set_stop
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.errors import DataNotFound, Stopped, ToolError
from catalog.models import Call
from catalog.tools import ToolResult
from plans.actions.call import CallOrder, create_call
from plans.engine import running_first, start, work
from plans.executor import pool
from plans.executor.pool import ExecutorPool
from plans.models import ModelText, Plan, Step
from plans.store import statements
from plans.store.requesters import Requester
from tests.builders import assert_gapless, events_of
from tests.invariants import assert_invariants
from tests.rest import Rest
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

OWN = ("id", "public_id", "plan_ref", "plan_id", "call_id", "traceparent")
"""Columns that differ from row to row."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is stored while it runs unless its test says so, however busy the machine is."""
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 60.0)


def call(ada: Any, value: Any = "x", tool: str = "safe") -> Call:
    """Make a direct call and return it as stored when the request is answered."""
    made = create_call(CallOrder(tool, {"value": value}), by=Requester(ada))
    return Call.objects.get(pk=made.pk)


def call_that(status: str) -> Any:
    """Return a call of this status, or None."""
    return Call.objects.filter(status=status).first()


def rows_of(found: Call) -> list[dict[str, Any]]:
    """Return the columns of a call, its step and its plan; of times only whether they are set."""
    plan = Plan.objects.get(public_id=found.plan_ref)
    rows = [Call.objects.filter(pk=found.pk), Step.objects.filter(call=found), Plan.objects.filter(pk=plan.pk)]
    columns = [row.values().get() for row in rows]
    return [
        {
            name: value is not None if isinstance(value, datetime) else value
            for name, value in row.items()
            if name not in OWN
        }
        for row in columns
    ]


def stored_first(executor: ExecutorPool, ada: Any, monkeypatch: pytest.MonkeyPatch, tool: str) -> Call:
    """Make the same call while no thread is idle, so that it is stored before it runs."""
    monkeypatch.setattr(executor, "run_first", lambda unstored_call: False)
    made = call(ada, tool=tool)
    eventually(lambda: Plan.objects.get(public_id=made.plan_ref).completed_at is not None, what="the end")
    return Call.objects.get(pk=made.pk)


def fail(value: Any, context: Any) -> Any:
    """Fail as a tool does."""
    raise ToolError("It is closed.")


def find_nothing(value: Any, context: Any) -> Any:
    """Warn as a tool does that finds nothing."""
    raise DataNotFound("There is none.")


def leave(value: Any, context: Any) -> Any:
    """Raise what ends a thread elsewhere."""
    raise SystemExit(3)


def use_resource(value: Any, context: Any) -> Any:
    """Look at everything that a context offers."""
    return [context.plan_id[:4], context.step_id, dict(context.memory), context.attempt, context.deadline.expired()]


class Rendered(dict[str, Any]):
    """A value with a text of its own for models."""

    def render(self) -> str:
        """Return that text."""
        return "as text"


ACTS = {
    "a value": ("safe", None),
    "nothing": ("safe", lambda value, context: None),
    "a standard response": ("safe", lambda value, context: {"results": [1, None], "unit": "m"}),
    "a message": ("safe", lambda value, context: ToolResult("It is done.", {"n": None}, user_message="Done.")),
    "an image": ("safe", lambda value, context: ToolResult.ok(1, content=[{"type": "text", "text": "one"}])),
    "hidden": ("safe", lambda value, context: ToolResult("Hidden.", "x", exclude_value_from_context=True)),
    "rendered": ("safe", lambda value, context: Rendered(a=1)),
    "the context": ("safe", use_resource),
    "a failed result": ("safe", lambda value, context: ToolResult.error("It is shut.")),
    "an error": ("safe", fail),
    "a warning": ("safe", find_nothing),
    "no JSON": ("safe", lambda value, context: object()),
    "a text that cannot be stored": ("safe", lambda value, context: "a\0b\ud800"),
    "the end of a thread": ("safe", leave),
    "private data": ("private", None),
    "a limited tool": ("limited", None),
}


@pytest.mark.parametrize("kind", ACTS)
def test_rows_and_events_are_those_of_a_call_that_was_stored_first(executor, stage, ada, monkeypatch, kind):
    tool, act = ACTS[kind]
    if act is not None:
        stage.acts[tool] = act
    first = call(ada, tool=tool)
    assert first.status in ("completed", "failed")
    other = stored_first(executor, ada, monkeypatch, tool)
    assert rows_of(first) == rows_of(other)
    texts = [ModelText.objects.filter(call=each).values_list("text", "is_left_out").first() for each in (first, other)]
    assert texts[0] == texts[1]
    plans = [Plan.objects.get(public_id=each.plan_ref) for each in (first, other)]
    assert events_of(plans[0]) == events_of(plans[1])
    data = [[each.data_json.keys() for each in plan.events.order_by("seq")] for plan in plans]
    assert data[0] == data[1]
    for plan in plans:
        assert_gapless(plan)
    assert len(stage.values(tool)) == 2
    assert_invariants()


@pytest.mark.parametrize("act", [None, fail])
def test_times_are_those_of_the_call(executor, stage, ada, act):
    def wait(value: Any, context: Any) -> Any:
        sleep(0.03)
        return value if act is None else act(value, context)

    stage.acts["safe"] = wait
    made: Any = call(ada)
    plan: Any = Plan.objects.get(public_id=made.plan_ref)
    step: Any = Step.objects.get(call=made)
    assert plan.created_at <= made.created_at <= made.started_at <= made.finished_at <= plan.completed_at
    assert made.started_at <= step.started_at <= made.finished_at
    assert made.finished_at - made.started_at >= timedelta(seconds=0.03)


def test_call_that_takes_long_began_when_it_was_made(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.2)
    gate = threading.Event()
    stage.acts["safe"] = lambda value, context: gate.wait(60)
    before = clock.now()
    running: Any = call(ada)
    gate.set()
    assert running.started_at - before < timedelta(seconds=0.2)
    step: Any = Step.objects.get(call=running)
    assert step.status == "completed" or step.lease_until > clock.now() + timedelta(seconds=1)
    eventually(lambda: call_that("completed"), what="the call's end")


def test_call_that_cannot_be_stored_is_stopped_and_its_thread_replaced(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.1)
    gate, stopped = threading.Event(), list[bool]()

    def act(value: Any, context: Any) -> None:
        gate.wait(60)
        stopped.append(context.deadline.stopped)

    stage.acts["safe"] = act

    def store(*arguments: Any, **named: Any) -> Any:
        raise OperationalError("away")

    with monkeypatch.context() as away:
        away.setattr("plans.engine.start.begin", store)
        with pytest.raises(OperationalError):
            call(ada)
    eventually(lambda: executor.late_tools() == ["safe"], what="that the thread is abandoned")
    assert (executor.working_on(), executor.busy_threads(), Call.objects.count()) == ([], 0, 0)
    del stage.acts["safe"]
    assert [call(ada).status for _ in range(3)] == ["completed"] * 3
    gate.set()
    eventually(lambda: executor.late_tools() == [], what="the thread's end")
    assert (stopped, Plan.objects.count()) == ([True], 3)
    assert_invariants()


@pytest.mark.parametrize("function", ["insert_ended_plan", "insert_claimed_step"])
def test_call_that_cannot_be_stored_when_it_ended_leaves_no_trace(executor, stage, ada, monkeypatch, function):
    stage.acts["safe"] = fail if function == "insert_claimed_step" else lambda value, context: value

    def store(*arguments: Any, **named: Any) -> Any:
        raise OperationalError("away")

    with monkeypatch.context() as away:
        away.setattr(statements, function, store)
        with pytest.raises(OperationalError):
            call(ada)
    assert (Plan.objects.count(), Call.objects.count(), len(stage.values("safe"))) == (0, 0, 1)
    assert call(ada).status in ("completed", "failed")
    eventually(lambda: executor.busy_threads() == 0, what="idle threads")
    assert_invariants()


def test_storing_is_repeated_without_the_handler(executor, stage, ada, monkeypatch):
    store, attempts = statements.insert_ended_plan, list[int]()

    def lose_once(*arguments: Any) -> None:
        store(*arguments)
        attempts.append(1)
        if len(attempts) == 1:
            error = OperationalError("deadlock")
            error.__cause__ = Deadlock()
            raise error

    monkeypatch.setattr(statements, "insert_ended_plan", lose_once)
    made = call(ada)
    assert (made.status, len(attempts), len(stage.values("safe"))) == ("completed", 2, 1)
    assert (Plan.objects.count(), Call.objects.count(), Step.objects.count()) == (1, 1, 1)
    assert_gapless(Plan.objects.get())


class Deadlock(Exception):
    """PostgreSQL's error that ends a transaction in a deadlock."""

    sqlstate = "40P01"


def test_thread_that_fails_while_its_call_is_stored_does_not_keep_it(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.1)
    begun, has_failed = threading.Event(), threading.Event()
    begin = start.begin

    def break_off(unstored_call: Any) -> Any:
        begun.wait(60)
        has_failed.set()
        raise ValueError("not the handler's")

    def begin_late(*arguments: Any, **more: Any) -> Any:
        begun.set()
        has_failed.wait(60)
        sleep(0.2)
        return begin(*arguments, **more)

    monkeypatch.setattr(pool, "run_handler", break_off)
    monkeypatch.setattr(start, "begin", begin_late)
    call(ada)
    eventually(lambda: executor.busy_threads() == 0, what="the thread's end")
    assert executor.working_on() == []


def test_handler_may_make_calls(executor, stage, ada):
    def act(value: Any, context: Any) -> Any:
        return value if value == "inner" else [call(ada, "inner").response_json["results"] for _ in range(2)]

    stage.acts["safe"] = act
    assert call(ada, "outer").response_json["results"] == [["inner"], ["inner"]]
    eventually(lambda: executor.busy_threads() == 0, what="idle threads")
    assert Call.objects.filter(status="completed").count() == 3
    assert_invariants()


def test_many_calls_at_once_run_once_each(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.004)

    def act(value: Any, context: Any) -> Any:
        sleep(value % 5 / 500)
        return value

    stage.acts["safe"] = act

    def make(value: int) -> None:
        try:
            create_call(CallOrder("safe", {"value": value}), by=Requester(ada))
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(make, range(60)))
    eventually(lambda: Call.objects.filter(status="completed").count() == 60, what="all calls")
    eventually(lambda: Plan.objects.filter(status="completed").count() == 60, what="all plans")
    assert sorted(stage.values("safe")) == list(range(60))
    eventually(lambda: executor.working_on() == [], what="the threads' ends")
    assert_invariants()


def test_executor_that_stops_leaves_no_call_behind(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.1)
    gate = threading.Event()
    stage.acts["safe"] = lambda value, context: gate.wait(60) and "late"
    running = call(ada)
    executor.retire()
    waiting = call(ada)
    gate.set()
    executor.stop(seconds=10)
    calls = [Call.objects.get(pk=each.pk).status for each in (running, waiting)]
    assert (calls, len(stage.values("safe"))) == (["completed", "created"], 1)


def test_call_knows_its_id_before_it_is_stored(executor, stage, ada):
    seen: list[bool] = []

    def act(value: Any, context: Any) -> str:
        seen.append(Call.objects.filter(public_id=context.call_id).exists())
        return str(context.call_id)

    stage.acts["safe"] = act
    made = call(ada)
    assert (made.response_json["results"], seen) == ([made.public_id], [False])


def test_call_that_takes_long_is_stored_as_running_and_answered(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.5)
    gate = threading.Event()
    stage.acts["safe"] = lambda value, context: gate.wait(60) and "late"
    running = call(ada)
    step = Step.objects.get(call=running)
    assert (running.status, step.claimed_by, step.pk in executor.working_on()) == ("running", executor.owner, True)
    gate.set()
    eventually(lambda: call_that("completed"), what="the call's end")
    assert call_that("completed").response_json["results"] == ["late"]
    eventually(lambda: step.pk not in executor.working_on(), what="the thread's end")
    plan = Plan.objects.get(public_id=running.plan_ref)
    assert (plan.status, len(stage.values("safe"))) == ("completed", 1)
    assert_gapless(plan)
    assert_invariants()


def test_handler_that_hangs_is_ended_at_its_deadline(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.3)
    gate = threading.Event()
    stage.acts["hasty"] = lambda value, context: gate.wait(60) and "late"
    hanging = call(ada, tool="hasty")
    failed = eventually(partial(call_that, "failed"), what="the call's end")
    assert (failed.pk, failed.error_kind, failed.left_running_at is not None) == (hanging.pk, "timeout", True)
    gate.set()
    eventually(lambda: '"late"' in Call.objects.get(pk=failed.pk).late_evidence, what="the late result")
    assert_gapless(Plan.objects.get(public_id=failed.plan_ref))


def test_call_is_stored_first_if_its_thread_does_not_begin(executor, stage, ada, monkeypatch):
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(executor, "run_first", lambda unstored_call: True)
    made = call(ada)
    eventually(lambda: Call.objects.get(pk=made.pk).status == "completed", what="the call's end")
    assert Call.objects.count() == len(stage.values("safe")) == 1


@pytest.fixture(params=[True, False], ids=["an idle thread", "no idle thread"])
def stops_set(request: Any, executor: ExecutorPool, admin: Any, monkeypatch: pytest.MonkeyPatch) -> list[Stop]:
    """The stops that are set after the first three calls were admitted, before their handlers begin."""
    run_first, made = executor.run_first, list[Stop]()

    def set_stop_first(unstored_call: Any) -> bool:
        if len(made) < 3:
            made.append(set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day", by=admin))
        return request.param and run_first(unstored_call)

    monkeypatch.setattr(executor, "run_first", set_stop_first)
    return made


def test_call_does_not_begin_after_a_stop_is_set(stage, ada, admin, stops_set):
    """Neither does it count against its rate limit, of two in a minute."""
    for number in range(3):
        with pytest.raises(Stopped, match="A bad day"):
            call(ada, tool="limited")
        assert (stage.played, Call.objects.count(), Plan.objects.count()) == ([], 0, 0)
        lift_stop(stops_set[number], "Over", by=admin)
    call(ada, tool="limited")
    eventually(lambda: call_that("completed"), what="the call's end")


def test_call_whose_stops_are_read_slowly_begins_once(executor, stage, ada, admin, monkeypatch):
    """It is stored first; the thread that comes late does not begin it."""
    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 0.1)
    gate, late, may_begin = threading.Event(), threading.Event(), running_first.may_begin

    def read_slowly(unstored_call: Any) -> bool:
        gate.wait(60)
        try:
            return may_begin(unstored_call)
        finally:
            late.set()

    monkeypatch.setattr(pool, "may_begin", read_slowly)
    made = call(ada)
    eventually(lambda: Call.objects.get(pk=made.pk).status == "completed", what="the call's end")
    gate.set()
    assert late.wait(60)
    executor.stop(seconds=10)
    assert Call.objects.count() == len(stage.values("safe")) == 1


@pytest.mark.parametrize("tool", ["safe_async", "keeping", "cautious"])
def test_other_tools_never_run_before_they_are_stored(executor, stage, ada, tool):
    stored: list[bool] = []

    def find(call_id: str) -> bool:
        try:
            return Call.objects.filter(public_id=call_id, status="running").exists()
        finally:
            connection.close()

    def act(value: Any, context: Any) -> None:
        with ThreadPoolExecutor(1) as beside:
            stored.append(beside.submit(find, context.call_id).result(60))

    stage.acts[tool] = act
    call(ada, tool=tool)
    eventually(lambda: stored, what="the call")
    assert stored == [True]


def test_lists_of_sessions_are_stored_with_their_call(executor, stage, ada):
    by = Requester(ada, create_token(user=ada, kind="agent", scopes=["calls:create"])[0], via="rest", session="night")

    def make(tool: str, **arguments: Any) -> Call:
        return Call.objects.get(pk=create_call(CallOrder(tool, arguments), by=by).pk)

    made = [
        make("planning_setup_plan", objective="Try it", initial_steps=["a"]),
        make("planning_add_step", steps=["b"]),
    ]
    assert [each.status for each in made] == ["completed", "completed"]
    assert [step["title"] for step in made[1].response_json["results"][0]["steps"]] == ["a", "b"]
    assert Plan.objects.get(kind="session").steps.count() == 2
    assert_invariants()


def test_call_with_a_key_is_stored_first_and_made_once(executor, stage, ada):
    stored: list[bool] = []
    stage.acts["safe"] = lambda value, context: stored.append(Call.objects.filter(status="running").exists())
    rest, body = Rest(ada), {"tool": "safe", "arguments": {"value": 1}}

    def post(number: int) -> Any:
        try:
            return rest.post("calls/", body, key="k").json().get("id")
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        ids = set(threads.map(post, range(3)))
    assert len(ids - {None}) == len(stored) == Call.objects.count() == 1
    assert stored == [True]
    assert_invariants()
