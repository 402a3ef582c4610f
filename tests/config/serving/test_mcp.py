"""Start, failure and end of the MCP server in its process, and the measurement of its requests."""

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from catalog.core.asgi import measure_as
from config.serving import mcp
from config.serving.mcp import McpRouter, McpServer, NotServing


class Endpoint:
    """An endpoint that answers nothing, and fails at its start or while it serves if a test says so."""

    failures: ClassVar[list[Exception]] = []

    def __init__(self) -> None:
        self.crash = asyncio.Event()

    @asynccontextmanager
    async def run(self) -> Any:
        """Serve while the body runs."""
        if self.failures:
            raise self.failures.pop()
        async with asyncio.TaskGroup() as group:
            crashing = group.create_task(self._crash())
            yield
            crashing.cancel()

    async def _crash(self) -> None:
        await self.crash.wait()
        raise RuntimeError

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["answered"].append(self)


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the endpoint of this module."""
    monkeypatch.setattr(mcp, "import_module", lambda name: SimpleNamespace(McpEndpoint=Endpoint))


async def ask(server: McpServer) -> Endpoint:
    """Send one request; return the endpoint that answered."""
    answered: list[Endpoint] = []
    await server({"answered": answered}, None, None)  # type: ignore[arg-type]
    return answered[0]


async def test_a_failed_start_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Endpoint, "failures", [OSError()])
    server = McpServer()
    async with server.run():
        with pytest.raises(NotServing):
            await ask(server)
        assert "OSError" in caplog.text
        await ask(server)


async def test_a_failure_while_serving_is_logged_and_the_next_request_starts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = McpServer()
    async with server.run():
        first = await ask(server)
        before = server._started
        first.crash.set()
        while server._started is before:
            await asyncio.sleep(0)
        assert caplog.records
        assert await ask(server) is not first


async def test_a_request_at_the_moment_of_the_stop_is_refused() -> None:
    server = McpServer()
    async with server.run():
        asking = asyncio.ensure_future(ask(server))
        while not server._needed.is_set():
            await asyncio.sleep(0)
        server._stop.set()
        with pytest.raises(NotServing):
            await asking


async def test_waits_and_streams_are_measured_apart_from_calls(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(scope: Any, receive: Any, send: Any) -> None:
        measure_as(scope, "mcp-wait")

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None: ...

    with caplog.at_level(logging.INFO, "toolgate.http"):
        await McpRouter(wait, wait)({"path": "/mcp", "method": "POST", "headers": []}, receive, send)
    assert "mcp-wait" in str(caplog.records[-1].__dict__)
