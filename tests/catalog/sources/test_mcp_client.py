"""Client of an upstream MCP server over HTTP: bad answers, and the end of its connections.

A bad answer concerns its own call, not the others of the session.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from catalog.dispatch.runner import background_loop
from catalog.errors import EffectUnknown, UpstreamError, UpstreamUnavailable
from catalog.results import ToolResult
from catalog.sources.definitions import Definition
from catalog.sources.mcp_client import Connection, close_connections, connection_to, keep_connections
from catalog.sources.mcp_tools import definition_from
from catalog.sources.mcp_transport import NOT_SENT, McpTransport
from catalog.sources.settings import UpstreamSettings
from tests.http_server import serving
from tests.upstreams import free_port

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "upstream", "version": "1"},
}
BAD = {
    "flooding": "UpstreamError upstream_too_large",
    "flooding events": "UpstreamError upstream_too_large",
    "compressed": "UpstreamError upstream_too_large",
    "garbled": "UpstreamError upstream_malformed",
    "odd": "UpstreamError upstream_malformed",
    "dropping": "EffectUnknown effect_unknown",
    "stopping": "EffectUnknown effect_unknown",
}
"""Tools by how they answer, and the outcome of their calls."""


class Upstream(ThreadingHTTPServer):
    """Answers a call of `slow`, or a request of the `slow_method`, when `may_answer` is set.

    It answers other calls as their names say, and counts its sessions.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.has_slow_request, self.may_answer = threading.Event(), threading.Event()
        self.slow_method = ""
        self.can_list = True
        self.status = 200
        self.opened = self.closed = 0
        self.has_closed = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that the client closes."""


class Answer(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_POST(self) -> None:
        """Answer a JSON-RPC message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            self.say(b"", 202)
            return
        if self.server.status != 200:
            self.say(b"<html>", self.server.status, kind="text/html")
            return
        if message["method"] == "initialize":
            self.server.opened += 1
        text = {"content": [{"type": "text", "text": "done"}]}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*BAD, "slow", "good")]
        results = {"initialize": INITIALIZED, "tools/list": {"tools": tools}, "tools/call": text}
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results and (self.server.can_list or message["method"] != "tools/list"):
            answer["result"] = results[message["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "Not known"}
        is_slow = message["method"] == self.server.slow_method
        self.answer_as("slow" if is_slow else message.get("params", {}).get("name"), json.dumps(answer).encode())

    def answer_as(self, name: str | None, body: bytes) -> None:
        """Send the answer, or what the tool's name says instead."""
        match name:
            case "slow":
                self.server.has_slow_request.set()
                self.server.may_answer.wait(60)
                self.say(body)
            case "flooding":
                self.say(b" " * (9 * 1024 * 1024))
            case "flooding events":
                self.say(b"data: " + b"x" * (9 * 1024 * 1024) + b"\n\n", kind="text/event-stream")
            case "compressed":
                self.say(body, encoding="gzip")
            case "garbled":
                self.say(b"{nonsense")
            case "odd":
                self.say(body, kind="text/html")
            case "dropping":
                self.close_connection = True
            case "stopping":
                self.say(body, length=1000)
                self.close_connection = True
            case _:
                self.say(body)

    def do_GET(self) -> None:
        """Offer no stream."""
        self.say(b"", 405)

    def do_DELETE(self) -> None:
        """End a session."""
        self.server.closed += 1
        self.server.has_closed.set()
        self.say(b"")

    def say(
        self,
        body: bytes,
        status: int = 200,
        kind: str = "application/json",
        encoding: str = "identity",
        length: int = 0,
    ) -> None:
        """Send an answer; with `length`, one that claims to be longer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Encoding", encoding)
        self.send_header("Mcp-Session-Id", "1")
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def upstream(settings: Any) -> Iterator[Upstream]:
    """Return a running upstream."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with serving(Upstream()) as server:
        yield server
        server.may_answer.set()


def definition(name: str) -> Definition:
    """Return what was imported of a tool."""
    return Definition(kind="mcp", upstream=name, description=name, input_schema={"type": "object"}, safety_level="safe")


async def outcome_of(connection: Connection, name: str) -> str:
    """Call a tool and return its text, or the class and kind of its error."""
    try:
        return str((await connection.call(definition(name), {}, verify_first=False)).value)
    except (UpstreamError, EffectUnknown, UpstreamUnavailable) as error:
        return f"{type(error).__name__} {error.kind}"


def test_bad_answer_concerns_its_call_alone(upstream: Upstream) -> None:
    outcomes = {}

    async def call_all() -> None:
        connection = Connection(UpstreamSettings(pk=1, name="up", kind="mcp", url=upstream.url))
        slow = asyncio.create_task(outcome_of(connection, "slow"))
        await asyncio.to_thread(upstream.has_slow_request.wait, 60)
        session = connection._session
        for name in (*BAD, "good"):
            connection._session = session  # later calls would open another, which the slow one does not share
            outcomes[name] = await outcome_of(connection, name)
        upstream.may_answer.set()
        outcomes["slow"] = await slow
        await connection.end()

    asyncio.run(call_all())
    assert outcomes == {**BAD, "good": "done", "slow": "done"}


def test_call_that_ran_succeeds_without_a_list_of_tools(upstream: Upstream) -> None:
    upstream.can_list = False

    async def call() -> str:
        connection = Connection(UpstreamSettings(pk=1, name="up", kind="mcp", url=upstream.url))
        outcome = await outcome_of(connection, "good")
        await connection.end()
        return outcome

    assert asyncio.run(call()) == "done"


def start_call(upstream: Upstream) -> Future[ToolResult[Any]]:
    """Start a call that lists first, over this process's connection, and wait until its slow request arrived."""
    from mcp import types  # noqa: PLC0415 - loaded with the SDK

    source = UpstreamSettings(pk=1, name="up", kind="mcp", url=upstream.url)
    good = definition_from(types.Tool(name="good", input_schema={"type": "object"}), source)

    async def call() -> ToolResult[Any]:
        return await connection_to(source).call(good, {}, verify_first=True)

    started = asyncio.run_coroutine_threadsafe(call(), background_loop())
    assert upstream.has_slow_request.wait(60)
    return started


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_retired_connection_ends_after_its_call(upstream: Upstream, method: str) -> None:
    upstream.slow_method = method
    call = start_call(upstream)
    keep_connections([])
    upstream.may_answer.set()
    assert call.result(60).value == "done"
    assert upstream.has_closed.wait(60)
    assert (upstream.opened, upstream.closed) == (1, 1)


def test_retired_connection_closes_the_session_it_opens(upstream: Upstream) -> None:
    async def call() -> tuple[str, bool]:
        connection = Connection(UpstreamSettings(pk=1, name="up", kind="mcp", url=upstream.url))
        connection.retire()
        return await outcome_of(connection, "good"), await asyncio.to_thread(upstream.has_closed.wait, 60)

    assert asyncio.run(call()) == ("done", True)


def test_closing_ends_retired_connections(upstream: Upstream) -> None:
    upstream.slow_method = "tools/call"
    call = start_call(upstream)
    keep_connections([])
    close_connections()
    assert (upstream.opened, upstream.closed) == (1, 1)
    with pytest.raises(EffectUnknown):
        call.result(60)


@pytest.mark.parametrize(
    "status, path, reason",
    [
        (401, "", "it answered 401; check the headers."),
        (404, "", "it answered 404; check the URL."),
        (503, "", "it answered 503."),
        (201, "", "its answers are not MCP; check the URL."),
        (0, "https://127.0.0.1:{port}", "TLS failed (WRONG_VERSION_NUMBER)."),
        (0, "http://127.0.0.1:{free}", "nothing answers at its address."),
    ],
)
def test_failure_to_connect_says_why(upstream: Upstream, status: int, path: str, reason: str) -> None:
    upstream.status = status
    url = path.format(port=upstream.server_port, free=free_port()) or upstream.url
    connection = Connection(UpstreamSettings(pk=1, name="up", kind="mcp", url=url))
    with pytest.raises(UpstreamUnavailable) as failure:
        asyncio.run(connection.list_tools())
    assert str(failure.value) == f"Toolgate could not connect to up: {reason}"


def test_all_callers_of_a_hanging_upstream_learn_that_it_hangs(upstream: Upstream) -> None:
    upstream.slow_method = "initialize"

    async def fail_twice() -> list[str]:
        connection = Connection(UpstreamSettings(pk=1, name="up", kind="mcp", url=upstream.url, timeout=0.5))
        first = asyncio.create_task(outcome_of(connection, "good"))
        await asyncio.sleep(0.25)  # so that the first call ends the session that the second one waits for
        with pytest.raises(UpstreamUnavailable) as failure:
            await connection.list_tools()
        return [await first, str(failure.value)]

    assert asyncio.run(fail_twice()) == ["UpstreamUnavailable upstream_unavailable", "up did not answer in time."]


def test_only_a_new_session_raises_what_prevents_sending(settings: Any) -> None:
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]

    async def code_of_failure(*, connected: bool) -> int:
        transport = McpTransport()
        transport.connected = connected
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            response = await client.post(f"http://127.0.0.1:{free_port()}/", json={})
        return int(response.json()["error"]["code"])

    assert asyncio.run(code_of_failure(connected=True)) == NOT_SENT
    with pytest.raises(httpx2.ConnectError):
        asyncio.run(code_of_failure(connected=False))
