"""Requests that the MCP server refuses before the protocol sees them, and its streams of announcements."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import ApiToken, CatalogState, Tool
from plans.mcp import list_changes
from tests.plans.mcp.conftest import ACCEPT, connected
from tests.plans.socket_clients import apart

pytestmark = pytest.mark.django_db(transaction=True)

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def token(ada: Any) -> str:
    """The token of an agent that may call tools."""
    return create_token(user=ada, kind="agent", scopes=["calls:create"])[1]


@pytest.fixture
def headers(token: str) -> dict[str, str]:
    """The headers of a request that is served."""
    return {**ACCEPT, "authorization": f"Bearer {token}"}


async def post(url: str, headers: dict[str, str], body: bytes | None = None) -> httpx2.Response:
    """Send one request."""
    async with httpx2.AsyncClient(timeout=60) as http:
        return await http.post(url, headers=headers, content=json.dumps(LIST).encode() if body is None else body)


async def test_hosts_origins_and_tokens_are_checked_first(mcp_url: str, headers: dict[str, str]) -> None:
    assert (await post(mcp_url, headers)).status_code == 200
    own = mcp_url.removesuffix("/mcp")
    assert (await post(mcp_url, headers | {"origin": own})).status_code == 200
    assert (await post(mcp_url, headers | {"origin": "https://evil.example"})).status_code == 403
    assert (await post(mcp_url, headers | {"host": "evil.example"})).status_code == 421
    metadata = f'resource_metadata="{own}/.well-known/oauth-protected-resource/mcp", scope="tools:read calls:create"'
    for wrong, challenge in (
        ("Bearer tg_unknown", 'Bearer error="invalid_token"'),
        ("Bearer tga_unknown", 'Bearer error="invalid_token"'),
        ("Basic x", f"Bearer {metadata}"),
        ("", f"Bearer {metadata}"),
    ):
        answer = await post(mcp_url, headers | {"authorization": wrong})
        told = answer.headers["www-authenticate"]
        assert answer.status_code == 401 and told.startswith(challenge) and told.endswith(metadata)
        assert "/connect/" in answer.json()["error"]["message"]


async def test_plain_http_is_refused_behind_a_proxy_that_speaks_https(
    mcp_url: str, headers: dict[str, str], settings: Any
) -> None:
    settings.TOOLGATE_HTTPS = True
    assert (await post(mcp_url, headers)).status_code == 403
    assert (await post(mcp_url, headers | {"x-forwarded-proto": "https"})).status_code == 200


async def test_only_the_path_as_written_is_served(mcp_url: str, headers: dict[str, str]) -> None:
    own = mcp_url.removesuffix("/mcp")
    paths = ("/mcp", "/mcp/", "/%6dcp", "/mcp%2f", "/%2e/mcp", "//mcp", "/MCP")
    async with httpx2.AsyncClient(timeout=60) as http:
        requests = [http.build_request("POST", own, headers=headers, content=json.dumps(LIST)) for _ in paths]
        for request, path in zip(requests, paths, strict=True):
            request.extensions["target"] = path.encode()
        assert [(await http.send(request)).status_code for request in requests] == [200, 200, 404, 404, 404, 404, 404]


BIG, SURROGATE, DEEP = b"1917043659912705296", b'"\\ud800"', b'{"a":' * 70 + b"1" + b"}" * 70
MALFORMED_ARGUMENTS = {
    b'{"id": %b}' % BIG: ["id"],
    b'{"ids": [1, {"name": %b}]}' % SURROGATE: ["ids.1.name"],
    b'{"a": 1, "a": 2}': [""],
    b'{"a": NaN}': ["a"],
    b'{"a": -1e400}': ["a"],
    b'{"a": %b}' % (b"9" * 5_000): ["a"],
    DEEP: ["a" + ".a" * 63],
    b'{"a": "\xff"}': [""],
    b"[%b]" % BIG: ["0"],
}


def call_body(request_id: bytes = b"7", arguments: bytes = b"{}", method: bytes = b"tools/call") -> bytes:
    """Return the body of a request of a version without a handshake."""
    meta = b'"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}'
    params = b'{"_meta": {%b}, "name": "render_text", "arguments": %b}' % (meta, arguments)
    return b'{"jsonrpc": "2.0", "id": %b, "method": "%b", "params": %b}' % (request_id, method, params)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_call_with_malformed_arguments_is_answered_with_an_error_that_names_them(
    mcp_url: str, headers: dict[str, str], version: str
) -> None:
    routing = {"mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": "render_text"}
    faults = {}
    for arguments, paths in MALFORMED_ARGUMENTS.items():
        answer = await post(mcp_url, headers | routing, call_body(b'"seven"', arguments))
        message = json.loads(answer.text[answer.text.index("{") :])
        found = json.loads(message["result"]["content"][1]["text"]) if "result" in message else message
        told = [problem["path"] for problem in found.get("errors", [])]
        if (answer.status_code, message["id"], message.get("result", {}).get("isError"), told) != (
            200,
            "seven",
            True,
            paths,
        ):
            faults[arguments[:40]] = answer.text
    assert faults == {}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_other_messages_that_are_not_strict_json_or_have_no_valid_id_are_refused(
    mcp_url: str, headers: dict[str, str], version: str
) -> None:
    unanswerable = (b"1.5", b"1e3", b"1.0", b"null", b"true", b"{}", b"[7]", BIG, SURROGATE)
    bodies = {call_body(request_id): (-32600, None) for request_id in unanswerable} | {
        call_body(arguments=b'{"a": %b}' % BIG, method=b"tools/list"): (-32700, 7),
        call_body(b"7", b'{}, "name": "twice"'): (-32700, 7),
        call_body(b'7, "id": 8'): (-32700, None),
        call_body()[:-1]: (-32700, None),
        b"[" * 100_000: (-32700, None),
        b"[%b, %b]" % (call_body(), call_body(b"8")): (-32600, None),
        b'{"jsonrpc": "2.0", "id": 7}': (-32600, None),
        b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}': (-32600, 7),
        b'{"jsonrpc": "2.0", "id": 7, "method": 5}': (-32600, 7),
        b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [1]}': (-32600, 7),
    }
    faults = {}
    for body, expected in bodies.items():
        answer = await post(mcp_url, headers | {"mcp-protocol-version": version}, body)
        error = answer.json()
        told = answer.status_code, error["error"]["code"], error["id"], "pydantic" in answer.text
        if told != (400, *expected, False):
            faults[body[:80]] = answer.text
    assert faults == {}


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(mcp_url: str) -> None:
    reader, writer = await asyncio.open_connection(*mcp_url.split("/")[2].split(":"))
    writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1048577\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"413"
    writer.close()


async def test_unknown_versions_and_methods_are_answered_by_the_protocol(mcp_url: str, headers: dict[str, str]) -> None:
    wrong = await post(mcp_url, headers | {"mcp-protocol-version": "1999-01-01", "mcp-method": "tools/list"})
    assert wrong.status_code == 400
    async with httpx2.AsyncClient() as http:
        assert (await http.delete(mcp_url, headers=headers)).status_code == 405
        assert (await http.get(mcp_url, headers=headers | {"mcp-protocol-version": "2026-07-28"})).status_code == 405


async def test_requests_with_one_id_are_answered_each_by_itself(mcp_url: str, headers: dict[str, str]) -> None:
    answers = await asyncio.gather(post(mcp_url, headers), post(mcp_url, headers))
    assert [answer.status_code for answer in answers] == [200, 200]


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check lists and tokens often."""
    monkeypatch.setattr(list_changes, "CHECK_SECONDS", 0.05)


