"""Pipeline: validation before running, failures of handlers, restoration."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.context import CancelToken, Deadline, Resources, ToolContext
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.pipeline import CallFacts, CallOutcome, Deny, Gate, Hold, dispatch, run_call, standard_response
from catalog.errors import (
    DataNotFound,
    DeadlineExceededError,
    ParameterError,
    PromptEvaluationError,
    QueryTypeUnsupported,
    StorageUnavailable,
    ToolError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from catalog.secrets.placeholders import Secret
from catalog.testing import allow_all, clean_registry, invoke, make_context
from catalog.tools import SafetyLevel, Tool, ToolResult, define_tool, tool
from tests.corpus import faults


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def returning(value: Any) -> Tool[Any, Any]:
    return define_tool("x", "Give a value.", [], handler=lambda arguments: value)


def raising(error: BaseException) -> Tool[Any, Any]:
    def fail(arguments: dict[str, Any]) -> None:
        raise error

    return define_tool("x", "Fail.", [], handler=fail)


def outcome_of(tool: Tool[Any, Any], **fields: Any) -> CallOutcome:
    return run_call(tool, CallArguments({}), make_context(**fields))


FAILURES = [
    (ToolError("As it is."), "As it is.", "tool_error", False),
    (ToolValidationError("No plan."), "Tool validation failed: No plan.", "validation_error", False),
    (
        ParameterError("bad", {"field": "a"}),
        "Tool validation failed: The parameter 'a' is invalid: bad",
        "parameter_error",
        False,
    ),
    (
        QueryTypeUnsupported("q", "x"),
        "Tool validation failed: Query type 'q' is not supported by the x tool.",
        "query_type_error",
        False,
    ),
    (DataNotFound("Nothing."), "Nothing.", "data_not_found", False),
    (DeadlineExceededError("late"), "late", "timeout", True),
    (DeadlineExceededError(), "Tool 'x' exceeded the deadline.", "timeout", True),
    (StorageUnavailable("The index is away."), "The index is away.", "storage_error", False),
    (PromptEvaluationError("over"), "over", "evaluation_ended", False),
    (VisibilityExpansionRequired("show more"), "show more", "expansion_required", False),
    (TypeError("two arguments"), "Tool 'x' raised TypeError: two arguments", "unknown_error", True),
    (ValueError("odd"), "Tool 'x' execution failed: odd", "unknown_error", True),
    (RuntimeError(), "Tool 'x' execution failed: RuntimeError", "unknown_error", True),
    (RecursionError("deep"), "Tool 'x' execution failed: deep", "unknown_error", True),
    (SystemExit(3), "Tool 'x' execution failed: 3", "unknown_error", True),
    (asyncio.CancelledError(), "Tool 'x' execution failed: CancelledError", "unknown_error", True),
    (TimeoutError("socket"), "Tool 'x' execution failed: socket", "unknown_error", True),
]


def test_exception_of_a_handler_becomes_an_outcome():
    def check(error, message, kind, retryable):
        outcome = outcome_of(raising(error))

        assert not outcome.success
        assert (outcome.message, outcome.error_kind, outcome.retryable) == (message, kind, retryable)

    assert faults(check, FAILURES) == {}


def test_a_person_reads_the_error_without_the_prefix_for_the_model():
    assert outcome_of(raising(ParameterError("bad", {"field": "a"}))).error == "The parameter 'a' is invalid: bad"


def test_a_failed_result_is_returned_unchanged():
    outcome = outcome_of(returning(ToolResult.error("No luck.")))

    assert (outcome.success, outcome.message, outcome.error_kind) == (False, "No luck.", "tool_error")


class Model(BaseModel):
    at: datetime


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (7, 7),
        ((1, 2), [1, 2]),
        (Point(1, Model(at=datetime(2022, 1, 1, tzinfo=UTC))), {"x": 1, "inner": {"at": "2022-01-01T00:00:00Z"}}),
        (ToolResult.ok([Point(1)]), [{"x": 1, "inner": None}]),
        (SafetyLevel.SAFE, "safe"),
    ],
)
def test_values_are_stored_as_plain_json(value, stored):
    assert outcome_of(returning(value)).value == stored


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", 2**60, [[object()]], threading.Lock()])
def test_a_value_that_is_not_json_fails_with_its_type(value):
    outcome = outcome_of(returning(value))

    assert outcome.error_kind == "result_not_json"
    assert type(value).__name__ in outcome.message


def test_a_value_that_nests_without_end_fails():
    loop: list[Any] = []
    loop.append(loop)

    assert outcome_of(returning(loop)).error_kind == "result_not_json"


def test_a_value_over_a_mebibyte_fails_with_its_size():
    outcome = outcome_of(returning("x" * 1_100_000))

    assert outcome.error_kind == "result_too_large"
    assert "1,100,002 bytes" in outcome.message


def writing(then: Callable[[], object]) -> Tool[Any, Any]:
    def write(arguments: dict[str, Any], context: ToolContext) -> object:
        context.resources.get(Filesystem).write_text("made/note", "half done")
        return then()

    return define_tool("x", "Write, then do something.", [], handler=write)


def fail() -> None:
    raise ValueError("after writing")


@pytest.mark.parametrize("then", [fail, lambda: ToolResult.error("no"), object])
def test_a_failed_call_leaves_the_workspace_as_it_was(tmp_path, then):
    outcome = outcome_of(writing(then), resources=Resources([Filesystem(tmp_path)]))

    assert not outcome.success and outcome.restored
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_succeeds_keeps_what_it_wrote(tmp_path):
    outcome = outcome_of(writing(lambda: None), resources=Resources([Filesystem(tmp_path)]))

    assert outcome.success and not outcome.restored
    assert (tmp_path / "made" / "note").read_text() == "half done"


def test_a_call_past_its_deadline_is_not_begun():
    ran: list[int] = []
    late = define_tool("x", "Run.", [], handler=lambda arguments: ran.append(1))

    outcome = outcome_of(late, deadline=Deadline(clock.now() - timedelta(seconds=1)))

    assert (outcome.error_kind, ran) == ("deadline_exceeded", [])


def test_a_late_result_holds_no_secret():
    """The late outcome is stored as evidence, so it is scrubbed like the outcome itself."""
    stop = CancelToken()

    def answer(arguments: dict[str, Any]) -> ToolResult[Any]:
        stop.set()
        return ToolResult.ok({"echo": arguments["password"]}, f"Signed in with {arguments['password']}.")

    sign_in = define_tool("x", "Sign in.", [{"name": "password", "type": "string"}], handler=answer)
    secret = Secret("password", "password", "correct horse battery", "")
    context = make_context(deadline=Deadline(clock.now() + timedelta(days=1), stop))
    outcome = run_call(sign_in, CallArguments({"password": secret.value}), context, secrets=[secret])

    assert outcome.late is not None
    assert outcome.late.value == {"echo": {"$secret": "password"}}
    assert outcome.late.message == 'Signed in with {"$secret":"password"}.'


def test_an_async_handler_is_stopped_at_its_deadline():
    stopped = threading.Event()

    @tool(timeout=1)
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    outcome = outcome_of(hang)

    assert outcome.error_kind == "timeout"
    assert stopped.wait(60)


def test_an_async_handler_that_will_not_stop_is_left_behind():
    release = threading.Event()

    @tool(timeout=0.05)
    async def stubborn() -> None:
        """Refuse to stop."""
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    assert outcome_of(stubborn).error_kind == "timeout"
    release.set()


def test_a_timeout_that_the_handler_raises_itself_is_its_own_failure():
    @tool
    async def times_out() -> None:
        """Raise TimeoutError."""
        raise TimeoutError("the server did not answer")

    outcome = outcome_of(times_out)
    assert outcome.error_kind != "timeout" and "the server did not answer" in outcome.message


def test_async_handlers_run_side_by_side_on_one_loop():
    loops: set[int] = set()
    everyone = asyncio.Barrier(8)

    @tool
    async def wait() -> None:
        """Wait for the others."""
        loops.add(id(asyncio.get_running_loop()))
        await everyone.wait()

    threads = [threading.Thread(target=outcome_of, args=(wait,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(loops) == 1 and not everyone.n_waiting


@pytest.mark.parametrize("arguments", [[], None, "text", {"a": float("inf")}, {1: 2}])
def test_arguments_that_are_not_an_object_or_not_json_are_refused(arguments):
    with pytest.raises(ParameterError):
        prepare_arguments(returning(1), arguments)


def test_arguments_over_the_limit_are_refused_by_name():
    echo = define_tool("x", "Echo.", [{"name": "a", "type": "string"}], handler=lambda arguments: 1)

    with pytest.raises(ParameterError, match="262,144") as caught:
        prepare_arguments(echo, {"a": "x" * 270_000})

    assert caught.value.details["errors"][0]["code"] == "too_large"


def facts() -> CallFacts:
    return CallFacts(tool_name="x", safety_level=SafetyLevel.SAFE, categories=(), arguments={})


def test_a_gate_judges_checked_arguments_before_the_handler_runs():
    ran: list[int] = []
    judged: list[CallFacts] = []
    counting = define_tool("x", "Run.", [], handler=lambda arguments: ran.append(1))
    hold = Hold("two reviewers")

    def holding(call: CallFacts) -> Hold:
        judged.append(call)
        return hold

    def through(arguments: object, gate: Gate) -> Any:
        return dispatch(counting, arguments, gate=gate, context=make_context(), facts=facts())

    assert through({}, holding) is hold and through({}, lambda call: Deny("Not today.")).error_kind == "denied"
    assert through({"y": 1}, holding).error_kind == "parameter_error"
    assert (len(judged), ran) == (1, [])
    assert through({}, allow_all).success and ran == [1]


@pytest.mark.parametrize(
    ("value", "results", "extra"),
    [
        (None, [], {}),
        ([1, 2], [1, 2], {}),
        ("text", ["text"], {}),
        ({"a": 1}, [{"a": 1}], {}),
        ({"results": [1], "data": {"x": 2}}, [1], {"data": {"x": 2}}),
        ({"results": None}, [], {}),
    ],
)
def test_the_standard_response_of_any_value(value, results, extra):
    giving = returning(value)

    assert (
        standard_response(giving, {"a": 1}, outcome_of(giving))
        == {
            "query_type": None,
            "parameters": {"a": 1},
            "results": results,
            "output_key": "x",
            "success": True,
        }
        | extra
    )


def test_nothing_found_is_a_warning_with_empty_results():
    missing = raising(DataNotFound("Nothing."))
    response = standard_response(missing, {}, outcome_of(missing))

    assert response["results"] == [] and response["success"] is False
    assert response["warning"] == "Nothing." and "error" not in response


def test_a_response_the_handler_formatted_itself_is_understood():
    failed = returning(returning(1).format_error_response("q", {}, "Storage is away.", hint="later"))
    response = standard_response(failed, {}, outcome_of(failed))

    assert (response["success"], response["error"], response["hint"]) == (False, "Storage is away.", "later")


def test_invoke_raises_what_ends_an_evaluation_and_returns_the_rest():
    for error in (PromptEvaluationError("over"), VisibilityExpansionRequired("show more")):
        with pytest.raises(type(error), match=str(error)):
            invoke(raising(error), {})
    with pytest.raises(PromptEvaluationError):
        invoke(raising(DeadlineExceededError()), {})

    assert invoke(raising(ValueError("odd")), {}) == ToolResult.error("Tool 'x' execution failed: odd")
    assert invoke(returning(1), {}, gate=lambda call: Hold(None)).message == "Tool 'x' waits for approval."


def test_what_runs_is_what_is_recorded_where_an_integer_is_given_as_a_float():
    @tool
    def repeat(text: str, times: int) -> str:
        """Repeat a text."""
        return text * times

    assert repr(prepare_arguments(repeat, {"text": "a", "times": 2.0}).passed) == "{'text': 'a', 'times': 2}"
    assert invoke(repeat, {"text": "a", "times": 2.0}).value == "aa"
    untouched = {"text": "1.0", "times": 3}
    assert prepare_arguments(repeat, untouched).passed is untouched


@pytest.mark.parametrize("number", [2.0**53, 1e16, -1.5e17, 1e20])
def test_float_recorded_as_too_large_integer_is_refused(number):
    """A held call would start with unreadable arguments."""

    @tool
    def weigh(grams: float) -> float:
        """Weigh something."""
        return grams

    with pytest.raises(ParameterError) as refusal:
        prepare_arguments(weigh, {"grams": number})
    assert (refusal.value.details["field"], refusal.value.details["errors"][0]["code"]) == ("grams", "integer_range")
    assert prepare_arguments(weigh, {"grams": 1e21}).passed == {"grams": 1e21}
