"""Hostile agents and envelopes over MCP, with the SDK's client: who is covered, what counts, what agents read."""

import asyncio
import threading
from typing import Any

import anyio
import pytest

from approvals.envelopes.services import end_envelope
from approvals.models import ApprovalRequest, Envelope, EnvelopeItem
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call
from plans.mcp import waiting
from plans.mcp.waiting import Patience
from plans.models import Plan
from tests.approvals.factories import item
from tests.builders import approve
from tests.plans.mcp.conftest import connected, facts_of
from tests.plans.socket_clients import apart

PENDING = "pending_approval"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(stage: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide and read anew at once, and wait for people for a moment only."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "OTHERS", Patience(0.2, 0.2))


def token_of(owner: Any, kind: str = "agent", **more: Any) -> str:
    return create_token(user=owner, kind=kind, scopes=["calls:create"], **more)[1]


@pytest.fixture
def other_tokens(ada: Any, ben: Any) -> list[str]:
    """Two further tokens of the same person, and one of another."""
    return [token_of(ada), token_of(ada, "personal"), token_of(ben)]


@pytest.fixture
def token(ada: Any) -> str:
    return token_of(ada)


def proposal(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"purpose": "Tidy up", "items": list(items) or [item()], "minutes": 60, **more}


async def opened(client: Any, rosa: Any, *items: dict[str, Any]) -> Envelope:
    """Propose an envelope, whose wait is cut off, let Rosa approve it, and ask for the outcome."""
    pending = (await client.call_tool("propose_envelope", proposal(*items))).structured_content
    await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
    asked = {"approval_id": pending["approval_id"], "wait_seconds": 50}
    value = (await client.call_tool("approval_result", asked)).structured_content
    assert value["status"] == "open"
    envelope: Envelope = await apart(lambda: Envelope.objects.get(public_id=value["envelope"]))
    return envelope


async def act(client: Any, value: Any, session: str = "") -> Any:
    """Make a dangerous call; return its value, or its pending result."""
    meta: Any = {"toolgate/session": session} if session else None
    answer = await client.call_tool("dangerous", {"value": value}, meta=meta)
    assert not answer.is_error
    content = answer.structured_content
    return content["results"][0] if "results" in content else content


async def test_places_are_shared_by_the_connections_of_one_token_and_by_nobody_else(
    mcp_url: str, token: str, other_tokens: list[str], rosa: Any, stage: Any
) -> None:
    """The names of sessions neither let others in nor give a connection places of its own."""
    async with connected(mcp_url, token) as one, connected(mcp_url, token, "legacy") as two:
        await opened(one, rosa, item(count=3))
        for text in other_tokens:
            async with connected(mcp_url, text) as other:
                answer = await act(other, "other", session="a")
                assert answer["status"] == PENDING and "envelope" not in answer["next"]
        assert await act(one, "first", session="a") == "first"
        clients = enumerate([one, two, one, two])
        answers = await asyncio.gather(*(act(client, number, session=f"s{number}") for number, client in clients))
    assert sum(isinstance(each, int) for each in answers) == 2
    assert len(stage.values("dangerous")) == 3


async def test_repeated_proposal_is_one_and_answered_to_its_token_alone(
    mcp_url: str, token: str, ada: Any, rosa: Any
) -> None:
    other = await apart(lambda: token_of(ada))
    async with connected(mcp_url, token) as one, connected(mcp_url, token) as two, connected(mcp_url, other) as thief:
        calls = [client.call_tool("propose_envelope", proposal()) for client in (one, two, one)]
        first, *repeats = [answer.structured_content for answer in await asyncio.gather(*calls)]
        assert [each["approval_id"] for each in repeats] == [first["approval_id"]] * 2
        await apart(lambda: approve(Plan.objects.get(), rosa))
        asked = {"approval_id": first["approval_id"], "wait_seconds": 50}
        assert facts_of(await thief.call_tool("approval_result", asked))["error"] == "not_found"
        assert (await two.call_tool("approval_result", asked)).structured_content["status"] == "open"
        again = (await one.call_tool("propose_envelope", proposal())).structured_content
        assert again["status"] == PENDING and again["approval_id"] != first["approval_id"]


async def test_cancelled_call_has_used_its_place(mcp_url: str, token: str, rosa: Any, stage: Any) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(value: Any, context: Any) -> Any:
        begun.set()
        go.wait(60)
        return value

    async with connected(mcp_url, token, "legacy") as client:
        await opened(client, rosa, item(count=1))
        stage.acts["dangerous"] = slow
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(act, client, "cancelled")
                await asyncio.to_thread(begun.wait, 60)
                scope.cancel()
        answer = await act(client, "second")
        go.set()
    assert "no calls of this kind left" in answer["next"]
    assert stage.values("dangerous") == ["cancelled"]


async def test_agent_reads_why_no_envelope_lets_its_call_start(
    mcp_url: str, token: str, rosa: Any, admin: Any, stage: Any
) -> None:
    async with connected(mcp_url, token) as client:
        envelope = await opened(client, rosa, item(rows=[{"path": "value.to", "operator": "exists"}]))
        answer = await client.call_tool("dangerous", {"value": {"to": 1, "c\0c": 2}})
        said = f"This call is outside of the envelope {envelope.public_id}: The argument value.c�c is not what"
        assert answer.structured_content["next"].startswith(said)
        assert answer.content[0].text == answer.structured_content["next"]
        await apart(lambda: end_envelope(envelope, reason="Enough", by=rosa))
        assert "The envelope was ended before this call. Ended by Rosa: Enough. A" in (await act(client, 2))["next"]
        await opened(client, rosa)  # an open one is what counts now
        assert await act(client, 3) == 3
        await apart(lambda: apply_overrides("dangerous", {"description_override": "Otherwise."}, by=admin))
        assert "the code of dangerous has changed" in (await act(client, 4))["next"]
    assert stage.values("dangerous") == [3]


async def test_stop_ends_an_envelope_and_uses_no_place(
    mcp_url: str, token: str, rosa: Any, admin: Any, stage: Any
) -> None:
    async with connected(mcp_url, token) as client:
        await opened(client, rosa)
        stop = await apart(lambda: set_stop(parse_scope({"tool": "dangerous"}), "Too many.", by=admin))
        stopped = await client.call_tool("dangerous", {"value": 1}, meta={"progressToken": "x\0"})
        assert facts_of(stopped)["error"] == "stopped"
        await apart(lambda: lift_stop(stop, "Over.", by=admin))
        assert "A stop was set: Too many." in (await act(client, 1))["next"]
    assert not await apart(EnvelopeItem.objects.filter(used__gt=0).exists)


@pytest.mark.parametrize("terms", [item(rows=[{"path": "guess", "operator": "exists"}]), item(), item("dangerous", [])])
async def test_proposal_tells_nothing_of_a_tool_outside_the_limits(mcp_url: str, ada: Any, terms: Any) -> None:
    limits = {"sources": ["approvals.envelopes.tool"]}
    text = await apart(lambda: token_of(ada, limits=limits))
    async with connected(mcp_url, text) as client:
        refused = facts_of(await client.call_tool("propose_envelope", proposal(terms)))
    assert (refused["error"], "errors" in refused) == ("outside_limits", False)
    assert "dangerous is outside the limits of this token" in refused["message"]


GITHUB = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
OPEN: dict[str, Any] = {"path": f"value.{GITHUB}", "at_most": 5}


@pytest.mark.parametrize(
    ("hostile", "path"),
    [
        (proposal(purpose=GITHUB), "purpose"),
        (proposal(item(rows=[{"path": "value", "operator": "in", "value": ["a", f"x\n{GITHUB}"]}])), "items.0."),
        (proposal(item(rows=[{"path": f"value.{GITHUB}", "operator": "exists"}])), "items.0.arguments.0.path"),
        (proposal(item(rows=[], sum=OPEN)), "items.0.sum.path"),
    ],
)
async def test_secrets_are_refused_with_their_place(mcp_url: str, token: str, hostile: Any, path: str) -> None:
    """Bounds are stored and shown in clear."""
    async with connected(mcp_url, token) as client:
        facts = facts_of(await client.call_tool("propose_envelope", hostile))
    assert facts["error"] == "invalid" and facts["errors"][0]["path"].startswith(path)
    assert not await apart(Call.objects.exists)
    assert not await apart(ApprovalRequest.objects.exists)
