"""Calls that are answered without the SDK: which requests they are, and that the answers are those of the SDK."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import Field

from catalog.access.tokens import create_token
from catalog.errors import DataNotFound, ToolError
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call
from catalog.testing import clean_registry
from catalog.tools import ToolResult, register_tool, registry, tool
from plans.mcp import endpoint, plain_calls
from plans.mcp.plain_calls import PlainCall, read_plain_call
from tests.approvals.factories import add_policy
from tests.catalogs import fill_catalog
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


def raw(message: Any = None, **members: Any) -> bytes:
    """Return the body of a message, or of a call with other members of its message."""
    content = json.loads(body()) | members if message is None else message
    return json.dumps(content).encode()


def big(size: int) -> bytes:
    """Return the body of a call that has this many bytes."""
    return body(arguments={**SAY, "values": {"x": "y" * (size - len(body()) + 1)}})


def without(*names: str) -> dict[str, str]:
    """Return the headers of a call without some of them."""
    return {name: text for name, text in HEADERS.items() if name not in names}


def of(tool: str, value: Any = "x", **more: Any) -> tuple[Any, bytes]:
    """Return a call of a tool of the stage."""
    return HEADERS | {"mcp-name": tool}, body(tool, {"value": value}, **more)


KNOWN = "io.modelcontextprotocol/"
REQUESTS: dict[str, tuple[Any, bytes]] = {
    # Results.
    "text": (HEADERS, body()),
    "refused argument": (HEADERS, body(arguments={"template": 5, "values": {}})),
    "unknown argument": (HEADERS, body(arguments={**SAY, "more": 1})),
    "missing argument": (HEADERS, body(arguments={"values": {}})),
    "no arguments": (HEADERS, body(arguments={})),
    "failed": (HEADERS, body(arguments={"template": "{{missing}}", "values": {}})),
    "object with null": of("safe", {"a": None, "b": [None]}),
    "null": of("safe", None),
    "list": of("safe", [1, "zwei", None, True]),
    "number": of("safe", 1.50),
    "large integer": of("safe", 9007199254740991),
    "characters": of("safe", "\u2028\x7f</script>\"\\ é 😀"),
    "lone surrogate": of("safe", "\ud800"),
    "image": of("images"),
    "message": of("messages"),
    "hidden": of("secretive"),
    "error of the tool": of("failing"),
    "warning": of("warning"),
    "asynchronous": of("safe_async", {"a": 1}),
    "cautious": of("cautious", {"a": 1}),
    "kept": of("keeping", 5),
    # Tools.
    "unknown tool": (HEADERS | {"mcp-name": "nothing"}, body("nothing")),
    "empty name": (HEADERS | {"mcp-name": ""}, body("")),
    "name that is a number": (HEADERS, body(5)),  # type: ignore[arg-type] # a client's mistake
    "approval_result": (HEADERS | {"mcp-name": "approval_result"}, body("approval_result", {"approval_id": "x"})),
    # The envelope.
    "id of text": (HEADERS, raw(id="sieben é")),
    "empty id": (HEADERS, raw(id="")),
    "id 0": (HEADERS, raw(id=0)),
    "negative id": (HEADERS, raw(id=-1)),
    "id that is a float": (HEADERS, raw(id=7.5)),
    "id that is a whole float": (HEADERS, raw(id=7.0)),
    "id null": (HEADERS, raw(id=None)),
    "id true": (HEADERS, raw(id=True)),
    "id of a list": (HEADERS, raw(id=[7])),
    "large id": (HEADERS, raw(id=2**53 - 1)),
    "too large id": (HEADERS, raw(id=2**53)),
    "huge id": (HEADERS, body().replace(b'"id": 7', b'"id": ' + b"7" * 5000)),
    "notification": (HEADERS, body().replace(b'"id": 7, ', b"")),
    "batch": (HEADERS, b"[" + body() + b"]"),
    "other jsonrpc": (HEADERS, raw(jsonrpc="1.0")),
    "no jsonrpc": (HEADERS, body().replace(b'"jsonrpc": "2.0", ', b"")),
    "other method": (HEADERS, raw(method="tools/list")),
    "another member": (HEADERS, raw(more=[1])),
    "result beside method": (HEADERS, raw(result={})),
    "params of a list": (HEADERS, raw(params=[])),
    "no params": (HEADERS, raw({"jsonrpc": "2.0", "id": 7, "method": "tools/call"})),
    "another param": (HEADERS, body(more=1)),
    "request state": (HEADERS, body(requestState="x")),
    "input responses": (HEADERS, body(inputResponses={})),
    "arguments of a list": (HEADERS, body(arguments=[])),
    "arguments null": (HEADERS, body(arguments=None)),
    # JSON.
    "no body": (HEADERS, b""),
    "no JSON": (HEADERS, b"{"),
    "byte order mark": (HEADERS, b"\xef\xbb\xbf" + body()),
    "blanks around": (HEADERS, b" \r\n" + body() + b"\n\t"),
    "blanks that are not JSON": (HEADERS, b"\x0c" + body()),
    "two messages": (HEADERS, body() + body()),
    "invalid UTF-8": (HEADERS, body().replace(b"llo", b"\xff")),
    "UTF-16": (HEADERS, body().decode().encode("utf-16")),
    "key twice": (HEADERS, body().replace(b'"id": 7', b'"id": 6, "id": 7')),
    "argument twice": (HEADERS, body().replace(b'"values"', b'"template": "a", "values"')),
    "NaN": (HEADERS, body().replace(b'"1"', b"NaN")),
    "huge integer": of("safe", 10**30),
    "deep": (HEADERS, body().replace(b'"1"', b"[" * 5000 + b"]" * 5000)),
    "65,536 bytes": (HEADERS, big(65_536)),
    "65,537 bytes": (HEADERS, big(65_537)),
    # The description that the client gives of itself.
    "no meta": (HEADERS, raw(params={"name": "render_text", "arguments": SAY})),
    "meta null": (HEADERS, body(meta=None)),
    "meta of a list": (HEADERS, body(meta=[])),
    "progress token": (HEADERS, body(meta={**META, "progressToken": "p"})),
    "progress token that is null": (HEADERS, body(meta={**META, "progressToken": None})),
    "progress token that is a list": (HEADERS, body(meta={**META, "progressToken": []})),
    "log level": (HEADERS, body(meta={**META, f"{KNOWN}logLevel": "debug"})),
    "wrong log level": (HEADERS, body(meta={**META, f"{KNOWN}logLevel": "loud"})),
    "meta of its own": (HEADERS, body(meta={**META, "example.com/x": {"y": None}})),
    "no client": (HEADERS, body(meta={name: META[name] for name in list(META)[:2]})),
    "client null": (HEADERS, body(meta={**META, f"{KNOWN}clientInfo": None})),
    "wrong client": (HEADERS, body(meta={**META, f"{KNOWN}clientInfo": {"name": 5}})),
    "no capabilities": (HEADERS, body(meta={f"{KNOWN}protocolVersion": VERSION})),
    "capabilities null": (HEADERS, body(meta={**META, f"{KNOWN}clientCapabilities": None})),
    "wrong capabilities": (HEADERS, body(meta={**META, f"{KNOWN}clientCapabilities": {"sampling": 1}})),
    "tasks": (HEADERS, body(meta={**META, f"{KNOWN}clientCapabilities": {"extensions": {f"{KNOWN}tasks": {}}}})),
    "old version in meta": (HEADERS, body(meta={**META, f"{KNOWN}protocolVersion": "2025-11-25"})),
    "session": (HEADERS, body(meta={**META, "toolgate/session": "s"})),
    "wrong session": (HEADERS, body(meta={**META, "toolgate/session": 5})),
    # Headers.
    "old version in header": (HEADERS | {"mcp-protocol-version": "2025-11-25"}, body()),
    "unknown version": (HEADERS | {"mcp-protocol-version": "2099-01-01"}, body()),
    "no version": (without("mcp-protocol-version"), body()),
    "no method header": (without("mcp-method"), body()),
    "other method header": (HEADERS | {"mcp-method": "tools/list"}, body()),
    "method header in capitals": (HEADERS | {"mcp-method": "Tools/Call"}, body()),
    "no name header": (without("mcp-name"), body()),
    "other name header": (HEADERS | {"mcp-name": "other"}, body()),
    "encoded name header": (HEADERS | {"mcp-name": "=?base64?cmVuZGVyX3RleHQ=?="}, body()),
    "malformed name header": (HEADERS | {"mcp-name": "=?base64?cmVuZGVyX3RleHQ?="}, body()),
    "name header twice": ([*HEADERS.items(), ("mcp-name", "render_text")], body()),
    "version header twice": ([*HEADERS.items(), ("mcp-protocol-version", VERSION)], body()),
    "param header": (HEADERS | {"mcp-param-x": "1"}, body()),
    "declared header": (HEADERS | {"mcp-name": "declaring", "mcp-param-tag": "x"}, body("declaring", {"tag": "x"})),
    "declared header missing": (HEADERS | {"mcp-name": "declaring"}, body("declaring", {"tag": "x"})),
    "declared header that differs": (
        HEADERS | {"mcp-name": "declaring", "mcp-param-tag": "y"}, body("declaring", {"tag": "x"}),
    ),
    "declared header twice": (
        [*(HEADERS | {"mcp-name": "declaring"}).items(), ("mcp-param-tag", "x"), ("mcp-param-tag", "x")],
        body("declaring", {"tag": "x,x"}),
    ),
    "accept JSON only": (HEADERS | {"accept": "application/json"}, body()),
    "accept anything": (HEADERS | {"accept": "*/*"}, body()),
    "accept nothing": (HEADERS | {"accept": ""}, body()),
    "accept with weights": (HEADERS | {"accept": "application/json;q=0.5, text/event-stream;q=0"}, body()),
    "accept what begins alike": (HEADERS | {"accept": "application/json-seq, text/event-streams"}, body()),
    "accept in capitals": (HEADERS | {"accept": "Application/JSON, Text/Event-Stream"}, body()),
    "accept twice": (
        [*without("accept").items(), ("accept", "application/json"), ("accept", "text/event-stream")], body(),
    ),
    "content type with charset": (HEADERS | {"content-type": "application/json; charset=utf-8"}, body()),
    "other content type": (HEADERS | {"content-type": "text/plain"}, body()),
    "no content type": (without("content-type"), body()),
    "session header": (HEADERS | {"mcp-session-id": "s"}, body()),
    "other origin": (HEADERS | {"origin": "https://example.com"}, body()),
    "other host": (HEADERS | {"host": "example.com"}, body()),
    "no token": (HEADERS | {"authorization": ""}, body()),
    "unknown token": (HEADERS | {"authorization": "Bearer x"}, body()),
    "other scheme": (HEADERS | {"authorization": "Basic x"}, body()),
}  # fmt: skip


def send_image(value: Any = None) -> Any:
    """Answer with an image."""
    return ToolResult.ok({"n": 1}, content=[{"type": "image", "data": b"png", "mimeType": "image/png"}])


def send_message(value: Any = None) -> Any:
    """Answer with a message."""
    return ToolResult("It is done.", {"results": [1, None], "unit": "m"}, user_message="Tell them.")


def hide(value: Any = None) -> Any:
    """Answer with a value that models do not see."""
    return ToolResult("Kept.", {"n": 1}, exclude_value_from_context=True)


def fail(value: Any = None) -> Any:
    """Fail."""
    raise ToolError("It is closed.")


def warn(value: Any = None) -> Any:
    """Find nothing."""
    raise DataNotFound("There is none.")


def declare(tag: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Tag"})]) -> str:
    """Answer with the tag, which is in a header, too."""
    return tag


TOOLS: dict[str, Callable[..., Any]] = {
    "images": send_image, "messages": send_message, "secretive": hide, "failing": fail, "warning": warn,
    "declaring": declare,
}  # fmt: skip


@pytest.fixture
def more_tools(stage: Any) -> Iterator[None]:
    """Tools with results of all kinds."""
    for name, act in TOOLS.items():
        with clean_registry():
            made = tool(name=name)(act)
        register_tool(made)
    fill_catalog()
    yield
    for name in TOOLS:
        registry._TOOLS.pop(name)


async def test_answers_are_those_of_the_sdk(
    more_tools: None, mcp_url: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = ("authorization", headers["authorization"])
    answers: list[dict[str, Any]] = []
    plain, made = list[str](), list[Any]()
    async with httpx2.AsyncClient(timeout=60) as http:
        for read in (read_plain_call, lambda *_: None):
            seen: dict[str, Any] = {}
            for kind, (given, content) in REQUESTS.items():
                named = [*given.items()] if isinstance(given, dict) else list(given)
                named += [] if "authorization" in dict(named) else [token]
                monkeypatch.setattr(endpoint, "read_plain_call", noting(read, plain, kind))
                answer = await http.post(mcp_url, headers=named, content=content)
                kept = {name: text for name, text in answer.headers.items() if name not in ("date", "x-request-id")}
                stored = await apart(
                    lambda: list(Call.objects.order_by("pk").values_list("tool_name", "arguments", "status"))
                )
                seen[kind] = (answer.status_code, kept, without_ids(answer.content), sorted(stored[len(made) :]))
                made[:] = stored
            answers.append(seen)
    differing = {
        kind: (answers[0][kind], answers[1][kind]) for kind in REQUESTS if answers[0][kind] != answers[1][kind]
    }
    assert differing == {}
    results = {"text", "failed", "image", "message", "hidden", "warning", "null"}
    assert set(plain) > results | {"id of text", "progress token", "no client", "declared header", "65,536 bytes"}


def noting(read: Any, plain: list[str], kind: str) -> Any:
    """Return a reader of plain calls that notes the requests that are one."""

    def read_and_note(headers: Any, content: bytes) -> Any:
        found = read(headers, content)
        plain.extend([kind] if found is not None else [])
        return found

    return read_and_note


def without_ids(content: bytes) -> bytes:
    """Return an answer without ids of calls, which are new in each."""
    return re.sub(rb"call_\w+", b"call_", content)


async def test_answer_that_cannot_be_written_is_the_sdks(
    mcp_url: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_write(*arguments: Any) -> bytes:
        raise ValueError("cannot be written")

    monkeypatch.setattr(plain_calls, "answer_body", fail_to_write)
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(mcp_url, headers=headers, content=body())
    assert (answer.status_code, answer.json()["id"], "result" in answer.json()) == (200, 7, True)
    assert await apart(Call.objects.count) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"revoked_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"scopes": []},
    ],
)
async def test_tokens_that_may_not_call_are_refused_as_by_the_sdk(
    mcp_url: str, headers: dict[str, str], change: dict[str, Any]
) -> None:
    await apart(lambda: ApiToken.objects.update(**change))
    async with httpx2.AsyncClient(timeout=60) as http:
        plain, sdk = [await http.post(mcp_url, headers=headers | more, content=body()) for more in ({}, SDK)]
    assert (plain.status_code, plain.content) == (sdk.status_code, sdk.content)
    assert plain.json().get("result", {"isError": True})["isError"]
    assert await apart(Call.objects.count) == 0


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
