"""Safe calls that run in the thread that admitted them: their rows, and what becomes of those that take long."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection

from catalog.errors import ToolError
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.engine import work
from plans.executor.pool import ExecutorPool
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import assert_gapless, events_of
from tests.invariants import assert_invariants
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


def stored_first(executor: ExecutorPool, ada: Any, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Make the same call while no thread is idle, so that it is stored before it runs."""
    monkeypatch.setattr(executor, "run_first", lambda unstored_call: False)
    made = call(ada)
    eventually(lambda: Plan.objects.get(public_id=made.plan_ref).completed_at is not None, what="the end")
    return Call.objects.get(pk=made.pk)


def fail(value: Any, context: Any) -> Any:
    """Fail as a tool does."""
    raise ToolError("It is closed.")


@pytest.mark.parametrize("act", [None, fail])
def test_rows_and_events_are_those_of_a_call_that_was_stored_first(executor, stage, ada, monkeypatch, act):
    if act is not None:
        stage.acts["safe"] = act
    first = call(ada)
    assert first.status in ("completed", "failed")
    other = stored_first(executor, ada, monkeypatch)
    assert rows_of(first) == rows_of(other)
    plans = [Plan.objects.get(public_id=each.plan_ref) for each in (first, other)]
    assert events_of(plans[0]) == events_of(plans[1])
    data = [[each.data_json.keys() for each in plan.events.order_by("seq")] for plan in plans]
    assert data[0] == data[1]
    for plan in plans:
        assert_gapless(plan)
    assert_invariants()


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
