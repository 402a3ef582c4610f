"""Functions of one's own process: they run once, with the approved arguments, or not at all."""

import asyncio
from concurrent.futures import Future
from itertools import starmap
from typing import Any

import httpx
import pytest

from tests.toolgate_client.conftest import problem
from toolgate_client import AsyncClient, Client, MalformedAnswer, NotAllowed, ToolgateError, gated

REPORT = {"succeeded": True, "output": None, "message": ""}


def permission(decision="allow", **fields):
    body = {"decision": decision, "call": "call_1", "input": {"path": "a"}, "message": "", "approval": "apr_1"}
    return httpx.Response(200, json={**body, **fields})


def reported():
    return httpx.Response(200, json={"call": "call_1"})


@pytest.fixture
def runs():
    """The arguments of each run."""
    return []


@pytest.fixture
def impatient(toolgate):
    """No request is sent again."""
    toolgate.retry_seconds = 0


@pytest.fixture
def delete_file(toolgate, runs):
    """A gated function of the client's kind."""

    def delete(path: str, force: bool = False) -> Any:
        runs.append((path, force))
        return path if path != "raise" else 1 / 0

    async def delete_async(path: str, force: bool = False) -> Any:
        return delete(path, force)

    function = delete if isinstance(toolgate, Client) else delete_async
    return gated(tool="delete_file", client=toolgate)(function)


def test_it_runs_with_the_edited_arguments_and_reports(delete_file, script, outcome, runs):
    script.replies = [permission(input={"path": "b", "force": True}), reported()]
    assert outcome(delete_file("a")) == "b"
    assert (runs, script.paths()) == ([("b", True)], ["POST permissions/", "POST permissions/call_1/result/"])
    asked, report = script.bodies()
    assert len(asked.pop("call_id")) == 32
    question = {"client": "python", "session": "s1", "tool": "delete_file", "input": {"path": "a", "force": False}}
    assert asked == {**question, "wait_seconds": 50.0}
    assert report.pop("duration_ms") >= 0
    assert report == {**REPORT, "output": "b"}


def test_it_asks_again_until_somebody_has_decided(delete_file, script, outcome, runs):
    lost = httpx.ReadTimeout("no")
    script.replies = [permission("wait"), lost, permission("defer"), permission(), reported()]
    outcome(delete_file("a"))
    asked = script.bodies()[:4]
    assert (len(runs), len({body["call_id"] for body in asked})) == (1, 1)
    assert not any("idempotency-key" in request.headers for request in script.requests[:4])


def test_an_exception_is_reported_and_raised(delete_file, script, outcome):
    script.replies = [permission(input={"path": "raise"}), reported()]
    with pytest.raises(ZeroDivisionError):
        outcome(delete_file("a"))
    report = script.bodies()[1]
    assert (report["succeeded"], report["message"]) == (False, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (permission("deny", message="Not on a Friday."), NotAllowed),
        (permission("deny", call=None, input=None, approval=None), NotAllowed),
        (permission(call=None), MalformedAnswer),
        (permission(call=""), MalformedAnswer),
        (permission(input=None), MalformedAnswer),
        (permission(input=["a"]), MalformedAnswer),
        (permission(decision=None), MalformedAnswer),
        (permission("ALLOW"), MalformedAnswer),
        (permission("approve"), MalformedAnswer),
        (httpx.Response(200, json={}), MalformedAnswer),
        (httpx.Response(200, html="<p>allow</p>"), MalformedAnswer),
        (httpx.Response(200), MalformedAnswer),
        (httpx.Response(307, headers={"location": "/"}), MalformedAnswer),
        (problem(401), ToolgateError),
        (problem(403), ToolgateError),
        (problem(413), ToolgateError),
        (problem(429), ToolgateError),
        (problem(500), ToolgateError),
        (problem(503), ToolgateError),
        (httpx.ConnectError("no"), ToolgateError),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_it_does_not_run_in_doubt(delete_file, script, outcome, answer, error):
    script.replies = [answer]
    with pytest.raises(error):
        outcome(delete_file("a"))
    assert script.paths() == ["POST permissions/"]


def test_it_does_not_run_if_nobody_decides_in_time(toolgate, script, outcome, runs):
    script.replies = [permission("wait", url="https://toolgate.example/approvals/?item=apr_1")]
    with pytest.raises(NotAllowed) as raised:
        outcome(toolgate.run("delete_file", {}, runs.append, wait_seconds=0))
    assert (runs, raised.value.call, raised.value.approval) == ([], "call_1", "apr_1")


@pytest.mark.usefixtures("impatient")
def test_its_result_outlives_a_lost_report(delete_file, script, outcome, caplog):
    script.replies = [permission(), httpx.ConnectError("no")]
    assert outcome(delete_file("a")) == "a"
    assert [record.getMessage() for record in caplog.records if record.name == "toolgate_client"] == [
        "The end of call_1 could not be reported (ConnectionLost)."
    ]


class Unwritable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        ({1}, "{1}"),
        (float("nan"), "nan"),
        (Unwritable(), "<Unwritable>"),
        ("x" * 300_000, "[300,002 bytes, not reported]"),
    ],
)
def test_any_result_can_be_reported(toolgate, script, outcome, value, output):
    script.replies = [permission(), reported()]
    outcome(toolgate.run("delete_file", {}, lambda arguments: value))
    assert script.bodies()[1]["output"] == output


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": {"b": {1}}}, float("nan"), b"a", [float("inf")], "deep"])
def test_arguments_that_json_does_not_have_are_refused(delete_file, script, outcome, runs, value):
    if value == "deep":
        value = []
        for _ in range(5_000):
            value = [value]
    with pytest.raises(TypeError, match="'path'"):
        outcome(delete_file(value))
    assert (runs, script.requests) == ([], [])


