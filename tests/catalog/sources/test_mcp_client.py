"""Client of an upstream MCP server over HTTP, with a scripted one: what it does wrong, and the consequences.

A failure concerns its own call, not the others of the session.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.runner import background_loop
from catalog.errors import EffectUnknown, SourceProblem, UpstreamError, UpstreamUnavailable
from catalog.exports.providers import mcp_form
from catalog.results import UpstreamResult
from catalog.sources.definitions import Definition, Listing
from catalog.sources.loading import build_tool
from catalog.sources.mcp_client import Connection, close_connections, connection_to, keep_connections
from catalog.sources.mcp_failures import MEANINGS, Effect, Fault
from catalog.sources.mcp_tools import OfferedTools
from catalog.sources.settings import UpstreamSettings
from tests.scripted_upstream import (
    ANY_OBJECT,
    DONE,
    Reply,
    ScriptedUpstream,
    message,
    progress,
    scripted_upstream,
)
from tests.upstreams import free_port

SAFE, CAUTIOUS, DANGEROUS = SafetyLevel
MEBIBYTE = 1024 * 1024
REFUSED = {"code": -32000, "message": "Quota exceeded"}
CLOSED = "The connection to up broke before it answered the call."
UNKNOWN = (EffectUnknown, "effect_unknown")

FAILURES: dict[str, tuple[Fault, Reply, str]] = {
    # An error that arrived is a refusal with its words, whatever its code: also those that the SDK uses for its own.
    "error -32000": (Fault.REFUSED, Reply(error=REFUSED), "up refused the call: Quota exceeded"),
    "error -32001": (Fault.REFUSED, Reply(error={**REFUSED, "code": -32001}), "up refused the call: Quota exceeded"),
    "error -32603": (Fault.REFUSED, Reply(error={**REFUSED, "code": -32603}), "up refused the call: Quota exceeded"),
    "error in an event": (
        Fault.REFUSED,
        Reply(events=[message(id="?", error=REFUSED)]),
        "up refused the call: Quota exceeded",
    ),
    "error without words": (
        Fault.REFUSED,
        Reply(error={"code": 7, "message": "", "data": {"detail": "disk full"}}),
        "up refused the call: disk full",
    ),
    "error that speaks of sessions": (
        Fault.REFUSED,
        Reply(error={"code": -32600, "message": "Session terminated"}),
        "up refused the call: Session terminated",
    ),
    "500 with an error": (Fault.REFUSED, Reply(status=500, error=REFUSED), "up refused the call: Quota exceeded"),
    "422 in plain words": (
        Fault.REFUSED,
        Reply(status=422, body=b"no such page", kind="text/plain"),
        "up refused the call: no such page",
    ),
    "400": (Fault.REFUSED, Reply(status=400, error=REFUSED), "up refused the call: Quota exceeded"),
    "401": (
        Fault.DENIED,
        Reply(status=401, body=b'{"error": "invalid_token", "error_description": "expired"}'),
        "up did not accept the stored credential (401): expired",
    ),
    "429": (
        Fault.RATE_LIMITED,
        Reply(status=429, body=b"", headers={"Retry-After": "7"}),
        "up is rate-limiting requests (429). Try again in 7 seconds.",
    ),
    "307": (
        Fault.REDIRECTED,
        Reply(status=307, body=b"", headers={"Location": "https://other.example/mcp"}),
        "up redirects requests to another origin (307). Nothing ran; check its URL.",
    ),
    "302": (
        Fault.NO_MESSAGE,
        Reply(status=302, body=b"", headers={"Location": "/login"}),
        "up answered the call with the status 302 and no result.",
    ),
    "502": (
        Fault.NO_MESSAGE,
        Reply(status=502, body=b"<html>", kind="text/html"),
        "up answered the call with the status 502 and no result.",
    ),
    "202": (
        Fault.NO_MESSAGE,
        Reply(status=202, body=b""),
        "up answered the call with the status 202 and no result.",
    ),
    "dropped": (Fault.UNANSWERED, Reply(drop=True), CLOSED),
    "cut": (Fault.UNANSWERED, Reply(DONE, cut=True), CLOSED),
    "stream that ends": (Fault.UNANSWERED, Reply(events=[progress(1)]), CLOSED),
    "garbled": (
        Fault.NOT_MCP,
        Reply(body=b"{nonsense"),
        "up answered the call with something that is not MCP.",
    ),
    "garbled event": (
        Fault.NOT_MCP,
        Reply(events=[b"data: {nonsense\n\n"]),
        "up answered the call with something that is not MCP.",
    ),
    "page": (
        Fault.NOT_MCP,
        Reply(body=b"<html>", kind="text/html"),
        "up answered the call with something that is not MCP.",
    ),
    "flooding": (
        Fault.TOO_LARGE,
        Reply(body=b" " * (9 * MEBIBYTE)),
        "up answered the call with more than 8 MiB, or compressed.",
    ),
    "flooding events": (
        Fault.TOO_LARGE,
        Reply(events=[b"data: " + b"x" * (9 * MEBIBYTE) + b"\n\n"]),
        "up answered the call with more than 8 MiB, or compressed.",
    ),
    "compressed": (
        Fault.TOO_LARGE,
        Reply(DONE, headers={"Content-Encoding": "gzip"}),
        "up answered the call with more than 8 MiB, or compressed.",
    ),
    "in need of input": (
        Fault.INPUT_REQUIRED,
        Reply({"resultType": "input_required", "inputRequests": {}}),
        "up asks for input, which Toolgate does not forward.",
    ),
}


@pytest.fixture
def upstream(settings: Any) -> Iterator[ScriptedUpstream]:
    """Return a running upstream."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with scripted_upstream() as server:
        yield server


