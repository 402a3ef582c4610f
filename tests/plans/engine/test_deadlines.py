"""Handlers past their deadline: their calls end, their threads are replaced, late results change nothing."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.errors import DeadlineExceededError
from catalog.models import Call
from catalog.tools import ToolContext
from plans.actions.call import CallOrder, create_call
from plans.engine import hints
from plans.engine.cancellation import end_overdue_plans
from plans.engine.work import RunningCall, WorkItem
from plans.executor.pool import ExecutorPool
from plans.models import MemoryItem, Plan
from plans.store.requesters import Requester
from plans.store.selectors import DEADLINE_PASSED
from plans.web.plan.overview import load_overview
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.rest import Rest
from tests.tools_for_tests import Stage
from tests.waiting import eventually


@dataclass
class Hanging:
    """The gate at which handlers hang, and the attempts that hang at it."""

    gate: threading.Event
    attempts: set[tuple[str, int]] = field(default_factory=set)

    def wait(self, context: ToolContext) -> bool:
        """Let the handler with this context hang."""
        self.attempts.add((context.call_id, context.attempt))
        return self.gate.wait(60)

    def __contains__(self, work: WorkItem) -> bool:
        return isinstance(work, RunningCall) and (work.call.public_id, work.call.attempt) in self.attempts


def overrun_until(executor: ExecutorPool, is_over: Callable[[], object], hangs: Callable[[WorkItem], bool]) -> None:
    """Let the deadlines of hanging work pass until `is_over` returns true."""

    def look() -> bool:
        for worker in executor._all():
            if worker.work is not None and hangs(worker.work):
                worker.ends_at = 0.0
        executor.end_overdue()
        return bool(is_over())

    eventually(look, what="the end of what is past its time")


@pytest.fixture
def let_previews_hang(stage: Stage, gate: threading.Event) -> Callable[[], None]:
    """From now on previews of the dangerous tool do not return."""

    def hang() -> None:
        stage.previews["dangerous"] = lambda value, context: gate.wait(60)

    return hang


def ended(plan: Plan) -> bool:
    """Return whether the plan has ended."""
    return Plan.objects.get(pk=plan.pk).completed_at is not None


def test_hanging_handlers_are_abandoned(executor, stage, ada, gate):
    """More than there are threads: each call ends, other calls run, and late results are only evidence."""
    stage.acts["hasty"] = lambda value, context: gate.wait(60) and "late"
    hanging = [act(number, tool="hasty", expected_key=f"k{number}") for number in (1, 2, 3)]
    plan = make_plan(ada, *hanging, act(4, "on"))
    eventually(lambda: ended(plan), what="the plan's end")
    assert [call_of(plan, number).error_kind for number in (1, 2, 3, 4)] == ["timeout"] * 3 + [""]
    assert Plan.objects.get(pk=plan.pk).status == "failed"
    gate.set()
    eventually(lambda: Call.objects.filter(plan_ref=plan.public_id, late_evidence__contains='"late"').count() == 3)
    assert [step_of(plan, number).status for number in (1, 2, 3, 4)] == ["failed"] * 3 + ["completed"]
    assert not MemoryItem.objects.filter(plan=plan, type="value").exists()
    assert_gapless(plan)


@pytest.mark.usefixtures("quick_retries")
def test_attempts_left_running_are_recorded(executor, stage, ada):
    """The tool is retried; results of earlier attempts are kept, but are not the call's result."""
    gates = {1: threading.Event(), 2: threading.Event(), 3: threading.Event()}
    gates[3].set()
    stage.acts["hasty_patient"] = lambda value, context: gates[context.attempt].wait(60) and f"from {context.attempt}"
    plan = make_plan(ada, act(1, tool="hasty_patient"))
    eventually(lambda: ended(plan), what="the plan's end")
    call = call_of(plan)
    assert (call.status, call.response_json["results"], call.left_earlier) == ("completed", ["from 3"], True)
    data = [event.data_json.get("left_running") for event in plan.events.filter(type="step.retrying")]
    assert (data, call.came_back_at) == ([True, True], None)
    gates[1].set()
    evidence = json.loads(eventually(lambda: call_of(plan).late_evidence, what="the first answer"))
    assert (evidence["attempt"], evidence["results"], call_of(plan).came_back_at) == (1, ["from 1"], None)
    gates[2].set()
    eventually(lambda: call_of(plan).came_back_at, what="the other's return")
    assert call_of(plan).response == call.response
    assert_gapless(plan)


def test_hanging_dangerous_handler_has_an_unknown_outcome(executor, stage, ada, rosa, gate):
    """Its late result is available to the person who settles it."""
    stage.acts["dangerous_hasty"] = lambda value, context: gate.wait(60) and "late"
    plan = make_plan(ada, act(1, tool="dangerous_hasty"), act(2, dependencies=[1]))
    eventually(lambda: step_of(plan).waiting_for == "approval", what="the request")
    approve(plan, rosa)
    eventually(lambda: step_of(plan).waiting_for == "outcome", what="the unknown outcome")
    gate.set()
    eventually(lambda: call_of(plan).late_evidence, what="the late result")
    assert (call_of(plan).status, step_of(plan, 2).status) == ("outcome_unknown", "pending")
    assert len(stage.values("dangerous_hasty")) == 1
    assert AuditEntry.objects.filter(action="step.outcome_unknown", plan_ref=plan.public_id).count() == 1
    assert events_of(plan)[-2:] == ["1 step.outcome_unknown", "1 tool.invoked"]
    assert_gapless(plan)


def test_an_async_handler_that_hangs_is_cancelled(stage, ada):
    """The handler is notified; its outcome is unknown."""
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    stage.acts["hasty_async"] = lambda value, context: hang()
    plan = work_off(make_plan(ada, act(1, tool="hasty_async")))
    assert cancelled.wait(60)
    assert (plan.status, step_of(plan).waiting_for, call_of(plan).status) == (
        "in_progress",
        "outcome",
        "outcome_unknown",
    )


