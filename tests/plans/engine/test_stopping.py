"""Running handlers of ended plans: stopped if possible, otherwise reported as still running."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import hints
from plans.engine.cancellation import end_overdue_plans
from plans.executor import worker_thread
from plans.models import MemoryItem, Plan
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, call_of, events_of, make_plan, step_of
from tests.invariants import assert_invariants
from tests.tools_for_tests import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("executor")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event for which hanging handlers wait; it is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def begun(stage: Stage, gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event set when a handler runs; handlers of the sync tools hang, with a short time to stop."""
    monkeypatch.setattr(worker_thread, "STOP_SECONDS", 0.1)
    event = threading.Event()

    def hang(value: Any, context: Any) -> str:
        if value != "on":
            event.set()
            gate.wait(60)
        return "late"

    stage.acts |= {"safe": hang, "cautious": hang}
    return event


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give handlers unlimited time to stop."""
    monkeypatch.setattr(worker_thread, "STOP_SECONDS", 60.0)


def cancel(plan: Plan) -> None:
    """Cancel the plan as its owner."""
    cancel_plan(plan, by=Requester(plan.author))


def cancel_once(begun: threading.Event, plan: Plan) -> None:
    """Cancel the plan as soon as its handler runs."""
    assert begun.wait(60)
    cancel(plan)


def is_let_go(plan: Plan) -> bool:
    """Return whether no worker has the plan's first step."""
    return not step_of(plan).claimed_by


def hanging(begun: threading.Event, ended: threading.Event) -> Callable[..., Any]:
    """Return an async handler that writes a file and hangs until it is cancelled."""

    async def hang(context: Any) -> None:
        context.filesystem.write_text("half.txt", "half")
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    return lambda value, context: hang(context)


def test_an_async_handler_is_cancelled_with_its_plan(unhurried, stage, ada, workspace):
    """Its changes are undone; its call and step are cancelled."""
    begun, ended = threading.Event(), threading.Event()
    stage.acts["safe_async"] = hanging(begun, ended)
    plan = make_plan(ada, act(1, tool="safe_async", expected_key="kept"), act(2, dependencies=[1]))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    call = call_of(plan)
    assert ended.is_set() and list(workspace.iterdir()) == []
    assert (call.status, call.error_kind, call.left_running_at) == ("cancelled", "stopped", None)
    ends = ["1 call.restored", "1 tool.invoked", "1 step.cancelled"]
    assert events_of(plan)[-5:] == ["plan.cancelled", "2 step.cancelled", *ends]
    assert_gapless(plan)


def test_stopped_cautious_call_has_an_unknown_outcome(unhurried, stage, ada):
    """Although the plan has ended."""
    begun, ended = threading.Event(), threading.Event()
    stage.acts["cautious_async"] = hanging(begun, ended)
    plan = make_plan(ada, act(1, tool="cautious_async"))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).waiting_for == "outcome", what="the unknown outcome")
    assert call_of(plan).status == "outcome_unknown"
    settle_outcome(plan, 1, settlement=Settlement("did_not_happen", comment="Seen."), by=Requester(ada))
    assert (step_of(plan).status, call_of(plan).status) == ("failed", "failed")
    assert AuditEntry.objects.filter(action="step.outcome_unknown", plan_ref=plan.public_id).exists()


def test_sync_handler_sees_the_cancellation_in_its_deadline(unhurried, stage, ada, workspace):
    """It stops; its result is evidence, not the step's result."""
    begun = threading.Event()

    def watchful(value: Any, context: Any) -> str:
        context.resources.get(Filesystem).write_text("half.txt", "half")
        begun.set()
        eventually(context.deadline.expired, what="the end of its time")
        assert context.deadline.remaining() == 0
        return "half done"

    stage.acts["safe"] = watchful
    plan = make_plan(ada, act(1, expected_key="kept"))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    evidence = json.loads(call_of(plan).late_evidence)
    assert (evidence["results"], evidence["restored"], call_of(plan).left_running_at) == (["half done"], True, None)
    assert not MemoryItem.objects.filter(plan=plan, type="value").exists()
    assert list(workspace.iterdir()) == []


