"""Agent frameworks whose requirements do not fit Toolgate's: each runs in an environment of its own."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from catalog.access.tokens import create_token
from catalog.models import Call
from plans.models import Plan
from tests.builders import approve, reject
from tests.plans.mcp.conftest import serving_mcp
from tests.plans.socket_clients import apart
from tests.python_environments import installed_python

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "clients"
WRITE = {"path": "a.txt", "content": "x"}
CALLS = [("render_text", {"template": "hello", "values": {}}), ("write_file", WRITE), ("write_file", WRITE)]


@pytest.fixture(params=["langchain", "openai_agents"])
def client(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client, its environment kept in pytest's cache until its lock changes."""
    name = request.param
    return [str(installed_python(request.config.cache, CLIENTS / f"{name}.lock")), str(CLIENTS / f"{name}_client.py")]


async def until_held() -> None:
    """Wait until a call is held."""
    while not await apart(Call.objects.filter(status="held").exists):
        await asyncio.sleep(0.02)


async def test_lists_calls_and_waits_for_people(
    client: list[str], executor: Any, ada: Any, rosa: Any, workspace: Path
) -> None:
    token = (await apart(create_token, user=ada, kind="agent", scopes=["calls:create"]))[1]
    with serving_mcp() as url:
        process = await asyncio.create_subprocess_exec(
            *client, url, token, json.dumps(CALLS), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        ends = asyncio.ensure_future(process.communicate())
        for decide in (approve, reject):
            await asyncio.wait([ends, asyncio.ensure_future(until_held())], return_when=asyncio.FIRST_COMPLETED)
            assert not ends.done(), (await ends)[1].decode()[-2000:]
            await apart(lambda decide=decide: decide(Plan.objects.latest("pk"), rosa))
        output, errors = await ends
    assert process.returncode == 0, errors.decode()[-2000:]
    found = json.loads(output)
    assert {"approval_result", "write_file"} <= set(found["listed"])
    said, written, refused = map(str, found["outcomes"])
    assert "hello" in said and "a.txt" in written and "rejected" in refused
    assert (workspace / "a.txt").read_text() == "x"
    statuses = await apart(lambda: sorted(Call.objects.values_list("status", flat=True)))
    assert statuses == ["completed", "completed", "failed"]
