"""Calls that are answered without the SDK: which requests they are, and that the answers are those of the SDK."""

import json
from typing import Any

import httpx2
import pytest

from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call
from plans.mcp.plain_calls import PlainCall, read_plain_call
from tests.approvals.factories import add_policy
from tests.plans.mcp.conftest import ACCEPT
from tests.plans.socket_clients import apart

pytestmark = pytest.mark.django_db(transaction=True)

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}
HEADERS = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "render_text"}
SDK = {"content-type": "application/json; charset=utf-8"}
"""A request with this header is left to the SDK."""
SAY = {"template": "héllo {{x}}", "values": {"x": "1"}}


def body(name: str = "render_text", arguments: Any = SAY, meta: Any = META, **params: Any) -> bytes:
    """Return the body of a call."""
    params |= {"name": name, "arguments": arguments, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()


@pytest.fixture
def headers(ada: Any) -> dict[str, str]:
    """The headers of a call of a client with a token."""
    text = create_token(user=ada, kind="agent", scopes=["calls:create"])[1]
    return {**HEADERS, "authorization": f"Bearer {text}"}


def test_valid_calls_are_plain(catalog: None) -> None:
    snapshot.callable_tools()
    assert read_plain_call(HEADERS, body()) == PlainCall(7, VERSION, "render_text", SAY)


def test_all_other_requests_are_left_to_the_sdk(catalog: None) -> None:
    snapshot.callable_tools()
    known = "io.modelcontextprotocol/"
    requests = [
        (HEADERS | SDK, body()),
        (HEADERS | {"accept": "application/json"}, body()),
        (HEADERS | {"mcp-protocol-version": "2025-11-25"}, body()),
        (HEADERS | {"mcp-name": "other"}, body()),
        (HEADERS | {"mcp-method": "tools/list"}, body()),
        (HEADERS, body(meta={**META, f"{known}protocolVersion": "2025-11-25"})),
        (HEADERS, body(meta={f"{known}protocolVersion": VERSION})),
        (HEADERS, body(meta={**META, "toolgate/session": "s"})),
        (HEADERS, body(meta={**META, f"{known}clientInfo": 5})),
        (HEADERS, body(arguments=[])),
        (HEADERS, body(arguments=None)),
        (HEADERS, body(requestState="x")),
        (HEADERS, body(arguments={"template": "x" * 70_000})),
        (HEADERS, b'{"a": 1, "a": 2}'),
        (HEADERS, body().replace(b'"id": 7, ', b"")),
        (HEADERS | {"mcp-name": "nothing"}, body("nothing")),
        (HEADERS | {"mcp-name": "approval_result"}, body("approval_result", {"approval_id": "x"})),
    ]
    assert [read_plain_call(*request) for request in requests] == [None] * len(requests)


async def test_answers_are_those_of_the_sdk(mcp_url: str, headers: dict[str, str]) -> None:
    requests = {
        "text": ("render_text", SAY),
        "object": ("render_text", {"template": "a", "values": {}}),
        "refused": ("render_text", {"template": 5, "values": {}}),
        "failed": ("render_text", {"template": "{{missing}}", "values": {}}),
        "unknown": ("nothing", {}),
    }
    answers: dict[str, list[Any]] = {}
    async with httpx2.AsyncClient(timeout=60) as http:
        for kind, (name, arguments) in requests.items():
            for more in ({}, SDK):
                named = headers | {"mcp-name": name} | more
                answer = await http.post(mcp_url, headers=named, content=body(name, arguments))
                kept = {name: text for name, text in answer.headers.items() if name not in ("date", "x-request-id")}
                answers.setdefault(kind, []).append((answer.status_code, kept, answer.content))
    assert {kind: plain for kind, (plain, _) in answers.items()} == {kind: sdk for kind, (_, sdk) in answers.items()}


async def test_token_is_verified_in_each_request(mcp_url: str, headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        assert (await http.post(mcp_url, headers=headers, content=body())).status_code == 200
        stored = await apart(Call.objects.count)
        await apart(lambda: ApiToken.objects.update(revoked_at=ApiToken.objects.get().created_at))
        refused = await http.post(mcp_url, headers=headers, content=body())
    assert (refused.status_code, "www-authenticate" in refused.headers) == (401, True)
    assert await apart(Call.objects.count) == stored


async def test_held_call_is_made_once(mcp_url: str, headers: dict[str, str]) -> None:
    await apart(lambda: add_policy(0, tool="render_text", effect="hold", stages=[{"group": "reviewer", "count": 1}]))
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(mcp_url, headers=headers, content=body())
    assert answer.json()["result"]["structuredContent"]["status"] == "pending_approval"
    assert await apart(lambda: [call.status for call in Call.objects.all()]) == ["held"]