def test_further_keywords_are_arguments_of_their_own(script):
    client = Client("https://toolgate.example", "tg_a", transport=httpx.MockTransport(script))

    @gated(client=client)
    def tag(path: str, **labels: str) -> dict[str, str]:
        return labels

    script.replies = [permission(input={"path": "a", "colour": "red"}), reported()]
    assert tag("a", colour="blue") == {"colour": "red"}
    asked = script.bodies()[0]
    assert (asked["tool"], asked["input"]) == ("tag", {"path": "a", "colour": "blue"})


def positional(path: str, /) -> None: ...
def several(*paths: str) -> None: ...
def generator(path: str) -> Any:
    yield path


@pytest.mark.parametrize("function", [positional, several, generator])
def test_functions_that_cannot_be_gated_are_refused(function):
    with pytest.raises(TypeError):
        gated()(function)


def test_an_async_function_needs_an_async_client():
    async def delete() -> None: ...

    with pytest.raises(TypeError):
        gated(client=Client("https://toolgate.example", "tg_a"))(delete)
    with pytest.raises(TypeError):
        gated(client=AsyncClient("https://toolgate.example", "tg_a"))(lambda: None)


def test_what_would_only_be_awaited_is_not_reported_as_done(script):
    async def delete(arguments: Any) -> None: ...

    client = Client("https://toolgate.example", "tg_a", transport=httpx.MockTransport(script))
    script.replies = [permission(), reported()]
    with pytest.raises(TypeError, match="AsyncClient"):
        client.run("delete_file", {}, delete)
    assert script.bodies()[1]["succeeded"] is False


def test_without_a_configuration_nothing_runs(monkeypatch, runs):
    monkeypatch.delenv("TOOLGATE_TOKEN", raising=False)

    async def delete() -> None:
        runs.append(1)

    with pytest.raises(ToolgateError):
        gated()(lambda: runs.append(1))()
    with pytest.raises(ToolgateError):
        asyncio.run(gated()(delete)())
    assert runs == []


def a_generator(runs):
    runs.append("ran")
    yield


async def an_async_generator(runs):
    runs.append("ran")
    yield


LATER = {
    "generator": a_generator,
    "asynchronous generator": an_async_generator,
    "map": lambda runs: map(runs.append, ["ran"]),
    "filter": lambda runs: filter(runs.append, ["ran"]),
    "starmap": lambda runs: starmap(runs.append, [("ran",)]),
    "future": lambda runs: Future(),
}


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("name", LATER)
def test_a_function_whose_work_comes_later_is_refused(toolgate, script, outcome, name, is_awaited):
    """Its end would be reported before the work has begun."""
    runs: list[Any] = []
    script.replies = [permission(), reported()]

    async def awaited(arguments):
        return LATER[name](runs)

    is_async = is_awaited and isinstance(toolgate, AsyncClient)
    with pytest.raises(TypeError, match="later"):
        outcome(toolgate.run("delete", {}, awaited if is_async else lambda arguments: LATER[name](runs)))
    report = script.bodies()[1]
    assert (runs, report["succeeded"], report["message"].startswith("TypeError")) == ([], False, True)
