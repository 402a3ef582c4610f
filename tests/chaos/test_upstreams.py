"""A tool of an upstream MCP server: called by an agent over MCP, approved by a reviewer in the browser.

The process that serves is killed around the call.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.access.tokens import create_token
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Call, Tool
from catalog.sources import mcp_client
from tests.browser.conftest import patient, press_approve, windows
from tests.browser.desk import becomes, open_inbox
from tests.builders import call_of, make_plan, step, work_off
from tests.catalogs import imported_tool
from tests.chaos.client import signed_in
from tests.chaos.serving import Serving
from tests.invariants import assert_invariants
from tests.upstreams import DROP, READ, Offer, WebUpstream
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

VERSION = "2026-07-28"
ARGUMENTS = {"text": "a"}


class Agent:
    """Calls tools at `/mcp` of the process that serves at the moment."""

    def __init__(self, serving: Serving, user: User) -> None:
        self._serving = serving
        token, text = create_token(user=user, kind="agent", scopes=["calls:create"])
        token.hold_seconds = 0
        token.save()
        self._headers = {"Authorization": f"Bearer {text}", "Accept": "application/json, text/event-stream"}
        self._numbers = itertools.count(1)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the structured content of a call's result."""
        meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": "tools/call", "params": params}
        headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        url = eventually(self._serving.url, what="the server")
        answer = httpx.post(f"{url}/mcp", json=body, headers=self._headers | headers, timeout=30)
        result: dict[str, Any] = answer.json()["result"]
        return result

    def outcome(self, approval: str) -> dict[str, Any]:
        """Return what became of a call that waited for approval."""
        return self.call("approval_result", {"approval_id": approval, "wait_seconds": 0})


@pytest.fixture
def upstream(chaos_tools: None, admin: User, tmp_path: Path, settings: Any) -> Iterator[WebUpstream]:
    """An upstream over HTTP whose dangerous tool writes to the sink and waits for its gate; it is imported."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    offer = Offer(tmp_path / "offered.json")
    offer(READ, {**DROP, "does": "write and wait", "sink": str(tmp_path / "done"), "gate": str(tmp_path / "gate")})
    upstream = WebUpstream(offer)
    sync_source(create_source({"name": "wiki", "kind": "mcp", "url": upstream.url, "trusted": True}, by=admin))
    mcp_client.close_connections()
    yield upstream
    upstream.stop()


@pytest.fixture
def serving(chaos_tools: None, tmp_path: Path) -> Iterator[Serving]:
    """A process that may reach the upstream."""
    process = Serving(tmp_path, TOOLGATE_EGRESS_ALLOW="127.0.0.1", TOOLGATE_UNDO_SECONDS="2")
    yield process
    process.kill()


@pytest.fixture
def agent(serving: Serving, upstream: WebUpstream, ada: User) -> Agent:
    """An agent of Ada's; the server is started."""
    serving.start()
    return Agent(serving, ada)


@pytest.fixture
def approve(browser: Browser, serving: Serving, complaints: list[str], rosa: User) -> Callable[[], None]:
    """Return a function with which Rosa approves the open request in her browser, and closes its window."""

    def approve_what_waits() -> None:
        request = ApprovalRequest.objects.get(status=RequestStatus.PENDING)
        with patient(), windows(browser, serving.url, complaints) as open_window:
            page = open_window(rosa)
            open_inbox(page)
            press_approve(page)
            expect(page.locator(".button.armed")).to_contain_text("this cannot be undone")
            page.keyboard.press("a")
            becomes(request, RequestStatus.APPROVED)

    return approve_what_waits


def call_is(status: str) -> bool:
    """Say whether the one call of the upstream's dangerous tool has this status."""
    return Call.objects.get(tool_name="drop_page").status == status


@pytest.mark.browser
@pytest.mark.parametrize("kill", ["before", "during", "after"])
@pytest.mark.usefixtures("upstream")
def test_call_runs_once_whenever_the_process_is_killed(kill, serving, agent, tmp_path, approve):
    done, gate = tmp_path / "done", tmp_path / "gate"
    held = agent.call("drop_page", ARGUMENTS)["structuredContent"]
    assert held["status"] == "pending_approval" and not done.exists()
    approve()
    if kill == "before":  # while the decision can still be undone
        serving.kill()
        assert not done.exists()
        gate.touch()
    if kill == "during":
        eventually(done.exists, what="the upstream's effect")
        serving.kill()
        gate.touch()
    if kill == "after":
        gate.touch()
        eventually(lambda: call_is("completed"), what="the call")
        serving.kill()
    serving.start()
    expected = "outcome_unknown" if kill == "during" else "completed"
    eventually(lambda: call_is(expected), what=expected)
    outcome = agent.outcome(held["approval_id"])
    assert outcome["isError"] == (kill == "during"), outcome
    if kill != "during":
        assert outcome["structuredContent"] == ARGUMENTS
    assert done.read_text().count("\n") == 1
    assert_invariants()


@pytest.mark.browser
def test_upstream_that_is_away_after_the_approval_is_not_called(upstream, agent, tmp_path, approve):
    held = agent.call("drop_page", ARGUMENTS)["structuredContent"]
    upstream.stop()
    approve()
    eventually(lambda: call_is("failed"), what="the failure")
    assert agent.outcome(held["approval_id"])["isError"]
    assert Call.objects.get(tool_name="drop_page").error_kind == "upstream_unavailable"
    assert not (tmp_path / "done").exists()
    upstream.start()
    eventually(lambda: not agent.call("read_page", ARGUMENTS).get("isError"), what="a new connection")
    assert_invariants()


@pytest.mark.usefixtures("agent")
def test_own_document_is_imported_and_called(serving, admin, ada, settings):
    """Toolgate in front of itself, with a token of the author's."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    url = f"{eventually(serving.url, what='the server')}/api/v1/schema/?format=json"
    values = {"name": "self", "kind": "openapi", "url": url, "headers": signed_in(ada)}
    source = create_source(values, by=admin)
    assert sync_source(source).problems == []  # the server may have done it before
    assert Tool.objects.filter(source=source).count() > 80
    tool = imported_tool("tools_list", source)
    plan = work_off(make_plan(ada, step(1, tool.name, parameters={"q": "drop_page"})))
    assert call_of(plan).status == "completed", call_of(plan).message
    assert '"drop_page"' in call_of(plan).response
