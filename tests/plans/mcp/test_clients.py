"""Clients that agents are built with: fastmcp's, and pydantic-ai with a scripted model."""

import asyncio
import json
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from catalog.access.tokens import create_token
from catalog.models import Call
from plans.mcp import waiting
from plans.mcp.waiting import Patience
from plans.models import Plan
from tests.builders import approve, reject
from tests.plans.socket_clients import apart

pytestmark = pytest.mark.django_db(transaction=True)

SAY = {"template": "hello", "values": {}}
WRITE = {"path": "a.txt", "content": "x"}


@pytest.fixture
def headers(ada: Any) -> dict[str, str]:
    """The headers of an agent that may call tools."""
    return {"Authorization": f"Bearer {create_token(user=ada, kind='agent', scopes=['calls:create'])[1]}"}


async def until_held() -> None:
    """Wait until a call is held."""
    while not await apart(Call.objects.filter(status="held").exists):
        await asyncio.sleep(0.02)


async def test_fastmcp_lists_calls_and_waits(mcp_url: str, headers: dict[str, str], rosa: Any, workspace: Any) -> None:
    async with Client(StreamableHttpTransport(mcp_url, headers=headers)) as client:
        assert "write_file" in {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("render_text", SAY)).structured_content == {"result": "hello"}
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE))
        await until_held()
        await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
        assert not (await waits).is_error
        assert (workspace / "a.txt").read_text() == "x"
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, raise_on_error=False))
        await until_held()
        await apart(lambda: reject(Plan.objects.latest("pk"), rosa))
        assert (await waits).is_error


def ask_until_told(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Write a file, then ask for the outcome until it is there; answer with that."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse(parts=[ToolCallPart("write_file", WRITE)])
    returned: Any = getattr(last, "content", None)
    content = returned if isinstance(returned, dict) else {}
    if content.get("status") in ("pending_approval", "running"):
        arguments = {"approval_id": content["approval_id"], "wait_seconds": 50}
        return ModelResponse(parts=[ToolCallPart("approval_result", arguments)])
    return ModelResponse(parts=[TextPart(json.dumps(content))])


async def test_a_pydantic_ai_agent_asks_for_the_outcome(
    mcp_url: str, headers: dict[str, str], rosa: Any, workspace: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(waiting, "OTHERS", Patience(0.2, 0.2))
    async with Agent(FunctionModel(ask_until_told), toolsets=[MCPToolset(mcp_url, headers=headers)]) as agent:
        runs = asyncio.ensure_future(agent.run("Write it."))
        await until_held()
        await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
        answer = json.loads((await runs).output)
    assert "path" in str(answer) and (workspace / "a.txt").read_text() == "x"
