"""REST endpoints of envelopes, and the tool that agents propose them with over MCP."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Envelope, EnvelopeItem
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from plans.mcp import calls, listing
from plans.mcp.callers import Caller
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import add_policy, call_within, item, open_envelope
from tests.builders import act, approve, make_plan, work_off
from tests.pages import Pages
from tests.rest import Rest, agent, wrong_paths


@pytest.fixture(autouse=True)
def at_once(stage: Any, settings: Any, read_anew: Any) -> None:
    """Decisions take effect at once."""
    settings.TOOLGATE_UNDO_SECONDS = 0


def body(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    end = format_utc(clock.now() + timedelta(hours=1))
    return {"purpose": "Tidy up", "items": list(items) or [item()], "expires_at": end, **more}


def opened(client: Rest, reviewer: User, *items: dict[str, Any]) -> dict[str, Any]:
    """Propose an envelope, let it be approved, and return it as it is then."""
    proposed = client.post("envelopes/", body(*items)).json()
    plan = Plan.objects.get(public_id=Envelope.objects.get(public_id=proposed["id"]).call.plan_ref)
    approve(plan, reviewer)
    work_off(plan)
    answer: dict[str, Any] = client.get(f"envelopes/{proposed['id']}/").json()
    return answer


def test_agent_proposes_and_sees_what_is_used(ada, rosa):
    client = agent(ada)
    terms = item(rows=[], count=5, sum={"path": "value", "at_most": 10})
    sent = body(terms)
    answer = client.post("envelopes/", sent, key="once")
    proposed = answer.json()
    assert client.post("envelopes/", sent, key="once").json() == proposed
    assert (answer.status_code, proposed["status"], proposed["calls"]) == (201, "proposed", 0)
    assert proposed["items"] == [terms | {"used": 0, "sum_used": 0}]
    assert proposed["for"] == {"token": client.token.pk}
    envelope = opened(client, rosa, terms)
    assert (envelope["status"], envelope["opened_at"] is not None) == ("open", True)
    call = client.post("calls/", {"tool": "dangerous", "arguments": {"value": 2.5}, "wait_seconds": 0}).json()
    work_off(Plan.objects.get(public_id=call["plan"]))
    ran = client.get(f"calls/{call['id']}/").json()
    assert (ran["status"], ran["envelope"], ran["mismatch"]) == ("completed", envelope["id"], None)
    now = client.get(f"envelopes/{envelope['id']}/").json()
    assert (now["calls"], now["items"][0]["used"], now["items"][0]["sum_used"]) == (1, 1, 2.5)


@pytest.mark.parametrize(
    ("values", "total"),
    [([0.1, 0.2], 0.3), ([9e14, 1e-15], "900000000000000.000000000000001"), ([9e14] * 11, "9900000000000000")],
)
def test_sums_are_shown_exactly(values, total, ada, rosa):
    by = Requester(ada, agent(ada).token, "mcp")
    envelope = open_envelope(by, rosa, item(rows=[], count=20, sum={"path": "value", "at_most": 10**15}))
    EnvelopeItem.objects.update(at_most=str(10**17))
    for value in values:
        assert call_within(by, value).status == "completed"
    shown = Rest(rosa).get(f"envelopes/{envelope.public_id}/").json()["items"][0]
    assert shown["sum_used"] == total


def test_session_is_named_as_calls_can_name_it(ada, rosa):
    client = Rest(ada)
    assert client.post("envelopes/", body(**{"for": {"session": "s" * 128}})).status_code == 201
    assert wrong_paths(client.post("envelopes/", body(**{"for": {"session": "s" * 129}}))) == ["for.session"]


def test_approval_shows_kind_envelope_and_mismatch(ada, rosa):
    client = agent(ada)
    envelope = opened(client, rosa)
    proposal = Rest(rosa).get(f"approvals/{envelope['approval']}/").json()
    assert (proposal["kind"], proposal["envelope"], proposal["mismatch"]) == ("envelope", envelope["id"], None)
    call = client.post("calls/", {"tool": "dangerous_hasty", "arguments": {"value": 1}, "wait_seconds": 0}).json()
    assert (call["envelope"], call["mismatch"]) == (envelope["id"], "tool")
    outside = Rest(rosa).get("approvals/", status="pending").json()["results"]
    assert [(each["kind"], each["envelope"], each["mismatch"]) for each in outside] == [
        ("call", envelope["id"], "tool")
    ]


def test_envelopes_are_listed_for_those_who_may_see_them(ada, ben, rosa):
    client = agent(ada)
    envelope = opened(client, rosa)
    path = f"envelopes/{envelope['id']}/"
    for seen in (client, Rest(ada), Rest(rosa)):
        assert [each["id"] for each in seen.get("envelopes/", status="open").json()["results"]] == [envelope["id"]]
    assert Rest(rosa).get("envelopes/", status="ended").json()["results"] == []
    assert agent(ben).get("envelopes/").json()["results"] == []
    assert agent(ben).get(path).status_code == agent(ada).get(path).status_code == 404
    assert agent(ben).post(f"{path}end/", {"reason": "Mine"}).status_code == 404


def test_envelope_is_ended_once_with_a_reason(ada, rosa):
    envelope = opened(agent(ada), rosa)
    path, client = f"envelopes/{envelope['id']}/end/", Rest(rosa)
    assert wrong_paths(client.post(path, {})) == ["reason"]
    ended = client.post(path, {"reason": "Enough"}).json()
    assert (ended["status"], ended["ended_by"], ended["ended_because"]) == ("ended", "rosa", "Ended by Rosa: Enough")
    assert client.post(path, {"reason": "Enough"}).status_code == 409


def test_wrong_fields_of_a_proposal_are_named(ada, rosa):
    client = agent(ada)
    for sent, path in (
        (body() | {"items": []}, "items"),
        (body(item(count=0)), "items.0.count"),
        (body(item(rows=[{"path": "other", "operator": "exists"}])), "items.0.arguments.0.path"),
        (body(item(sum={"path": "value", "at_most": "much"})), "items.0.sum.at_most"),
        (body() | {"expires_at": "2026-01-01T00:00:00Z"}, "expires_at"),
        (body() | {"for": {"plan": "plan_1"}}, "for"),
        (body() | {"minutes": 5}, "minutes"),
    ):
        assert wrong_paths(client.post("envelopes/", sent)) == [path], sent
    assert agent(ada, "tools:read").post("envelopes/", body()).status_code == 403


def test_tool_is_offered_over_mcp_and_answers_like_a_held_call(ada, rosa):
    client = agent(ada, "calls:create")
    caller = Caller(client.token, ada)
    names = [tool.name for tool in listing.list_tools(caller, None).tools]
    assert "propose_envelope" in names
    held = calls.open_held_call(
        caller, "propose_envelope", {"purpose": "Tidy up", "items": [item()], "minutes": 30}, "s1"
    )
    assert held.request is not None and held.call.proposed_envelope.status == "proposed"


def test_simulator_names_the_envelope_that_would_cover_a_call(ada, ben, rosa):
    envelope = opened(agent(ada), rosa, item(rows=[{"path": "value", "operator": "equals", "value": "x"}], count=1))
    simulated = {"tool": "dangerous", "arguments": {"value": "x"}, "requester": "ada"}
    for changed, found in (
        ({}, [envelope["id"]]),
        ({"arguments": {"value": "y"}}, []),
        ({"requester": "ben"}, []),
        ({"at": "2026-01-01T00:00:00Z"}, []),
    ):
        answer = Rest(rosa).post("policies/simulate/", simulated | changed).json()
        assert (answer["effect"], answer["envelopes"]) == ("hold", found), changed
    pages = Pages(rosa)
    pages.open("/policies/simulator/?tool=dangerous")
    sent = {"tool": "dangerous", "drawn": "dangerous", "mode": "json", "json": '{"value": "x"}', "requester": "ada"}
    words = pages.send("/policies/simulator/", sent | {"do": "simulate"})
    assert "Inside an approved envelope" in words and envelope["id"][:10] in words
    assert "Inside an approved envelope" not in pages.send("/policies/simulator/", sent | {"json": '{"value": "y"}'})
    assert Rest(rosa).get(f"envelopes/{envelope['id']}/").json()["items"][0]["used"] == 0


AMOUNT = 4321.5
SECRETIVE = [{"path": "value.iban", "operator": "equals", "value": "DE4321"}]


def private_envelope(owner: User, reviewer: User) -> Envelope:
    """Return an open envelope for calls of a private tool, of which one has run."""
    add_policy(0, tool="private", effect="hold", stages=[{"group": "reviewer", "count": 1}])
    client = Requester(owner, agent(owner).token, "mcp")
    terms = item("private", rows=SECRETIVE, sum={"path": "value.amount", "at_most": 9876.5})
    envelope = open_envelope(client, reviewer, terms)
    assert call_within(client, {"iban": "DE4321", "amount": AMOUNT}, "private").status == "completed"
    return envelope


def shown_of(viewer: User, envelope: Envelope) -> str:
    """Return all that pages and REST show of an envelope and its proposal."""
    plan, request = envelope.call.plan_ref, envelope.call.approval.public_id
    own = f"envelopes/{envelope.public_id}/"
    pages = (f"/{own}", "/envelopes/", f"/plans/{plan}/", f"/plans/{plan}/?step=1", f"/approvals/?item={request}")
    paths = (own, "envelopes/", f"approvals/{request}/", f"calls/{envelope.call.public_id}/", f"plans/{plan}/")
    texts = [Pages(viewer).open(path) for path in pages]
    return "\n".join([*texts, *(Rest(viewer).get(path).content.decode() for path in paths)])


def test_values_of_calls_of_private_tools_are_masked_for_others(ada, ben, rosa):
    """The proposal holds arguments of private calls, so it is as private as they are."""
    envelope = private_envelope(ada, rosa)
    values = ("4321.5", "4,321.5", "9876.5", "9,876.5", "DE4321", "Tidy up")
    for viewer, sees in ((ben, False), (ada, True), (rosa, True)):
        text = shown_of(viewer, envelope)
        assert [value for value in values if value in text] == (list(values) if sees else []), viewer
    masked = Rest(ben).get(f"envelopes/{envelope.public_id}/").json()["items"][0]
    number = {"$private": "number"}
    assert (masked["sum"], masked["sum_used"]) == ({"path": "value.amount", "at_most": number}, None)
    assert masked["arguments"] == [SECRETIVE[0] | {"value": {"$private": "string"}}]
    assert (masked["used"], masked["count"]) == (1, 2)
    assert envelope.public_id not in Pages(ben).open("/envelopes/?q=Tidy")


def test_amounts_that_come_from_private_values_are_masked_for_others(ada, ben, rosa):
    """The tool is not private, nor is the proposal: one call passes a value on that a private step has read."""
    proposal = {"purpose": "Pay", "items": [item(rows=[], sum={"path": "value", "at_most": 9876.5})], "minutes": 60}
    steps = [
        act(1, tool="propose_envelope", parameters=proposal),
        act(2, AMOUNT, "private", expected_key="found", output_path=["results", "0"], dependencies=[1]),
        act(3, "${found}", "dangerous", dependencies=[2]),
    ]
    plan = work_off(make_plan(ada, *steps))
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    envelope = Envelope.objects.get()
    for viewer, sees in ((ben, False), (ada, True), (rosa, True)):
        text = shown_of(viewer, envelope)
        assert (("4,321.5" in text), ("4321.5" in text)) == (sees, sees), viewer
        assert "9,876.5" in text and "Pay" in text
    shown = Rest(ben).get(f"envelopes/{envelope.public_id}/").json()["items"][0]
    assert (shown["sum"]["at_most"], shown["sum_used"]) == (9876.5, None)


def test_desk_masks_the_private_envelope_outside_of_which_a_call_fell(ada, ben, rosa):
    envelope = private_envelope(ada, rosa)
    outside = call_within(Requester(ada, envelope.token, "mcp"))
    assert outside.envelope_mismatch.mismatch == "tool"
    path = f"/approvals/?item={outside.approval.public_id}"
    assert "DE4321" in Pages(rosa).open(path)
    words = Pages(ben).open(path)
    assert "Outside an envelope" in words and "DE4321" not in words and "4,321.5" not in words
