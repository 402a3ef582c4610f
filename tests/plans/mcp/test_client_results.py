"""Results as real clients return them: like those of the upstream itself, and as documented where people decide."""

import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.models import ApprovalRequest
from catalog.access.tokens import create_token
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.sources import mcp_client
from catalog.tools import ToolResult, register_tool, registry, tool
from plans.models import Plan
from tests.approvals.factories import add_policy
from tests.builders import approve, reject
from tests.catalogs import fill_catalog
from tests.conftest import forget_what_was_read
from tests.plans.mcp.client_processes import CLIENTS, node_client, started
from tests.python_environments import installed_python
from tests.upstreams import Offer, WebUpstream

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

FAST = ["typescript"]
NIGHTLY = ["typescript_2", "mcp_remote", "ai_sdk", "python_sdk", "fastmcp", "openai_agents"]
PNG = b64encode(bytes.fromhex("89504e470d0a1a0a") + b"\0" * 64).decode()
SIZE = {"type": "object", "properties": {"width": {"type": "integer"}}, "required": ["width"]}
ANSWERS: dict[str, dict[str, Any]] = {
    "say": {"content": [{"type": "text", "text": "Echo: hi"}]},
    "draw": {
        "content": [
            {"type": "text", "text": "A picture:"},
            {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": {"audience": ["user"]}},
            {"type": "resource_link", "name": "source", "uri": "file:///a.svg", "mimeType": "image/svg+xml"},
            {"type": "resource", "resource": {"uri": "demo://a", "mimeType": "text/plain", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "demo://b", "mimeType": "application/zip", "blob": PNG}},
            {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
        ],
    },
    "measure": {"content": [{"type": "text", "text": "3 wide"}], "structuredContent": {"width": 3}},
    "measure_wrongly": {"content": [{"type": "text", "text": "wide"}], "structuredContent": {"width": "wide"}},
    "refuse": {"content": [{"type": "text", "text": "No room left."}], "isError": True},
    "refuse_in_values": {"content": [], "structuredContent": {"code": "NO_ROOM"}, "isError": True},
    "say_nothing": {"content": []},
}
WRITE = {"path": "a.txt", "content": "x"}


@tool(name="keep_to_itself")
def keep_to_itself() -> ToolResult[int]:
    """Count something that models are not shown."""
    return ToolResult("Counted.", 7, exclude_value_from_context=True)


@tool(name="break_down")
def break_down() -> int:
    """Fail."""
    raise ValueError("The engine is cold.")


@pytest.fixture(params=[*FAST, *(pytest.param(each, marks=pytest.mark.nightly) for each in NIGHTLY)])
def command(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client, without address and token."""
    kind, cache = request.param, request.config.cache
    if kind in ("typescript", "typescript_2", "mcp_remote", "ai_sdk"):
        return node_client(cache, kind)
    python = installed_python(cache, CLIENTS / f"{kind}.lock") if kind == "openai_agents" else Path(sys.executable)
    return [str(python), str(CLIENTS / "python_client.py"), kind]


@pytest.fixture
def upstream(executor: Any, admin: Any, settings: Any, tmp_path: Path) -> Iterator[WebUpstream]:
    """A trusted source of the catalog whose tools give the answers of this module, and two tools in Python."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    for each in (keep_to_itself, break_down):
        register_tool(each)
    fill_catalog()
    offer = Offer(tmp_path / "offered.json")
    offer(
        *(
            {"name": name, "annotations": {"readOnlyHint": True}, "answer": answer}
            | ({"outputSchema": SIZE} if name.startswith("measure") else {})
            for name, answer in ANSWERS.items()
        )
    )
    server = WebUpstream(offer)
    sync_source(create_source({"name": "up", "kind": "mcp", "url": server.url, "trusted": True}, by=admin))
    forget_what_was_read()
    yield server
    mcp_client.close_connections()
    server.stop()
    for each in (keep_to_itself, break_down):
        registry._TOOLS.pop(each.name)


@pytest.fixture
def gate(mcp_url: str, ada: Any) -> tuple[str, str]:
    """The address of Toolgate and the token of an agent whose held calls are answered at once."""
    return mcp_url, create_token(user=ada, kind="agent", scopes=["calls:create"], hold_seconds=0)[1]


def plain(result: Any) -> Any:
    """Return a result without `_meta` and without fields that say nothing."""
    if isinstance(result, dict):
        members = {name: plain(each) for name, each in result.items() if name != "_meta" and each is not None}
        return {name: each for name, each in members.items() if (name, each) not in NO_NEWS}
    return [plain(each) for each in result] if isinstance(result, list) else result


NO_NEWS = [("isError", False), ("resultType", "complete")]


def texts(result: Any) -> list[str]:
    """Return the text blocks of a result."""
    return [each["text"] for each in result["content"] if each["type"] == "text"]


def test_results_arrive_as_the_upstream_sends_them_and_decisions_as_documented(
    command: list[str], upstream: WebUpstream, gate: tuple[str, str], rosa: Any, workspace: Path
) -> None:
    faults: dict[str, Any] = {}
    with started(command, upstream.url, "none") as direct, started(command, *gate) as client:
        assert set(ANSWERS) <= set(direct.names) and {*ANSWERS, "approval_result", "write_file"} <= set(client.names)
        for name in ANSWERS:
            mine, others = plain(client.call(name)), plain(direct.call(name))
            if name == "measure_wrongly":
                is_same = "warnings" in mine["structuredContent"]
            else:
                own = others.get("content", [])
                # The values of an error are a text: clients compare structured content with the schema of results.
                fields = ["isError"] if others.get("isError") else ["isError", "structuredContent"]
                is_same = mine["content"][: len(own)] == own and [*map(mine.get, fields)] == [*map(others.get, fields)]
                is_same &= not mine.get("isError") or ("structuredContent" not in mine and texts(mine) != [])
            if not is_same:
                faults[name] = mine, others
        assert faults == {}

        wrong = [
            client.call("render_text", {"template": 5, "values": {}}),
            client.call("write_file", {"path": 2**60, "content": ""}),
        ]
        broken = client.call("break_down")
        for result in (*wrong, broken):
            assert result["isError"] and "structuredContent" not in result
        assert "template" in texts(wrong[0])[0] and "path" in texts(wrong[1])[0] and texts(broken)
        assert client.call("keep_to_itself")["structuredContent"]["status"] == "hidden"

        add_policy(0, tool="render_text", effect="hold", stages=[{"group": "reviewer", "count": 1}])
        forget_what_was_read()
        for decide, name, arguments in (
            (approve, "write_file", WRITE),
            (reject, "write_file", WRITE),
            (approve, "render_text", {"template": "hello", "values": {}}),
        ):
            pending = client.call(name, arguments)["structuredContent"]
            assert pending["status"] == "pending_approval"
            decide(Plan.objects.latest("pk"), rosa)
            asked = {"approval_id": pending["approval_id"], "wait_seconds": 50}
            ended = client.call("approval_result", asked)
            assert bool(ended.get("isError")) == (decide is reject), ended
            if decide is reject:
                assert "structuredContent" not in ended and "rejected" in texts(ended)[-1]
            else:
                assert ended["structuredContent"]
    assert (workspace / "a.txt").read_text() == "x" and ApprovalRequest.objects.count() == 3
