"""Failing handlers: each fails only its own step; retries of failed calls."""

from typing import Any

import pytest

from catalog.core import clock
from catalog.errors import ToolError
from catalog.inventory import snapshot
from catalog.models import CatalogState, Tool
from catalog.results import ToolResult
from plans import conditions
from plans.actions.control import cancel_plan
from plans.engine.retries import TRIES
from plans.models import Plan
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from tests.builders import act, assert_gapless, call_of, events_of, make_plan, step_of, work_off
from tests.plans.factories import act_raising, hurry
from tests.waiting import eventually


class Unspeakable(Exception):
    """An exception whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Exit(BaseException):
    """An exception that `except Exception` does not catch."""


HOSTILE = {
    "raises": act_raising(ValueError("broken")),
    "half a character": act_raising(ValueError("\ud800")),
    "a NUL": act_raising(ValueError("a\0b")),
    "a book": act_raising(ValueError("x" * 5_000_000)),
    "no words": act_raising(Unspeakable()),
    "exits": act_raising(SystemExit(1)),
    "interrupts": act_raising(KeyboardInterrupt()),
    "something else": act_raising(Exit()),
    "not JSON": lambda value, context: object(),
    "infinity": lambda value, context: float("inf"),
    "half a character in a value": lambda value, context: {"x": "\ud800"},
    "too large": lambda value, context: "x" * (1024 * 1024 + 1),
    "a message that is none": lambda value, context: ToolResult(message=None, value=1),  # type: ignore[arg-type]
    "a message with a NUL": lambda value, context: ToolResult.error("a\0b"),
    "a message with half a character": lambda value, context: ToolResult.error("\udfff"),
    "a message too large": lambda value, context: ToolResult.ok(1, message="x" * (2 * 1024 * 1024)),
}


def test_a_handler_fails_its_own_step(stage, ada):
    """The call ends, the step has the reason, memory has a note, and the other branch continues."""
    for act_of in HOSTILE.values():
        stage.clear()
        stage.acts["keeping"] = act_of
        assert_fails_alone(stage, ada)


def assert_fails_alone(stage, ada):
    """Run a plan with one misbehaving handler and check that only its step fails."""
    plan = work_off(make_plan(ada, act(1, tool="keeping", expected_key="x"), act(2, "on")))
    failed = step_of(plan)
    assert (plan.status, failed.status, stage.values("safe")) == ("failed", "failed", ["on"])
    call = call_of(plan)
    assert (call.status, bool(call.message), bool(call.error_kind)) == ("failed", True, True)
    assert failed.error
    assert len(failed.error) <= 2000
    notes = [item for item in memory_of(plan)["items"] if item["type"] == "step_failed"]
    assert [(note["step_id"], note["tool"], note["error"]) for note in notes] == [(1, "keeping", failed.error)]
    assert ("1 call.failed" in events_of(plan), "1 tool.invoked" in events_of(plan)) == (True, True)
    assert_gapless(plan)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), Exit(), ValueError("broken")])
def test_an_async_handler_fails_its_own_step(stage, ada, error):
    """The shared event loop survives."""

    async def fail() -> None:
        raise error

    stage.acts["hasty_async"] = lambda value, context: fail() if value else "fine"
    plan = work_off(make_plan(ada, act(1, True, "hasty_async"), act(2, False, "hasty_async")))
    assert (step_of(plan, 1).status, step_of(plan, 2).status) == ("failed", "completed")
    assert call_of(plan).error_kind == "unknown_error"


def test_executor_threads_survive_their_handlers(executor, stage, ada):
    """With more failing handlers than threads."""
    stage.acts["keeping"] = HOSTILE["something else"]
    plan = make_plan(ada, *(act(number, tool="keeping") for number in range(1, 6)), act(6, "on"))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "failed", what="the plan's end")
    assert stage.values("safe") == ["on"]


def test_unknown_tool_fails_the_step_without_a_call(stage, ada, monkeypatch):
    plan = make_plan(ada, act(1), act(2, "x", "keeping"))
    current = snapshot.callable_tool
    monkeypatch.setattr(snapshot, "callable_tool", lambda name: None if name == "safe" else current(name))
    assert work_off(plan).status == "failed"
    assert "safe" in step_of(plan).error
    assert (step_of(plan).call, stage.values("keeping")) == (None, ["x"])


def test_tool_disabled_after_the_plan_was_stored_fails_the_step(stage, ada):
    plan = make_plan(ada, act(1))
    Tool.objects.filter(name="safe").update(enabled=False)
    snapshot.drop_snapshot()
    CatalogState.objects.update(revision=CatalogState.objects.get().revision + 1)
    assert work_off(plan).status == "failed"
    assert (step_of(plan).status, stage.values("safe")) == ("failed", [])


def test_parameters_that_resolve_to_invalid_values_fail_the_step(catalog, ada):
    """The tool is not called."""
    plan = make_plan(
        ada,
        {"step_id": 1, "description": "List", "tool": "list_files", "parameters": {"path": "${where}"}},
        memory={"where": 7},
    )
    assert work_off(plan).status == "failed"
    assert "path" in step_of(plan).error
    assert step_of(plan).call is None


@pytest.mark.parametrize("tool", ["patient", "cautious_patient"])
def test_retry_safe_tool_is_retried(distant_tries, stage, ada, tool):
    """Three attempts of one call with one idempotency key; the last one succeeds."""
    keys: list[Any] = []

    def fail_twice(value: Any, context: Any) -> str:
        keys.append((context.attempt, context.idempotency_key))
        if len(keys) < TRIES:
            raise OSError("busy")
        return "done"

    stage.acts[tool] = fail_twice
    plan = make_plan(ada, act(1, tool=tool))
    for _ in range(TRIES - 1):
        work_off(plan)
        waiting = step_of(plan)
        assert (waiting.status, waiting.waiting_for, call_of(plan).status) == ("in_progress", "retry", "ready")
        assert waiting.ready_at
        assert waiting.ready_at > clock.now()
        hurry(plan)
    assert work_off(plan).status == "completed"
    assert [attempt for attempt, _ in keys] == [1, 2, 3]
    assert {key for _, key in keys} == {call_of(plan).public_id}
    assert events_of(plan).count("1 step.retrying") == 2


def test_third_failure_is_final(stage, ada):
    stage.acts["patient"] = HOSTILE["raises"]
    plan = make_plan(ada, act(1, tool="patient"))
    for _ in range(TRIES):
        work_off(plan)
        hurry(plan)
    assert (work_off(plan).status, len(stage.played), call_of(plan).attempt) == ("failed", TRIES, TRIES)


def test_refusals_of_the_tool_are_not_retried(stage, ada):
    stage.acts["patient"] = act_raising(ToolError("Not like this."))
    plan = work_off(make_plan(ada, act(1, tool="patient")))
    assert (plan.status, len(stage.played), step_of(plan).error) == ("failed", 1, "Not like this.")


def test_no_retry_after_the_plans_deadline(distant_tries, stage, ada):
    """A retry that fits before the deadline is made."""
    stage.acts["patient"] = HOSTILE["raises"]
    plan = work_off(make_plan(ada, act(1, tool="patient"), act(2, dependencies=[1]), deadline_seconds=60))
    assert (plan.status, step_of(plan).waiting_for) == ("in_progress", "retry")
    hurry(plan)
    plan = work_off(plan)
    step = step_of(plan)
    assert (plan.status, step.status, step.ready_at, len(stage.played)) == ("failed", "failed", None, 2)
    assert step.error == call_of(plan).message != ""
    assert step_of(plan, 2).status == "pending"
    assert events_of(plan).count("1 step.retrying") == 1


def test_ended_plan_retries_nothing(stage, ada):
    """The call fails with its last error."""
    plan = make_plan(ada, act(1, tool="patient"))

    def cancel_and_fail(value: Any, context: Any) -> None:
        cancel_plan(plan, by=Requester(ada))
        raise OSError("busy")

    stage.acts["patient"] = cancel_and_fail
    assert work_off(plan).status == "cancelled"
    assert (step_of(plan).status, call_of(plan).status, step_of(plan).ready_at) == ("failed", "failed", None)


def test_unexpected_error_fails_only_its_step(stage, ada, monkeypatch):
    """The plan does not repeat it forever."""
    nothing: dict[str, str] = {}
    monkeypatch.setattr(conditions, "evaluate", lambda *arguments, **options: nothing["secret"])
    plan = work_off(make_plan(ada, act(1, done_check="value"), act(2, "x")))
    assert (plan.status, "KeyError" in step_of(plan).error) == ("failed", True)
    assert stage.values("safe") == ["x"]


def test_refusal_is_stored_without_nul_and_cut(stage, ada):
    """PostgreSQL cannot store NUL."""
    stage.previews["dangerous"] = act_raising(ToolError("half\0" + "x" * 10_000))
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    assert plan.status == "failed"
    assert ("\0" in step_of(plan).error, len(step_of(plan).error) <= 2000) == (False, True)
