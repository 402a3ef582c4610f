"""Requests about private data: who decides sees what it is about, who only looks on sees masks."""

import pytest

from approvals.grants.services import GrantTerms, create_grant
from approvals.queue.saved_views import WAITING
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.calls.privacy import PRIVATE_MARKER, PRIVATE_NOTICE
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call
from catalog.tools import Preview
from plans.live.sockets import SocketUser
from plans.models import Plan
from plans.web.fragments import inbox_source
from tests.builders import act, approve, make_plan, request_of, step, work_off
from tests.pages import Pages
from tests.rest import Rest

SECRET = "jo@example.org"
TOLD = {"to": {PRIVATE_MARKER: "string"}}


@pytest.fixture
def held(stage, ada):
    """A request of Ada's: tell somebody what was looked up about them."""
    stage.previews["dangerous"] = lambda value, context: Preview(f"Write to {SECRET}", "text", after=f"Dear {SECRET}")
    look = act(1, {"email": SECRET}, "private", expected_key="found", output_path=["results", "0"])
    plan = work_off(make_plan(ada, look, act(2, {"to": "${found.email}"}, "dangerous", dependencies=[1])))
    Call.objects.filter(step__plan=plan).update(reason=f"To tell {SECRET}")
    return request_of(plan, 2)


def test_requester_and_reviewers_see_private_arguments(held, ada, rosa, admin):
    """Nobody is asked to agree to what they cannot read."""
    for viewer in (ada, rosa, admin):
        shown = Rest(viewer).get(f"approvals/{held.public_id}/").json()
        assert (shown["arguments"], shown["preview"]["after"]) == ({"value": {"to": SECRET}}, f"Dear {SECRET}")
        assert shown["reason"] == f"To tell {SECRET}"
        assert SECRET in Pages(viewer).open(f"/approvals/?item={held.public_id}")


def test_onlookers_see_masks(held, vera, ben):
    """Of the arguments that came by reference, and of all that the tool says of them."""
    for viewer in (vera, ben):
        rest, pages = Rest(viewer), Pages(viewer)
        shown = rest.get(f"approvals/{held.public_id}/").json()
        assert shown["arguments"] == {"value": TOLD}
        assert (shown["preview"]["kind"], shown["preview"]["after"]) == ("text", {PRIVATE_MARKER: "string"})
        assert shown["reason"] == PRIVATE_NOTICE
        for path in ("approvals/", f"approvals/{held.public_id}/", f"calls/{held.call.public_id}/"):
            assert SECRET not in rest.get(path).content.decode()
        for more in ("", "&view=json"):
            assert SECRET not in pages.open(f"/approvals/?item={held.public_id}{more}")


def test_onlookers_see_masks_in_every_round(held, rosa, vera):
    """What a reviewer made of private arguments is as private as they were."""
    arguments = {"value": {"to": "ada@example.org"}}
    decide(held, by=rosa, decision=Decision(ReviewVerdict.APPROVE, held.digest, arguments=arguments))
    rounds = Rest(vera).get(f"approvals/{held.public_id}/").json()["rounds"]
    assert [each["arguments"] for each in rounds] == [{"value": TOLD}, {"value": TOLD}]


def test_a_private_result_is_shown_on_no_request(stage, held, rosa, ada, vera):
    """Its values are revealed one by one, on its step's page; nor does a message repeat it to who only looks on."""
    plan = Plan.objects.get(public_id=held.plan_ref)
    approve(plan, rosa, 2)
    ready, result = work_off(plan), f"/approvals/{held.public_id}/result/"
    assert ready.status == "completed"
    for viewer in (rosa, ada, vera):
        pages = Pages(viewer)
        pages.open(result)
        assert "result-text" not in pages.html and SECRET not in pages.html
    Call.objects.filter(approval=held).update(status="failed", message=f"No mail for {SECRET}")
    for viewer, sees in ((rosa, True), (vera, False)):
        assert (SECRET in Pages(viewer).open(result)) is sees


@pytest.fixture
def granted(held, rosa, admin):
    """A grant that Rosa made out of that request."""
    apply_overrides("dangerous", {"grantable": {}}, by=admin)
    approved = decide(held, by=rosa, decision=Decision(ReviewVerdict.APPROVE, held.digest))
    rows = [{"path": "value.to", "operator": "equals", "value": SECRET}]
    terms = GrantTerms(tool="dangerous", rows=rows, scope="plan", scope_ref=held.plan_ref)
    return create_grant(terms, by=rosa, created_from=approved)


def test_a_grant_repeats_what_is_private_to_who_may_see_it(granted, ada, rosa, admin, vera):
    """In its rows and in their words, over REST and on its page; masked for everyone else."""
    for viewer, sees in ((ada, True), (rosa, True), (admin, True), (vera, False)):
        rest = Rest(viewer)
        shown = rest.get(f"grants/{granted.public_id}/").json()
        value = SECRET if sees else {PRIVATE_MARKER: "string"}
        assert shown["arguments"] == [{"path": "value.to", "operator": "equals", "value": value}]
        assert (SECRET in shown["sentence"]) is sees
        for text in (rest.get("grants/").content.decode(), Pages(viewer).open("/approvals/grants/")):
            assert granted.public_id[:10] in text
            assert (SECRET in text) is sees


def test_a_row_names_what_its_page_does(held, ada, rosa, vera, ben):
    """To who may read it, on the page and live; to everyone else it names the tool."""
    for viewer, sees in ((ada, True), (rosa, True), (vera, False), (ben, False)):
        board = inbox_source(SocketUser(viewer, None, sees_all=True), WAITING)
        listed = Pages(viewer).open("/approvals/").partition("Answer together")[0]
        for drawn in ("".join(board.draw().fragments.values()), listed):
            assert (SECRET in drawn, "Run dangerous" in drawn) == (sees, not sees), viewer


def test_other_requests_are_listed_as_their_tools_say(held, ada, vera):
    """Also to those who only look on."""
    work_off(make_plan(ada, act(1, "x", "dangerous")))
    assert f"Write to {SECRET}" in Pages(vera).open("/approvals/")


def test_the_mail_of_a_registration_is_read_by_who_decides(catalog, ada, rosa, vera):
    """The tool that ships shows a name, an address and a badge number before it sends them."""
    mailing = {"registration_id": "R-20400", "document": "badge"}
    held = request_of(work_off(make_plan(ada, step(1, "send_registration_email", parameters=mailing))))
    whole, masked = (Rest(viewer).get(f"approvals/{held.public_id}/").json() for viewer in (rosa, vera))
    assert "To: one@example.org" in whole["preview"]["after"]
    assert masked["preview"]["after"] == {PRIVATE_MARKER: "string"}
    assert masked["arguments"] == {name: {PRIVATE_MARKER: "string"} for name in mailing}
    for path in ("/approvals/", f"/approvals/?item={held.public_id}"):
        text = Pages(vera).open(path)
        assert not [word for word in ("one@example.org", "Attendee", "R-20400") if word in text]
