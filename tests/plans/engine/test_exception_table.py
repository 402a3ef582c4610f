"""Effects of each kind of failure on step, call, events, memory, workspace and plan. The rows are contract B's."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from catalog import context as contexts
from catalog.context import ToolContext
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    ToolError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from catalog.results import ToolResult
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan
from plans.store import transactions
from plans.store.selectors import memory_of
from tests.builders import act, assert_gapless, call_of, make_plan, step_of, work_off

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("workspace")]
RAN = ["step.started", "call.started", "call.restored", "call.failed", "tool.invoked", "step.failed"]
UNCHANGED = [kind for kind in RAN if kind != "call.restored"]


def after_writing(end: BaseException | ToolResult[Any]) -> Callable[[Any, ToolContext], Any]:
    """Return a handler that writes a file and then fails like this."""

    def handle(value: Any, context: ToolContext) -> Any:
        context.resources.get(Filesystem).write_text("half.txt", "done")
        if isinstance(end, BaseException):
            raise end
        return end

    return handle


ROWS: dict[str, tuple[BaseException | ToolResult[Any], str, str]] = {
    "ToolValidationError": (
        ToolValidationError("No plan yet."),
        "validation_error",
        "Tool validation failed: No plan yet.",
    ),
    "DeadlineExceededError": (DeadlineExceededError("Upstream was slow."), "timeout", "Upstream was slow."),
    "no words": (
        DeadlineExceededError(),
        "timeout",
        "Tool 'keeping' exceeded the deadline.",
    ),
    "VisibilityExpansionRequired": (VisibilityExpansionRequired("Show more."), "expansion_required", "Show more."),
    "PromptEvaluationError": (PromptEvaluationError("Over."), "evaluation_ended", "Over."),
    "TypeError": (TypeError("two arguments"), "unknown_error", "Tool 'keeping' raised TypeError: two arguments"),
    "other exception": (ValueError("odd"), "unknown_error", "Tool 'keeping' execution failed: odd"),
    "ToolError": (ToolError("Not like this."), "tool_error", "Not like this."),
    "success=False": (ToolResult.error("No luck."), "tool_error", "No luck."),
}


def assert_failed(plan: Plan, message: str, told: list[str]) -> None:
    """Check the state after a failed first step, and that the second step continued."""
    assert (plan.status, step_of(plan).status, step_of(plan).error) == ("failed", "failed", message)
    assert [kind for step, kind in plan.events.order_by("seq").values_list("step_id", "type") if step == 1] == told
    memory = memory_of(plan)
    assert memory["values"] == {}
    assert [(item["type"], item["error"]) for item in memory["items"]] == [("step_failed", message)]
    assert step_of(plan, 2).status == "completed"
    assert step_of(plan, 3).status == "pending"
    assert_gapless(plan)


def plan_of(author: Any, **first: Any) -> Plan:
    """Store a plan with a failing step, an independent step, and one that depends on the first."""
    failing = act(1, **({"tool": "keeping", "expected_key": "x"} | first))
    return make_plan(author, failing, act(2, "on"), act(3, dependencies=[1]))


@pytest.mark.parametrize("row", ROWS)
def test_a_failed_call(stage, ada, workspace, row):
    """It has a response, its changes are undone, and its events record both."""
    end, kind, message = ROWS[row]
    stage.acts["keeping"] = after_writing(end)
    plan = work_off(plan_of(ada))
    call = call_of(plan)
    assert (call.status, call.error_kind, call.message) == ("failed", kind, message)
    assert (call.response_json["success"], call.response_json["results"]) == (False, [])
    assert list(workspace.iterdir()) == []
    assert_failed(plan, message, RAN)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"value": "${where}", "other": 1}, "other"),
        ({"value": "${where.missing}"}, "missing"),
    ],
)
def test_invalid_parameters_are_refused_before_anything_runs(stage, ada, first, message):
    """No call is stored and nothing has to be undone."""
    plan = make_plan(ada, act(1), act(2, "on"), act(3, dependencies=[1]), memory={"where": 1})
    plan.steps.filter(step_id=1).update(tool="keeping", parameters=json.dumps(first))
    work_off(plan)
    assert message in step_of(plan).error
    assert (step_of(plan).call, stage.values("keeping"), step_of(plan, 2).status) == (None, [], "completed")


def test_handler_is_not_called_after_its_deadline(stage, ada):
    """The call has the reason."""
    plan = plan_of(ada)
    run = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(run, RunningCall)
    late = replace(run, plan=replace(run.plan, deadline_at=clock.now() - timedelta(seconds=1)))
    loop.advance(late, TimeSlice("tests", steps_left=0))
    work_off(plan)
    assert (call_of(plan).error_kind, stage.values("keeping")) == ("deadline_exceeded", [])
    assert_failed(plan, "Deadline expired before executing tool 'keeping'.", UNCHANGED)


def test_deadline_error_of_an_unrepeatable_handler_is_an_unknown_outcome(stage, ada):
    """Whatever message the handler gives."""
    stage.acts["cautious"] = after_writing(DeadlineExceededError("Upstream was slow."))
    plan = work_off(plan_of(ada, tool="cautious"))
    assert (plan.status, step_of(plan).waiting_for, call_of(plan).status) == (
        "in_progress",
        "outcome",
        "outcome_unknown",
    )
    assert step_of(plan, 2).status == "completed"


def test_failing_event_listener_changes_no_result(stage, ada, monkeypatch):
    """Listeners are notified after commit."""

    def fail(plan_ref: str, seq: int) -> None:
        raise RuntimeError

    monkeypatch.setattr(transactions, "_listeners", [fail])
    plan = work_off(make_plan(ada, act(1, "x", "keeping"), act(2, dependencies=[1])))
    assert (plan.status, call_of(plan).status, memory_of(plan)["values"]) == (
        "completed",
        "completed",
        {"kept": plan_value(plan)},
    )


def plan_value(plan: Plan) -> Any:
    """Return the response of the first step's call."""
    return call_of(plan).response_json


class Ledger:
    """A resource that cannot be restored."""

    def snapshot(self) -> None:
        """Take a snapshot that cannot be restored."""

    def restore(self, taken: None) -> None:
        """Fail."""
        raise RuntimeError("hunter2")


def test_failed_restore_is_reported(stage, ada, caplog, monkeypatch):
    """On the step, the call and the event; the reason is only logged."""
    monkeypatch.setitem(contexts._RESOURCE_FACTORIES, Ledger, Ledger)
    stage.acts["keeping"] = lambda value, context: context.resources.get(Ledger) and ToolResult.error("No luck.")
    plan = work_off(plan_of(ada))
    message = "No luck. Its changes could not be undone in Ledger."
    assert call_of(plan).message == message
    assert_failed(plan, message, UNCHANGED)
    assert plan.events.get(type="call.failed").data_json["not_restored"] == ["Ledger"]
    assert "hunter2" not in caplog.text