def settings_of(upstream: ScriptedUpstream, **fields: Any) -> UpstreamSettings:
    """Return the settings of a source with this upstream."""
    return UpstreamSettings(**{"pk": 1, "name": "up", "kind": "mcp", "url": upstream.url, **fields})


def definition(upstream: ScriptedUpstream, name: str = "good") -> Definition:
    """Return what would be imported of a tool."""
    listing = listing_of(upstream.tools)
    found = next((each for each in listing.definitions if each.upstream == name), None)
    return found or Definition(kind="mcp", upstream=name, description=name, input_schema=ANY_OBJECT)


def listing_of(entries: list[Any], **offered: Any) -> Listing:
    """Return what is imported of a list of tools."""
    settings = UpstreamSettings(pk=1, name="up", kind="mcp", url="https://up.example")
    return OfferedTools(entries, **offered).listing(settings)


async def outcome_of(connection: Connection, tool: Definition, level: SafetyLevel = SAFE) -> Any:
    """Call a tool and return its value, or the error."""
    try:
        return (await connection.call(tool, {}, level=level)).value
    except (UpstreamError, EffectUnknown, UpstreamUnavailable) as error:
        return error


def call(
    upstream: ScriptedUpstream, tool: str = "good", level: SafetyLevel = SAFE, *, times: int = 1, **fields: Any
) -> Any:
    """Call a tool over a connection of its own and return the last value or error."""

    async def run() -> Any:
        connection = Connection(settings_of(upstream, **fields))
        for _ in range(times):
            outcome = await outcome_of(connection, definition(upstream, tool), level)
        await connection.end()
        return outcome

    return asyncio.run(run())


