"""Contract B, dispatch and failure semantics: the table of situations, deadlines, restoration."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.context import Deadline, ToolContext
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.pipeline import run_call
from catalog.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import Tool, ToolResult, tool

PAST = Deadline(clock.now() - timedelta(seconds=1))


class Params(BaseModel):
    text: str = "x"


@pytest.fixture(autouse=True)
def registry(settings, tmp_path):
    settings.TOOLGATE_WORKSPACE = tmp_path
    with clean_registry():
        yield


def raising(error: BaseException | None = None, **options: Any) -> Tool[Params, None]:
    """Return a tool that writes a file and then fails."""

    def handle(params: Params, *, context: ToolContext) -> Any:
        context.resources.get(Filesystem).write_text("half.txt", "done")
        if error is not None:
            raise error
        return ToolResult.error("No luck.")

    return Tool(name="x", description="Fail.", handler=handle, **options)


def never(params: Params) -> None:
    """Be never called."""
    raise AssertionError("the handler ran")


UNTOUCHED = Tool[Params, None](name="x", description="Never.", handler=never)


def test_an_unknown_tool_ends_the_evaluation():
    with pytest.raises(PromptEvaluationError, match=r"^Unknown tool 'x' requested by provider\.$"):
        invoke("x", {})


def test_a_tool_without_a_handler_ends_the_evaluation():
    with pytest.raises(PromptEvaluationError, match=r"^Tool 'x' does not have a registered handler\.$"):
        invoke(Tool[Params, None](name="x", description="Later.", handler=None), {})


@pytest.mark.parametrize("text", ["{", "not json", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_arguments_that_are_no_json_end_the_evaluation(text):
    with pytest.raises(PromptEvaluationError, match=r"^Failed to decode tool call arguments\.$"):
        invoke(UNTOUCHED, text)


@pytest.mark.parametrize("arguments", ["[]", "5", "null", [], None])
def test_arguments_that_are_no_object_end_the_evaluation(arguments):
    with pytest.raises(PromptEvaluationError, match=r"^Tool call arguments must be a JSON object\.$"):
        invoke(UNTOUCHED, arguments)


def test_empty_arguments_are_no_arguments():
    assert invoke(tool(name="y")(echo), "").value == "x"


def echo(params: Params) -> str:
    """Answer."""
    return params.text


@pytest.mark.parametrize("arguments", [{"text": 5}, {"other": 1}, {"text": []}])
def test_bad_params_are_a_failed_result(arguments):
    result = invoke(UNTOUCHED, arguments)
    assert (result.success, result.value) == (False, None)
    assert result.message.startswith("Tool validation failed: ")


def test_nothing_is_coerced():
    assert not invoke(tool(name="y")(echo), {"text": 5}).success


def test_a_deadline_that_passed_before_entry_ends_the_evaluation():
    with pytest.raises(PromptEvaluationError, match=r"^Deadline expired before executing tool 'x'\.$"):
        invoke(UNTOUCHED, {}, deadline=PAST)


def test_bad_arguments_win_over_an_expired_deadline():
    assert invoke(UNTOUCHED, {"text": 5}, deadline=PAST).message.startswith("Tool validation failed: ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DeadlineExceededError("Upstream was slow."), "Upstream was slow."),
        (DeadlineExceededError(), "Tool 'x' exceeded"),
    ],
)
def test_a_deadline_exceeded_inside_ends_the_evaluation_with_its_text(error, message):
    with pytest.raises(PromptEvaluationError, match=message):
        invoke(raising(error), {})


@pytest.mark.parametrize("kind", [PromptEvaluationError, VisibilityExpansionRequired])
def test_what_ends_an_evaluation_is_raised_again_as_it_is(kind):
    error = kind("over")
    with pytest.raises(kind) as caught:
        invoke(raising(error), {})
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ToolValidationError("No plan yet."), "Tool validation failed: No plan yet."),
        (TypeError("two arguments"), "Tool 'x' raised TypeError: two arguments"),
        (ValueError("odd"), "Tool 'x' execution failed: odd"),
        (None, "No luck."),
    ],
)
def test_every_other_failure_is_a_failed_result(error, message):
    assert invoke(raising(error), {}) == ToolResult.error(message)


@pytest.mark.parametrize(
    "error",
    [
        *(ToolValidationError("no"), TypeError("no"), ValueError("no"), DeadlineExceededError(), None),
        *(PromptEvaluationError("over"), VisibilityExpansionRequired("more")),
    ],
)
def test_every_failure_path_restores_the_state(tmp_path, error):
    outcome = run_call(raising(error), CallArguments({}), make_context())
    assert (outcome.success, outcome.restored) == (False, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [PromptEvaluationError("over"), VisibilityExpansionRequired("more")])
def test_inside_a_plan_even_those_are_failed_results(error):
    outcome = run_call(raising(error), CallArguments({}), make_context())
    assert (outcome.message, outcome.retryable) == (str(error), False)


def test_a_handler_of_another_signature_is_a_failed_result_with_the_reason():
    def wrong(params: Params, extra: int) -> None:
        """Take too much."""

    taken = tool(name="y")(echo)
    taken.handler = wrong
    result = invoke(taken, {})
    assert (result.success, "Tool 'y' raised TypeError: " in result.message) == (False, True)


def test_the_order_is_parse_then_gate_then_deadline_then_handler():
    seen: list[str] = []

    def gate(call: Any) -> Any:
        seen.append("gate")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        invoke(UNTOUCHED, {}, gate=gate, deadline=PAST)
    assert not invoke(UNTOUCHED, {"text": 5}, gate=gate).success
    assert seen == ["gate"]


def test_async_and_sync_handlers_answer_alike():
    async def slowly(params: Params, *, context: ToolContext) -> ToolResult[str]:
        await asyncio.sleep(0)
        return ToolResult.ok(params.text)

    made: Tool[Any, Any] = Tool(name="slowly", description="Answer.", handler=slowly)
    assert invoke(made, {"text": "a"}) == invoke(tool(name="y")(echo), {"text": "a"})


def test_an_async_handler_is_cancelled_at_its_deadline():
    cancelled = threading.Event()

    async def hang(params: Params) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    made: Tool[Any, Any] = Tool(name="x", description="Hang.", handler=hang, timeout=1)
    with pytest.raises(PromptEvaluationError, match=r"^Tool 'x' exceeded the deadline\.$"):
        invoke(made, {})
    assert cancelled.wait(60)


def test_a_sync_handlers_late_result_is_evidence_and_what_it_did_is_undone(tmp_path, monkeypatch):
    def late(params: Params, *, context: ToolContext) -> str:
        context.resources.get(Filesystem).write_text("late.txt", "late")
        over = clock.now() + timedelta(minutes=2)
        monkeypatch.setattr(clock, "now", lambda: over)
        return "late"

    outcome = run_call(
        Tool(name="x", description="Be late.", handler=late, timeout=60), CallArguments({}), make_context()
    )
    assert (outcome.error_kind, outcome.message, outcome.value) == ("timeout", "Tool 'x' exceeded the deadline.", None)
    assert outcome.late is not None and outcome.late.value == "late"
    assert outcome.restored and list(tmp_path.iterdir()) == []


def test_the_shorter_of_the_tools_and_the_calls_time_counts():
    async def hang(params: Params) -> None:
        await asyncio.sleep(30)

    made: Tool[Any, Any] = Tool(name="x", description="Hang.", handler=hang, timeout=20)
    assert run_call(made, prepare_arguments(made, {}), make_context(deadline=Deadline.after(1))).error_kind == "timeout"
