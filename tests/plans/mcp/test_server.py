"""Agents that reach the catalog with the MCP SDK's client, over real sockets, in both protocol eras."""

import asyncio
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.policies import gate
from approvals.requests.lifecycle import withdraw
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call, LearntWait, Tool
from plans.engine.holding import CallBusy
from plans.mcp import callers, listing, waiting
from plans.mcp.callers import SCOPE_KEY
from plans.mcp.waiting import Patience
from plans.models import Plan
from tests.approvals.factories import add_policy
from tests.builders import approve, reject, request_of
from tests.plans.mcp.conftest import ACCEPT, ERAS, connected, facts_of
from tests.plans.socket_clients import apart

SAY = {"template": "hello", "values": {}}
WRITE = {"path": "a.txt", "content": "x"}

PAST = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(ada: Any) -> str:
    """The token of an agent that may call tools."""
    return create_token(user=ada, kind="agent", scopes=["calls:create"])[1]


@pytest.fixture(params=ERAS)
def mode(request: pytest.FixtureRequest) -> str:
    """Each protocol era."""
    return str(request.param)


@pytest.fixture(autouse=True)
def quick_hang_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record closed connections soon."""
    monkeypatch.setattr(waiting, "CANCELLATION_SECONDS", 0.1)


def newest_plan() -> Plan:
    """Return the plan of the newest call."""
    return Plan.objects.latest("pk")


async def until_held(count: int = 1) -> None:
    """Wait until so many calls are held."""
    while await apart(Call.objects.filter(status="held").count) < count:
        await asyncio.sleep(0.02)


async def no_progress(progress: float, total: float | None, message: str | None) -> None:
    """Take progress, which makes a client one that is told of it."""


async def test_tools_are_listed_with_hints_and_schemas(mcp_url: str, token: str, mode: str) -> None:
    async with connected(mcp_url, token, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        capabilities = client.server_capabilities
    assert {"render_text", "write_file", "approval_result", "planning_setup_plan"} <= set(tools)
    assert not {"agent_turn", "draft_plan", "ask_user"} & set(tools)
    assert tools["write_file"].annotations.destructive_hint
    assert tools["approval_result"].annotations.read_only_hint
    assert tools["render_text"].annotations.read_only_hint
    assert "pending_approval" in str(tools["write_file"].output_schema)
    assert "pending_approval" in str(tools["render_text"].output_schema)  # a policy made later may hold it
    assert capabilities.tools.list_changed


async def test_a_safe_call_is_answered_at_once(mcp_url: str, token: str, mode: str) -> None:
    async with connected(mcp_url, token, mode) as client:
        answer = await client.call_tool("render_text", SAY, meta={"toolgate/session": "s1"})
    assert not answer.is_error
    assert answer.structured_content == {"result": "hello"}
    assert [block.text for block in answer.content] == ["hello", '{"result": "hello"}']
    call = await apart(Call.objects.get)
    assert (call.via, call.session, call.status) == ("mcp", "s1", "completed")


async def test_an_approved_call_returns_its_result_to_a_client_that_waits(
    mcp_url: str, token: str, mode: str, rosa: Any, workspace: Any
) -> None:
    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    async with connected(mcp_url, token, mode) as client:
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, progress_callback=on_progress))
        await until_held()
        await apart(lambda: approve(newest_plan(), rosa))
        answer = await waits
    assert not answer.is_error and (workspace / "a.txt").read_text() == "x"
    assert "Waiting for a person to approve write_file" in told[0]


@pytest.mark.usefixtures("workspace")
async def test_slow_held_calls_keep_nobody_else_waiting(
    mcp_url: str, token: str, ben: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token's held calls leave a thread to others; those beyond its share wait, and are refused beyond a number."""
    begun, go = threading.Semaphore(0), threading.Event()
    count = settings.MCP_HELD_THREADS - 1

    def slow(*arguments: Any) -> Any:
        begun.release()
        go.wait()
        raise CallBusy("slow")

    monkeypatch.setattr("plans.mcp.calls.open_held_call", slow)
    monkeypatch.setattr(callers, "MAX_HELD_CALLS", count + 1)
    his = await apart(lambda: create_token(user=ben, kind="agent", scopes=["calls:create"])[1])
    async with connected(mcp_url, token) as client, connected(mcp_url, his) as other:
        waits = [asyncio.ensure_future(client.call_tool("write_file", WRITE)) for _ in range(count + 1)]
        for _ in range(count):
            await asyncio.to_thread(begun.acquire)
        assert facts_of(await client.call_tool("write_file", WRITE))["error"] == "call_busy"
        assert (await client.list_tools(cache_mode="bypass")).tools
        assert not (await client.call_tool("render_text", SAY)).is_error
        waits.append(asyncio.ensure_future(other.call_tool("write_file", WRITE)))
        await asyncio.to_thread(begun.acquire)
        go.set()
        answers = await asyncio.gather(*waits)
    assert {facts_of(answer)["error"] for answer in answers} == {"call_busy"}
    assert callers._shares == {}


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of 0.2 s for clients that are not told of progress."""
    monkeypatch.setattr(waiting, "OTHERS", Patience(0.2, 0.2))


@pytest.mark.usefixtures("short_waits")
async def test_a_call_that_nobody_decides_is_pending_and_its_result_is_fetched_later(
    mcp_url: str, token: str, mode: str, rosa: Any, workspace: Any
) -> None:
    async with connected(mcp_url, token, mode) as client:
        pending = (await client.call_tool("write_file", WRITE)).structured_content
        assert pending["status"] == "pending_approval"
        assert pending["url"].endswith(f"/approvals/?item={pending['approval_id']}")
        asked = {"approval_id": pending["approval_id"]}
        assert (await client.call_tool("approval_result", asked)).structured_content == pending
        waits = asyncio.ensure_future(client.call_tool("approval_result", {**asked, "wait_seconds": 50}))
        await apart(lambda: approve(newest_plan(), rosa))
        assert not (await waits).is_error
    assert (workspace / "a.txt").read_text() == "x"


async def test_rejected_withdrawn_and_expired_calls_are_errors_with_the_reason(
    mcp_url: str, token: str, mode: str, rosa: Any, ada: Any
) -> None:
    async with connected(mcp_url, token, mode) as client:
        for status, end in (
            ("rejected", lambda: reject(newest_plan(), rosa)),
            ("withdrawn", lambda: withdraw(ApprovalRequest.objects.latest("pk"), by=ada, reason="Wrong file.")),
            ("expired", lambda: ApprovalRequest.objects.filter(status="pending").update(expires_at=PAST)),
        ):
            waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, progress_callback=no_progress))
            await until_held()
            await apart(end)
            answer = await waits
            assert (answer.is_error, facts_of(answer)["status"]) == (True, status)
            assert answer.content[0].text == facts_of(answer)["error"]
    assert not await apart(Call.objects.filter(started_at__isnull=False).exists)


async def test_a_call_that_a_person_edited_says_what_it_ran_with(
    mcp_url: str, token: str, rosa: Any, workspace: Any
) -> None:
    def edit() -> None:
        request = request_of(newest_plan())
        decide(
            request,
            by=rosa,
            decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments={**WRITE, "content": "y"}),
        )

    async with connected(mcp_url, token) as client:
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, progress_callback=no_progress))
        await until_held()
        await apart(edit)
        answer = await waits
    assert answer.content[0].text.startswith("Edited by Rosa before it was approved: content.")
    assert (workspace / "a.txt").read_text() == "y"


async def test_identical_undecided_calls_join_and_decided_ones_do_not(
    mcp_url: str, token: str, rosa: Any, workspace: Any, monkeypatch: Any
) -> None:
    async with connected(mcp_url, token) as one, connected(mcp_url, token, "legacy") as other:
        calls = [each.call_tool("write_file", WRITE, progress_callback=no_progress) for each in (one, other, one)]
        waits = asyncio.gather(*calls)
        await until_held()
        while sum(map(len, waiting._waits.values())) < len(calls):
            await asyncio.sleep(0.02)
        await apart(lambda: approve(newest_plan(), rosa))
        answers = await waits
        assert [answer.is_error for answer in answers] == [False] * 3
        assert await apart(Call.objects.count) == 1
        monkeypatch.setattr(waiting, "OTHERS", Patience(0.2, 0.2))
        await one.call_tool("write_file", WRITE)
    assert await apart(Call.objects.count) == 2


async def test_a_cancelled_request_ends_only_the_wait(mcp_url: str, token: str, mode: str, workspace: Any) -> None:
    async with connected(mcp_url, token, mode) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.call_tool("write_file", WRITE, progress_callback=no_progress))
                await until_held()
                while not waiting._waits:
                    await asyncio.sleep(0.02)
                scope.cancel()
        while waiting._waits:
            await asyncio.sleep(0.02)
        assert (await client.call_tool("render_text", SAY)).structured_content == {"result": "hello"}
    assert await apart(lambda: Call.objects.get(tool_name="write_file").status) == "held"


def request_of_call(token: str, version: str, name: str = "write_file", **arguments: Any) -> dict[str, Any]:
    """Return a call, by default of a tool that is held, from a client that wants progress."""
    meta = {
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {**ACCEPT, "authorization": f"Bearer {token}", "mcp-protocol-version": version, "user-agent": "codex"}
    headers |= {"mcp-method": "tools/call", "mcp-name": name}
    params = {"name": name, "arguments": arguments or WRITE, "_meta": meta}
    return {"headers": headers, "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}}


async def hang_up(url: str, token: str, version: str) -> None:
    """Call a tool that is held, and close the connection while the server waits."""
    request = request_of_call(token, version)
    async with httpx2.AsyncClient(timeout=60) as http, http.stream("POST", url, **request) as stream:
        lines = stream.aiter_lines()
        while "notifications/progress" not in await anext(lines):
            continue


async def test_a_short_poll_does_not_undo_what_was_learnt(mcp_url: str, token: str, workspace: Any) -> None:
    version = "2026-07-28"
    await hang_up(mcp_url, token, version)
    while waiting._waits or waiting._records:
        await asyncio.sleep(0.02)
    await apart(lambda: LearntWait.objects.update(cut_off_after=12.0))
    approval = await apart(lambda: Call.objects.get().approval.public_id)
    poll = request_of_call(token, version, "approval_result", approval_id=approval, wait_seconds=0.05)
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(mcp_url, **poll)
    assert '"status":"pending_approval"' in answer.text.replace(" ", "")
    while waiting._records:
        await asyncio.sleep(0.02)
    assert (await apart(LearntWait.objects.get)).cut_off_after == 12.0


async def test_a_running_call_that_becomes_held_ends_the_unlimited_wait(monkeypatch: Any) -> None:
    async def report_progress(*values: Any) -> None:
        return None

    held = SimpleNamespace(result=None, is_held=True, message="", call=SimpleNamespace(public_id="call_x"))
    running = SimpleNamespace(**{**vars(held), "is_held": False})
    context: Any = SimpleNamespace(
        session=SimpleNamespace(report_progress=report_progress),
        request=SimpleNamespace(scope={SCOPE_KEY: None}),
    )
    monkeypatch.setattr("plans.mcp.calls.check_call", lambda caller, call_id: held)
    state: Any = await waiting._wait(context, running, float("inf"), asyncio.Event())  # type: ignore[arg-type]
    assert state is held


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_clients_that_hang_up_twice_are_given_shorter_waits(
    mcp_url: str, token: str, workspace: Any, version: str
) -> None:
    for _ in range(2):
        await hang_up(mcp_url, token, version)
        while waiting._waits or waiting._records:
            await asyncio.sleep(0.02)
    row = await apart(LearntWait.objects.get)
    assert (row.client, row.seconds) == ("codex", 2.0)
    assert await apart(lambda: Call.objects.get().status) == "held"
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(mcp_url, **request_of_call(token, version))
    assert '"status":"pending_approval"' in answer.text.replace(" ", "")


async def test_a_call_whose_client_was_killed_runs_once_and_keeps_its_result(
    mcp_url: str, token: str, rosa: Any, workspace: Any
) -> None:
    await hang_up(mcp_url, token, "2025-11-25")
    approval = await apart(lambda: request_of(newest_plan()).public_id)
    await apart(lambda: approve(newest_plan(), rosa))
    async with connected(mcp_url, token) as client:
        answer = await client.call_tool("approval_result", {"approval_id": approval, "wait_seconds": 50})
    assert not answer.is_error and (workspace / "a.txt").read_text() == "x"
    assert await apart(lambda: Call.objects.get().status) == "completed"


async def test_a_revoked_token_ends_the_wait_and_every_later_request(
    mcp_url: str, token: str, mode: str, workspace: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 0.1)
    async with connected(mcp_url, token, mode) as client:
        waits = asyncio.ensure_future(client.call_tool("write_file", WRITE, progress_callback=no_progress))
        await until_held()
        await apart(lambda: ApiToken.objects.update(revoked_at="2026-01-01T00:00:00Z"))
        with pytest.raises(MCPError, match="no longer valid"):
            await waits
        with pytest.raises(MCPError):
            await client.call_tool("render_text", SAY)


async def test_refusals_name_the_field_the_tool_or_the_limit(mcp_url: str, token: str, mode: str) -> None:
    async with connected(mcp_url, token, mode) as client:
        wrong = await client.call_tool("render_text", {**SAY, "template": 1})
        assert (wrong.is_error, facts_of(wrong)["errors"][0]["path"]) == (True, "template")
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("no_such_tool", {})
        assert unknown.value.code == -32602
        kept = (await apart(ApiToken.objects.get)).first_refusal
        assert kept is not None
        assert (kept["tool"], kept["reason"]) == ("render_text", "Invalid parameters: template.")
        await apart(lambda: Tool.objects.filter(name="render_text").update(enabled=False))
        snapshot.drop_snapshot()
        disabled = await client.call_tool("render_text", SAY)
        assert (disabled.is_error, facts_of(disabled)["error"]) == (True, "tool_disabled")
        assert "render_text" not in {tool.name for tool in (await client.list_tools()).tools}
        await apart(lambda: Tool.objects.filter(name="render_text").update(enabled=True, registered=False))
        snapshot.drop_snapshot()
        removed = await client.call_tool("render_text", SAY)
        assert removed.is_error and "was removed by its source catalog.toolsets.text" in removed.content[0].text


async def test_limits_and_policies_refuse_with_when_and_why(
    mcp_url: str, token: str, workspace: Any, settings: Any, short_waits: None
) -> None:
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 1
    async with connected(mcp_url, token) as client:
        await client.call_tool("write_file", WRITE)
        limited = await client.call_tool("write_file", {**WRITE, "content": "z"})
        assert (limited.is_error, facts_of(limited)["error"]) == (True, "too_many_waiting")
        assert facts_of(limited)["retry_after"] == 60
        await apart(lambda: PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny"))
        gate.invalidate_rules()
        denied = await client.call_tool("write_file", WRITE)
        assert (denied.is_error, facts_of(denied)["error"]) == (True, "refused")
        assert set(facts_of(denied)["policy"]) == {"name", "rule"}
        assert "write_file" not in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_stop_is_an_error_with_its_reason(mcp_url: str, token: str, mode: str, admin: Any) -> None:
    stop = await apart(lambda: set_stop(parse_scope({"requester": "ada"}), "Too many mails.", by=admin))
    async with connected(mcp_url, token, mode) as client:
        for name, arguments in (("render_text", SAY), ("write_file", WRITE)):
            refused = await client.call_tool(name, arguments)
            assert (refused.is_error, refused.structured_content) == (True, None)
            assert refused.content[0].text == "Stopped: Too many mails. Do not retry."
            assert facts_of(refused)["error"] == "stopped"
        assert not await apart(Call.objects.exists)
        await apart(lambda: lift_stop(stop, "Over.", by=admin))
        assert not (await client.call_tool("render_text", SAY)).is_error


@pytest.mark.usefixtures("short_waits")
async def test_rules_that_look_back_hold_a_clients_calls(mcp_url: str, token: str, mode: str) -> None:
    """Another session does not help; the answers to calls that ran at once say nothing of a count."""
    held: dict[str, Any] = {"effect": "hold", "stages": [{"group": "reviewer", "count": 1}]}
    await apart(lambda: add_policy(1, tool="render_text", recent={"count": 3, "seconds": 60, "by": "token"}, **held))
    await apart(lambda: add_policy(2, tool="read_file", seen={"tool": "render_text", "within": 60}, **held))
    gate.invalidate_rules()
    async with connected(mcp_url, token, mode) as client:
        answers = [await client.call_tool("render_text", SAY, meta={"toolgate/session": each}) for each in "abcd"]
        assert [(answer.structured_content or {}).get("status") for answer in answers] == [
            *(None, None, "pending_approval", "pending_approval")
        ]
        read = await client.call_tool("read_file", {"path": "a.txt"}, meta={"toolgate/session": "e"})
        assert read.structured_content["status"] == "pending_approval"


async def test_a_token_may_forbid_waits(mcp_url: str, token: str, workspace: Any) -> None:
    await apart(lambda: ApiToken.objects.update(hold_seconds=0))
    async with connected(mcp_url, token) as client:
        answer = await client.call_tool("write_file", WRITE, progress_callback=no_progress)
    assert answer.structured_content["status"] == "pending_approval"


async def test_the_list_of_tools_comes_in_pages(mcp_url: str, token: str, monkeypatch: Any) -> None:
    async with connected(mcp_url, token) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        monkeypatch.setattr(listing, "PAGE_SIZE", len(names) // 2 + 1)
        first = await client.list_tools(cache_mode="bypass")
        second = await client.list_tools(cursor=first.next_cursor)
        assert [tool.name for tool in (*first.tools, *second.tools)] == names == sorted(names)
        assert second.next_cursor is None
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor="§")
        assert refused.value.code == -32602


async def test_a_token_that_may_not_call_is_offered_nothing(mcp_url: str, vera: Any) -> None:
    text = await apart(lambda: create_token(user=vera, kind="agent", scopes=["calls:create"])[1])
    async with connected(mcp_url, text) as client:
        assert (await client.list_tools()).tools == []
        assert facts_of(await client.call_tool("render_text", SAY))["error"] == "permission_denied"


async def test_another_token_cannot_ask_for_the_outcome(mcp_url: str, token: str, ben: Any, short_waits: None) -> None:
    others = await apart(lambda: create_token(user=ben, kind="agent", scopes=["calls:create"])[1])
    async with connected(mcp_url, token) as client:
        pending = (await client.call_tool("write_file", WRITE)).structured_content
    async with connected(mcp_url, others) as client:
        for approval_id in (pending["approval_id"], "apr_\0", "call_x"):
            answer = await client.call_tool("approval_result", {"approval_id": approval_id})
            assert (answer.is_error, facts_of(answer)["error"]) == (True, "not_found")


async def test_a_tool_outside_the_limits_is_neither_listed_nor_called(mcp_url: str, token: str, mode: str) -> None:
    await apart(lambda: ApiToken.objects.update(limits={"max_level": "safe"}))
    async with connected(mcp_url, token, mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"render_text", "approval_result"} <= names and "write_file" not in names
        answer = await client.call_tool("write_file", {})
    assert facts_of(answer)["error"] == "outside_limits"
    assert not await apart(Call.objects.exists)