def test_each_failure_concerns_its_call_alone_and_says_what_was_seen(upstream: ScriptedUpstream) -> None:
    """All in one session, beside a slow call of another."""
    assert {fault for fault, _, _ in FAILURES.values()} | {Fault.NOT_SENT, Fault.SESSION_LOST, Fault.TIMED_OUT} == set(
        MEANINGS
    )
    may_answer = threading.Event()
    upstream.on("slow", Reply(DONE, after=may_answer))
    upstream.tools = [{"name": name, "inputSchema": ANY_OBJECT} for name in (*FAILURES, "good", "slow")]
    found: dict[str, list[Any]] = {}

    async def call_all() -> Any:
        connection = Connection(settings_of(upstream))
        slow = asyncio.create_task(outcome_of(connection, definition(upstream, "slow")))
        await asyncio.to_thread(upstream.has_request.wait, 60)
        session = connection._session
        for name, (_, reply, _) in FAILURES.items():
            upstream.on(name, reply)
            found[name] = []
            for level in (SAFE, DANGEROUS):
                connection._session = session  # later calls would open another, which the slow one does not share
                found[name].append(await outcome_of(connection, definition(upstream, name), level))
        connection._session = session
        good = await outcome_of(connection, definition(upstream))
        may_answer.set()
        outcome = await slow, good
        await connection.end()
        return outcome

    assert asyncio.run(call_all()) == ("done", "done")
    for name, (fault, _, sentence) in FAILURES.items():
        meaning, (safe, dangerous) = MEANINGS[fault], found[name]
        error = (UpstreamError, meaning.kind)
        expected = {
            "none": [error, error],
            "unknown": [UNKNOWN, UNKNOWN],
            "unknown_once": [error, UNKNOWN],
        }[meaning.effect]
        assert [(type(each), each.kind) for each in (safe, dangerous)] == expected, name
        assert [str(each) for each in (safe, dangerous)] == [sentence, sentence]
    assert found["429"][0].details == {"http_status": 429, "retry_after": 7}


@pytest.mark.parametrize(
    "lost",
    [
        Reply(status=404, error={"code": -32001, "message": "Session not found"}),
        Reply(status=404, body=b"", kind="text/html"),
        Reply(status=400, error={"code": -32000, "message": "Bad Request: No valid session ID provided"}),
    ],
)
def test_lost_session_is_replaced_and_what_may_run_twice_is_sent_again(upstream: ScriptedUpstream, lost: Reply) -> None:
    upstream.tools[0]["annotations"] = {"idempotentHint": True}
    upstream.lost = lost

    async def call_after_restarts() -> list[Any]:
        connection, outcomes = Connection(settings_of(upstream)), []
        await connection.list_tools()
        for level, is_lost_after_listing in ((SAFE, False), (CAUTIOUS, False), (CAUTIOUS, True), (DANGEROUS, True)):
            if is_lost_after_listing:
                upstream.on("good", lost, Reply(DONE))
            else:
                upstream.forget_sessions()
            outcomes.append(await outcome_of(connection, definition(upstream), level))
        await connection.end()
        return outcomes

    *repeated, refused = asyncio.run(call_after_restarts())
    assert repeated == ["done"] * 3
    assert (type(refused), refused.kind) == (UpstreamError, "upstream_refused")
    assert upstream.opened == 4


def test_refusal_with_400_is_not_repeated_for_ever(upstream: ScriptedUpstream) -> None:
    upstream.on("good", Reply(status=400, error=REFUSED))
    assert str(call(upstream)) == "up refused the call: Quota exceeded"
    assert (upstream.calls(), upstream.opened) == (["good", "good"], 2)


def test_program_or_server_that_went_away_is_connected_to_again(upstream: ScriptedUpstream) -> None:
    connection = Connection(settings_of(upstream, url=f"http://127.0.0.1:{free_port()}/mcp"))

    async def fail_and_recover() -> list[Any]:
        first = await outcome_of(connection, definition(upstream))
        connection.settings = settings_of(upstream)
        second = await outcome_of(connection, definition(upstream))  # without a pause
        await connection.end()
        return [str(first), second]

    assert asyncio.run(fail_and_recover()) == [
        "Toolgate could not connect to up: nothing answers at its address.",
        "done",
    ]


def test_progress_extends_the_wait_up_to_ten_timeouts(upstream: ScriptedUpstream) -> None:
    answer = message(id="?", result=DONE)
    upstream.on("good", Reply(events=[0.15, progress(1), 0.15, progress(2), 0.15, answer]))
    upstream.on("silent", Reply(events=[progress(1), 1.0, answer]))
    upstream.on("endless", Reply(events=[each for n in range(40) for each in (progress(n), 0.1)]))
    heard: list[tuple[float, float | None]] = []

    async def run() -> Any:
        connection = Connection(settings_of(upstream, timeout=0.25))
        tool = definition(upstream)
        value = (await connection.call(tool, {}, level=SAFE, on_progress=lambda *each: heard.append(each))).value
        errors = await asyncio.gather(
            *(outcome_of(connection, definition(upstream, name)) for name in ("silent", "endless"))
        )
        await connection.end()
        return value, errors

    value, (silent, endless) = asyncio.run(run())
    assert value == "done"
    assert heard == [(1, None), (2, None)]
    assert [(type(each), each.kind) for each in (silent, endless)] == [(UpstreamError, "timeout")] * 2
    advice = "An administrator can change the timeout of the source on its page."
    assert str(silent) == f"up did not answer the call within 0.25 seconds. {advice}"
    assert str(endless) == f"up did not answer the call within 2.5 seconds. {advice}"