def test_handler_that_cannot_be_stopped_is_reported_as_running(stage, ada, gate, begun):
    """Its step ends at once and other calls run; its return is recorded, and its result is ignored."""
    plan = make_plan(ada, act(1, expected_key="kept"))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    call = call_of(plan)
    assert (call.status, call.left_running_at is None, call.came_back_at) == ("cancelled", False, None)
    assert plan.events.get(type="step.cancelled").data_json["left_running"] is True
    other = make_plan(ada, act(1, "on"))
    eventually(lambda: Plan.objects.get(pk=other.pk).status == "completed", what="the other plan's end")
    gate.set()
    eventually(lambda: call_of(plan).came_back_at, what="the handler's return")
    assert json.loads(call_of(plan).late_evidence)["results"] == ["late"]
    assert (step_of(plan).status, call_of(plan).status) == ("cancelled", "cancelled")
    assert plan.events.get(type="tool.invoked").data_json["late"] is True
    assert_gapless(plan)


def test_unstoppable_handler_with_a_possible_effect_has_an_unknown_outcome(stage, ada, gate, begun):
    """Its late result is available to the person who settles it."""
    plan = make_plan(ada, act(1, tool="cautious"))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).waiting_for == "outcome", what="the unknown outcome")
    assert call_of(plan).left_running_at is not None
    gate.set()
    eventually(lambda: call_of(plan).came_back_at, what="the handler's return")
    assert (call_of(plan).status, '"late"' in call_of(plan).late_evidence) == ("outcome_unknown", True)


def test_handler_is_stopped_when_another_process_ends_the_plan(unhurried, stage, ada, monkeypatch):
    """The ticker of this process notices."""
    begun, ended = threading.Event(), threading.Event()
    stage.acts["safe_async"] = hanging(begun, ended)
    plan = make_plan(ada, act(1, tool="safe_async"))
    monkeypatch.setattr(hints, "stop_plan", lambda plan_pk: None)
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    assert ended.is_set()


def test_audit_log_has_the_end_of_a_stopped_call(stage, ada, monkeypatch, begun, gate):
    stage.acts["cautious_patient"] = stage.acts["cautious"]
    plan = make_plan(ada, act(1, tool="cautious_patient"))
    cancel_once(begun, plan)
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    actions = AuditEntry.objects.filter(plan_ref=plan.public_id).order_by("seq").values_list("action", flat=True)
    assert list(actions) == ["call.started", "call.stopped"]


def test_invariants_hold_after_cancellations(stage, ada, begun, gate):
    for number, name in enumerate(("safe", "cautious")):
        begun.clear()
        plan = make_plan(ada, act(1, number, tool=name), act(2, dependencies=[1]))
        cancel_once(begun, plan)
        eventually(partial(is_let_go, plan), what="the step's end")
    gate.set()
    eventually(lambda: Call.objects.filter(came_back_at__isnull=False).count() == 2, what="the handlers' return")
    assert_invariants()


def test_deadline_of_a_plan_stops_running_handlers(unhurried, stage, ada):
    begun, ended = threading.Event(), threading.Event()
    stage.acts["safe_async"] = hanging(begun, ended)
    plan = make_plan(ada, act(1, tool="safe_async"), deadline_seconds=3600)
    assert begun.wait(60)
    end_overdue_plans(clock.now() + timedelta(seconds=3601))
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    assert ended.is_set() and Plan.objects.get(pk=plan.pk).status == "failed"


def test_queued_call_of_an_ended_plan_never_begins(stage, ada, gate, begun, unhurried):
    """There is nothing to settle, whatever its level."""
    busy = [create_call(CallOrder("safe", {"value": number}), by=Requester(ada)) for number in (1, 2)]
    eventually(lambda: len(stage.values("safe")) == 2, what="both threads at work")
    call = create_call(CallOrder("cautious", {"value": "x"}), by=Requester(ada))
    cancel(Plan.objects.get(public_id=call.plan_ref))
    gate.set()
    eventually(lambda: Call.objects.get(pk=call.pk).status == "cancelled", what="the call's end")
    assert Call.objects.get(pk=call.pk).error_kind == "cancelled"
    assert stage.values("cautious") == []
    eventually(lambda: Call.objects.filter(pk__in=[each.pk for each in busy], status="completed").count() == 2)
