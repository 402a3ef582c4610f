"""The MCP server as it is run, in processes of its own: stopped and started while a client waits, and as several."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.access.tokens import create_token
from catalog.models import Call
from plans.models import Plan
from tests.builders import approve
from tests.chaos.serving import SERVE, Serving
from tests.conftest import MakeServing
from tests.plans.mcp.conftest import connected
from tests.plans.socket_clients import apart
from tests.waiting import eventually

WRITE = {"path": "a.txt", "content": "x"}


@pytest.fixture
def serving(
    transactional_db: None, catalog: None, make_serving: MakeServing, request: pytest.FixtureRequest
) -> Iterator[Serving]:
    """A server with as many processes as the test asks for."""
    process = make_serving(TOOLGATE_UNDO_SECONDS="0", TOOLGATE_LEASE_SECONDS="30", TOOLGATE_TOOLS="")
    process.command = (*SERVE[:1], "--workers", str(getattr(request, "param", 1)), *SERVE[1:])
    yield process
    process.end(signal.SIGTERM)  # a supervisor that is killed leaves its workers behind, on the database of later tests


def started(process: Serving) -> str:
    """Start a server and return the address of its MCP server."""
    process.start()
    url = eventually(process.url, what="the server")
    eventually(lambda: _answers(f"{url}/readyz"), what="an answer")
    return f"{url}/mcp"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


async def progress_is_taken(progress: float, total: float | None, message: str | None) -> None:
    """Take progress, so that the client is one that waits long."""


async def until_held() -> str:
    """Wait until a call is held; return its approval's id."""
    while True:
        found = await apart(lambda: Call.objects.filter(status="held").values_list("approval__public_id").first())
        if found:
            return str(found[0])
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_server_that_stops_answers_its_waits_and_the_next_one_knows_the_outcome(
    serving: Serving, ada: Any, rosa: Any, mode: str
) -> None:
    token = (await apart(create_token, user=ada, kind="agent", scopes=["calls:create"]))[1]
    async with connected(await asyncio.to_thread(started, serving), token, mode) as client:
        await client.list_tools()  # else the client asks for the output schema after the answer, when nobody serves
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, progress_callback=progress_is_taken))
        approval = await until_held()
        assert await asyncio.to_thread(serving.end, signal.SIGTERM)
        pending = (await waits).structured_content
        assert (pending["status"], pending["approval_id"]) == ("pending_approval", approval)
    await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
    async with connected(await asyncio.to_thread(started, serving), token, mode) as client:
        answer = await client.call_tool("approval_result", {"approval_id": approval, "wait_seconds": 50})
    assert not answer.is_error
    assert (Path(serving.environment["TOOLGATE_WORKSPACE"]) / "a.txt").read_text() == "x"


@pytest.mark.service
@pytest.mark.parametrize("serving", [2], indirect=True)
async def test_two_processes_share_identical_calls_and_their_outcome(serving: Serving, ada: Any, rosa: Any) -> None:
    token = (await apart(create_token, user=ada, kind="agent", scopes=["calls:create"]))[1]
    url = await asyncio.to_thread(started, serving)
    waiting: set[int] = set()

    async def call(number: int) -> Any:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            waiting.add(number)

        async with connected(url, token) as client:
            return await client.call_tool("write_file", WRITE, progress_callback=on_progress)

    waits = [asyncio.ensure_future(call(number)) for number in range(8)]
    while len(waiting) < len(waits):
        await asyncio.sleep(0.02)
    await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
    assert [answer.is_error for answer in await asyncio.gather(*waits)] == [False] * 8
    assert await apart(Call.objects.count) == 1