def assert_preview_is_left_behind(executor: ExecutorPool, plan: Plan, stage: Stage) -> None:
    """Check that the step fails without running and that the other branch continues."""
    overrun_until(executor, lambda: ended(plan), lambda work: not isinstance(work, RunningCall))
    assert (step_of(plan).status, stage.values("dangerous"), stage.values("safe")) == ("failed", [], ["on"])
    assert_gapless(plan)


def test_a_preview_that_hangs_fails_its_step(executor, stage, ada, let_previews_hang):
    """No approval is requested."""
    let_previews_hang()
    plan = make_plan(ada, act(1, tool="dangerous"), act(2, "on"))
    assert_preview_is_left_behind(executor, plan, stage)


def test_preview_that_hangs_before_the_start_invalidates_the_approval(executor, ada, rosa, stage, let_previews_hang):
    """The call cannot be compared with the approval."""
    plan = make_plan(ada, act(1, tool="dangerous"), act(2, "on"))
    eventually(lambda: step_of(plan).waiting_for == "approval", what="the request")
    let_previews_hang()
    approve(plan, rosa)
    assert_preview_is_left_behind(executor, plan, stage)
    assert (request_of(plan).status, call_of(plan).status) == ("invalidated", "cancelled")


def test_handler_gets_its_deadline(stage, ada):
    """The tool's, or the plan's if that is earlier."""
    seen = []
    stage.acts["safe"] = lambda value, context: seen.append(context.deadline.remaining())
    plan = make_plan(ada, act(1), act(2, dependencies=[1]), deadline_seconds=3600)
    work_off(plan)
    soon = make_plan(ada, act(1), deadline_seconds=5)
    work_off(soon)
    assert [20 < seconds <= 30 for seconds in seen] == [True, True, False]


def test_a_plan_past_its_deadline_fails(stage, ada):
    """Waiting calls are withdrawn, steps that have not started are cancelled, and the history has the reason."""
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, dependencies=[2]), deadline_seconds=60))
    assert end_overdue_plans(clock.now()) == 0
    assert end_overdue_plans(clock.now() + timedelta(seconds=61)) == 1
    assert [step_of(plan, number).status for number in (1, 2, 3)] == ["completed", "cancelled", "cancelled"]
    assert (request_of(plan, 2).status, call_of(plan, 2).status) == ("withdrawn", "cancelled")
    event = plan.events.get(type="plan.failed")
    assert event.data_json["reason"] == load_overview(Plan.objects.get(pk=plan.pk)).because == DEADLINE_PASSED
    assert Rest(ada).get(f"plans/{plan.public_id}/").json()["failure"] == DEADLINE_PASSED
    assert DEADLINE_PASSED in call_of(plan, 2).message
    entry = AuditEntry.objects.get(action="approval.withdrawn")
    assert (entry.actor, entry.actor_name) == (None, "Toolgate")
    assert end_overdue_plans(clock.now() + timedelta(seconds=61)) == 0
    assert_gapless(plan)


def test_plan_has_the_deadline_as_reason_whoever_ends_it(stage, ada):
    """A worker or the ticker may end it first."""

    def cut_off(value: Any, context: Any) -> None:
        raise DeadlineExceededError("too late")

    stage.acts["safe"] = cut_off
    plan = work_off(make_plan(ada, act(1), deadline_seconds=60))
    assert (plan.status, load_overview(plan).because) == ("failed", "")
    Plan.objects.filter(pk=plan.pk).update(deadline_at=plan.completed_at)
    assert load_overview(Plan.objects.get(pk=plan.pk)).because == DEADLINE_PASSED
    assert Rest(ada).get(f"plans/{plan.public_id}/").json()["failure"] == DEADLINE_PASSED


def test_replaced_threads_are_limited(executor, stage, ada, gate, client):
    """Then nothing starts and /readyz says why; a tool that returns gives its thread back."""
    hanging = Hanging(gate)
    stage.acts["safe"] = lambda value, context: hanging.wait(context) and "late"
    plan = make_plan(ada, *(act(number) for number in range(1, 5)))
    overrun_until(executor, lambda: ended(plan) and not hints.can_execute(), hanging.__contains__)
    answer = client.get("/readyz")
    assert (answer.status_code, executor.late_tools()) == (503, ["safe"] * 4)
    assert answer.json()["checks"]["late_tools"] != "ok"
    waiting = create_call(CallOrder("patient", {"value": "x"}), by=Requester(ada))
    assert (waiting.status, len(executor._active)) == ("created", 0)
    gate.set()
    eventually(lambda: Call.objects.get(pk=waiting.pk).status == "completed", what="the call's end")
    eventually(lambda: len(executor._active) == 2, what="both threads")
    assert client.get("/readyz").status_code == 200


def test_queued_calls_are_released_when_no_thread_is_left(executor, stage, ada, gate):
    """They have not begun, so nothing is lost and no attempt is counted."""
    hanging = Hanging(gate)
    stage.acts["safe"] = lambda value, context: hanging.wait(context) and "late"
    calls = [create_call(CallOrder("safe", {}), by=Requester(ada)) for _ in range(5)]
    overrun_until(executor, lambda: not hints.can_execute(), hanging.__contains__)
    left = Call.objects.filter(pk__in=[call.pk for call in calls], status="ready")
    [(key, attempt)] = eventually(lambda: list(left.values_list("pk", "attempt")), what="the call that is left")
    assert attempt == 0
    gate.set()
    stage.acts.clear()
    eventually(lambda: Call.objects.get(pk=key).status == "completed", what="the call's end")