TASKS: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}}


def task(status: str, **fields: Any) -> dict[str, Any]:
    """Return the state of a task."""
    return {"taskId": "t1", "status": status, "pollInterval": 1, **fields}


@pytest.mark.parametrize(
    "states, result, outcome, last",
    [
        (["working", "working", "completed"], Reply(DONE), "done", "tasks/result"),
        (["working", "failed"], Reply(error=REFUSED), "up refused the call: Quota exceeded", "tasks/cancel"),
        (["working", "input_required"], Reply(), "up asks for input, which Toolgate does not forward.", "tasks/cancel"),
    ],
)
def test_tool_that_requires_it_is_called_as_a_task(
    upstream: ScriptedUpstream, states: list[str], result: Reply, outcome: str, last: str
) -> None:
    upstream.capabilities = TASKS
    upstream.tools = [{"name": "good", "inputSchema": ANY_OBJECT, "execution": {"taskSupport": "required"}}]
    first, *others = states
    upstream.on("tools/call", Reply({"task": task(first)}))
    upstream.on("tasks/get", *(Reply(task(each)) for each in others))
    upstream.on("tasks/result", result)
    tool = listing_of(upstream.tools, as_tasks=True).definitions[0]

    async def run() -> Any:
        connection = Connection(settings_of(upstream))
        found = await outcome_of(connection, tool, DANGEROUS)
        await connection.end()
        return found

    assert str(asyncio.run(run())) == outcome
    assert upstream.requests[-1][0] == last
    sent = next(params for method, params, _ in upstream.requests if method == "tools/call")
    assert sent["task"]["ttl"] > 0


UNTYPED: list[dict[str, Any]] = [{}, {"type": ["object", "null"]}, {"anyOf": [{"properties": {}}]}, {"type": "array"}]


def test_list_is_imported_without_what_cannot_be(upstream: ScriptedUpstream) -> None:
    """One bad entry leaves the others as they are, also where it appears after the import."""
    good = upstream.tools[0]
    required = {"name": "queued", "inputSchema": ANY_OBJECT, "execution": {"taskSupport": "required"}}
    bad = [
        {"name": "x"},
        {"name": "flag", "inputSchema": True},
        {"inputSchema": ANY_OBJECT},
        "text",
        {**good},
        required,
        *({"name": f"untyped{n}", "inputSchema": each} for n, each in enumerate(UNTYPED)),
        {"name": "odd_output", "inputSchema": ANY_OBJECT, "outputSchema": {"type": "nothing"}},
    ]
    listing = listing_of([good, *bad])
    assert [(each.upstream, each.output_schema) for each in listing.definitions] == [
        ("good", None),
        ("odd_output", None),
    ]
    assert listing.problems == (
        "'x' cannot be imported: inputSchema is invalid (Field required).",
        "'flag' cannot be imported: inputSchema is invalid (Input should be a valid dictionary).",
        "Tool 4 of the list cannot be imported: name is invalid (Field required).",
        "Tool 5 of the list cannot be imported: it is no JSON object.",
        "up offers 'good' twice; the first definition is used.",
        "'queued' cannot be imported: it must be called as a task, which the server does not offer to run.",
        *(
            f"'untyped{n}' cannot be imported: the type of its inputSchema is not \"object\", as MCP demands."
            for n in range(len(UNTYPED))
        ),
        "'odd_output' is imported without its outputSchema: "
        "'nothing' is not valid under any of the given schemas (schema at type)",
    )
    upstream.tools = [*bad, good]
    assert call(upstream, level=DANGEROUS) == "done"


