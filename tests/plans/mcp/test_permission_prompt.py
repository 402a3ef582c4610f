"""The tool `permission_prompt`: one text block of JSON, a call joined with the client's hook, and a wait for people."""

import asyncio
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from mcp_types import Implementation

from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import Call, ClientRun
from plans.coding_agents.permissions import PermissionQuestion, ask
from plans.coding_agents.sessions import NotArmed, armed_state
from plans.mcp import listing, waiting
from plans.mcp.callers import Caller
from plans.mcp.waiting import Patience
from plans.sessions.lists import SessionKey
from plans.store.requesters import Requester
from tests.plans.coding_agents.conftest import answer_request
from tests.plans.mcp.conftest import connected
from tests.plans.socket_clients import apart

COMMAND = {"command": "rm -r build"}
PROMPT = {"tool_name": "Bash", "input": COMMAND, "tool_use_id": "toolu_1"}


def decision_of(result: Any) -> dict[str, Any]:
    """Return the decision of a prompt, which must be one text block and nothing else."""
    (block,) = result.content
    assert (result.structured_content, result.is_error, block.type) == (None, False, "text")
    document: dict[str, Any] = json.loads(block.text)
    return document


@pytest.mark.parametrize(
    ("scopes", "names"),
    [
        (["permissions:ask"], {"permission_prompt"}),
        (["calls:create"], {"approval_result"}),
        (["calls:create", "permissions:ask"], {"approval_result", "permission_prompt"}),
    ],
)
def test_prompt_is_listed_only_with_its_scope(stage: object, ada: User, scopes: list[str], names: set[str]) -> None:
    token, _ = create_token(user=ada, kind="agent", scopes=scopes)
    listed = {tool.name for tool in listing.list_tools(Caller(token, ada), None).tools}
    assert listed & {"approval_result", "permission_prompt"} == names


@pytest.mark.django_db(transaction=True)
async def test_prompt_joins_the_call_of_the_hook_and_gets_the_edited_input(
    mcp_url: str, stage: object, ada: User, rosa: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_by_hook() -> tuple[str, Any]:
        snapshot.drop_snapshot()
        token, text = create_token(user=ada, kind="agent", scopes=["permissions:ask"])
        question = PermissionQuestion("claude-code", "s1", "Bash", COMMAND, "toolu_1")
        return text, ask(question, by=Requester(ada, token, via="rest"))

    text, first = await apart(ask_by_hook)
    async with connected(mcp_url, text) as client:
        monkeypatch.setattr(waiting, "OTHERS", Patience(0.1, 0.1))
        refused = decision_of(await client.call_tool("permission_prompt", PROMPT))
        assert (refused["behavior"], first.url in refused["message"]) == ("deny", True)
        monkeypatch.setattr(waiting, "OTHERS", Patience(60, 60))
        waits = asyncio.ensure_future(client.call_tool("permission_prompt", PROMPT))
        await apart(lambda: answer_request(first, rosa, arguments={"command": "rm -r tmp"}))
        assert decision_of(await waits) == {"behavior": "allow", "updatedInput": {"command": "rm -r tmp"}}
        assert decision_of(await client.call_tool("permission_prompt", {"tool_name": "Bash"}))["behavior"] == "deny"
    assert await apart(Call.objects.count) == 1
    assert await apart(lambda: ClientRun.objects.get().session) == "s1"


@pytest.mark.django_db(transaction=True)
async def test_prompt_without_the_right_is_refused(mcp_url: str, stage: object, ada: User) -> None:
    _, text = await apart(lambda: create_token(user=ada, kind="agent", scopes=["calls:create"]))
    async with connected(mcp_url, text) as client:
        assert decision_of(await client.call_tool("permission_prompt", PROMPT))["behavior"] == "deny"
    assert not await apart(Call.objects.exists)


@pytest.mark.django_db(transaction=True)
async def test_coding_agent_that_only_connects_is_not_armed(mcp_url: str, stage: object, ada: User) -> None:
    token, text = await apart(lambda: create_token(user=ada, kind="agent", scopes=["tools:read", "calls:create"]))
    info = Implementation(name="claude-code", version="2.1")
    async with connected(mcp_url, text, client_info=info) as client:
        await client.list_tools()
    state = await apart(lambda: armed_state(SessionKey(ada.pk, token.pk, "")))
    assert isinstance(state, NotArmed) and state.client == "claude-code"