def change_tools() -> None:
    """Take a tool out of the catalog."""
    Tool.objects.filter(name="render_text").update(enabled=False)
    CatalogState.objects.update(revision=100)
    snapshot.drop_snapshot()


async def test_changed_tools_are_announced_in_both_eras_until_the_token_ends(
    quick_checks: None, mcp_url: str, token: str, headers: dict[str, str]
) -> None:
    async with (
        connected(mcp_url, token) as client,
        client.listen(tools_list_changed=True) as subscription,
        httpx2.AsyncClient(timeout=60) as http,
        http.stream("GET", mcp_url, headers=headers) as stream,
    ):
        lines = stream.aiter_lines()
        assert await anext(lines) == ": ping"
        await apart(change_tools)
        assert type(await anext(subscription)).__name__ == "ToolsListChanged"
        assert [line async for line in _first_data(lines)] == [f"data: {list_changes.CHANGED}"]
        await apart(lambda: ApiToken.objects.update(limits={"max_level": "safe"}))
        assert type(await anext(subscription)).__name__ == "ToolsListChanged"
        assert [line async for line in _first_data(lines)] == [f"data: {list_changes.CHANGED}"]
        await apart(lambda: ApiToken.objects.update(revoked_at="2026-01-01T00:00:00Z"))
        assert [line async for line in lines if line.startswith("data")] == []


async def test_a_ninth_stream_of_a_token_is_refused(mcp_url: str, headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient(timeout=60) as http, AsyncExitStack() as stack:
        for _ in range(list_changes.MAX_STREAMS_PER_TOKEN):
            opened = await stack.enter_async_context(http.stream("GET", mcp_url, headers=headers))
            assert opened.status_code == 200
        ninth = await http.get(mcp_url, headers=headers)
        assert (ninth.status_code, ninth.headers["retry-after"]) == (429, "60")
        assert "8 open streams" in ninth.json()["error"]["message"]


async def _first_data(lines: Any) -> Any:
    async for line in lines:
        if line.startswith("data"):
            yield line
            return