def test_tools_are_counted_and_a_repeated_cursor_ends_the_list(upstream: ScriptedUpstream) -> None:
    def pages(*, last: str | None) -> list[Reply]:
        named = [{"tools": [{"name": f"t{n}", "inputSchema": ANY_OBJECT}], "nextCursor": f"c{n}"} for n in range(60)]
        named[-1] = {**named[-1], "nextCursor": last} if last else {"tools": named[-1]["tools"]}
        return [Reply(each) for each in named]

    async def list_tools() -> OfferedTools:
        connection = Connection(settings_of(upstream))
        try:
            return await connection.list_tools()
        finally:
            await connection.end()

    upstream.on("tools/list", *pages(last=None))
    offered = asyncio.run(list_tools())
    assert (len(offered.entries), offered.problems) == (60, [])
    upstream.on("tools/list", *pages(last="c3"))
    offered = asyncio.run(list_tools())
    problem = "up repeated a cursor of its list of tools. The list was read up to there."
    assert (len(offered.entries), offered.problems) == (60, [problem])
    upstream.on(
        "tools/list", Reply({"tools": [upstream.tools[0]] * 1001, "nextCursor": "a"}), Reply({"tools": [1] * 1001})
    )
    with pytest.raises(SourceProblem, match="offers more than 2,000 tools"):
        asyncio.run(list_tools())
    upstream.on("tools/list", Reply(error=REFUSED))
    with pytest.raises(SourceProblem, match=r"^up refused tools/list: Quota exceeded$"):
        asyncio.run(list_tools())


def test_upstream_that_asks_its_client_is_told_what_is_not_supported(upstream: ScriptedUpstream) -> None:
    """A server may ask while it runs a call; it learns at once that nobody answers."""
    asked = ["elicitation/create", "sampling/createMessage", "roots/list"]
    texts = [
        {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
        {"messages": [], "maxTokens": 1},
        {},
    ]
    questions = [message(id=f"q{n}", method=each, params=texts[n]) for n, each in enumerate(asked)]
    upstream.on("good", Reply(events=[*questions, 0.3, message(id="?", result=DONE)]))
    assert call(upstream) == "done"
    codes = {each["id"]: each["error"]["message"] for each in upstream.answers}
    assert codes == {
        "q0": "Elicitation not supported",
        "q1": "Sampling not supported",
        "q2": "List roots not supported",
    }


def test_large_and_odd_results_arrive(upstream: ScriptedUpstream) -> None:
    """An event of 2 MB, a lone surrogate, an integer beyond 4,300 digits, and an answer with another id."""
    large = {"content": [{"type": "text", "text": "x" * 500_000}], "_meta": {"more": "y" * 1_500_000}}
    upstream.on("large", Reply(events=[message(id="?", result=large)]))
    odd = (
        b'{"jsonrpc": "2.0", "id": 99, "result": {"content": [{"type": "text", "text": "\\ud800"}], "n": ' + b"9" * 5000
    )
    upstream.on("odd", Reply(body=odd + b"}}"))
    assert len(str(call(upstream, "large"))) == 500_000
    assert not isinstance(call(upstream, "odd"), EffectUnknown | UpstreamUnavailable)


def test_call_that_ran_succeeds_without_a_list_of_tools(upstream: ScriptedUpstream) -> None:
    upstream.on("tools/list", Reply(error=REFUSED))
    assert call(upstream) == "done"


def start_call(upstream: ScriptedUpstream, slow_method: str) -> tuple[Future[UpstreamResult[Any]], threading.Event]:
    """Start a call that lists first, over this process's connection, and wait until its slow request arrived."""
    source, may_answer = settings_of(upstream), threading.Event()
    reply = upstream.reply_to(slow_method, {"name": "good"})
    upstream.on(slow_method, Reply(reply.result, headers=reply.headers, after=may_answer))
    tool = definition(upstream)

    async def run() -> UpstreamResult[Any]:
        return await connection_to(source).call(tool, {}, level=DANGEROUS)

    started = asyncio.run_coroutine_threadsafe(run(), background_loop())
    assert upstream.has_request.wait(60)
    return started, may_answer


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_retired_connection_ends_after_its_call(upstream: ScriptedUpstream, method: str) -> None:
    started, may_answer = start_call(upstream, method)
    keep_connections([])
    may_answer.set()
    assert started.result(60).value == "done"
    assert upstream.has_closed.wait(60)
    assert upstream.opened == 1


def test_retired_connection_closes_the_session_it_opens(upstream: ScriptedUpstream) -> None:
    async def run() -> tuple[str, bool]:
        connection = Connection(settings_of(upstream))
        connection.retire()
        return await outcome_of(connection, definition(upstream)), await asyncio.to_thread(upstream.has_closed.wait, 60)

    assert asyncio.run(run()) == ("done", True)


def test_closing_ends_retired_connections(upstream: ScriptedUpstream) -> None:
    started, may_answer = start_call(upstream, "tools/call")
    keep_connections([])
    close_connections()
    assert upstream.has_closed.is_set()
    with pytest.raises(EffectUnknown):
        started.result(60)
    may_answer.set()


@pytest.mark.parametrize(
    "reply, path, reason",
    [
        (Reply(status=401, body=b""), "", "it answered 401; check the headers."),
        (Reply(status=404, body=b""), "", "it answered 404; check the URL."),
        (Reply(status=503, body=b""), "", "it answered 503."),
        (Reply(status=201, body=b"<html>", kind="text/html"), "", "its answers are not MCP; check the URL."),
        (Reply(error={"code": -32000, "message": "Closed today"}), "", "it answered with an error: Closed today"),
        (None, "https://127.0.0.1:{port}", "TLS failed (WRONG_VERSION_NUMBER)."),
        (None, "http://127.0.0.1:{free}", "nothing answers at its address."),
    ],
)
def test_failure_to_connect_says_why(upstream: ScriptedUpstream, reply: Reply | None, path: str, reason: str) -> None:
    if reply is not None:
        upstream.on("server/discover", reply)
        upstream.on("initialize", reply)
    url = path.format(port=upstream.server_port, free=free_port()) or upstream.url
    connection = Connection(settings_of(upstream, url=url))
    with pytest.raises(UpstreamUnavailable) as failure:
        asyncio.run(connection.list_tools())
    assert str(failure.value) == f"Toolgate could not connect to up: {reason}"


def test_all_callers_of_a_hanging_upstream_learn_that_it_hangs(upstream: ScriptedUpstream) -> None:
    hangs = threading.Event()
    upstream.on("initialize", Reply(after=hangs))

    async def fail_twice() -> list[str]:
        connection = Connection(settings_of(upstream, timeout=0.5))
        first = asyncio.create_task(outcome_of(connection, definition(upstream)))
        await asyncio.sleep(0.25)  # so that the first call ends the session that the second one waits for
        with pytest.raises(UpstreamUnavailable) as failure:
            await connection.list_tools()
        return [str(await first), str(failure.value)]

    assert asyncio.run(fail_twice()) == ["up did not answer in time."] * 2
    hangs.set()


def test_documentation_lists_each_failure_with_its_error() -> None:
    rows = (Path(__file__).parents[3] / "docs" / "sources.md").read_text().splitlines()
    for fault, meaning in MEANINGS.items():
        error = "effect_unknown" if meaning.effect is Effect.UNKNOWN else meaning.kind
        assert [row for row in rows if row.startswith(f"| {meaning.seen} |") and f"`{error}`" in row], fault


def test_titles_and_hints_are_kept_except_those_of_the_level() -> None:
    annotations = {"title": "Sum", "readOnlyHint": True, "openWorldHint": False, "idempotentHint": False}
    titled = {"name": "get-sum", "title": "Get Sum Tool", "inputSchema": ANY_OBJECT, "annotations": annotations}
    trusting = UpstreamSettings(pk=1, name="up", kind="mcp", url="https://up.example", trusted=False)
    (tool,) = OfferedTools([titled]).listing(trusting).definitions
    built = build_tool("get_sum", Definition.from_json(tool.as_json()), trusting)
    entry = mcp_form("get_sum", built, title=built.title, hints=built.hints)
    assert entry["title"] == "Get Sum Tool"
    assert entry["annotations"] == {
        "title": "Sum",
        "readOnlyHint": False,  # of an untrusted source
        "destructiveHint": False,
        "idempotentHint": False,
        "openWorldHint": False,
    }
