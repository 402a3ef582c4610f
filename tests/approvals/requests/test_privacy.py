"""Private data of requests: visible to reviewers and requesters, masked for others."""

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
    """A request by Ada with private arguments from an earlier step."""
    stage.previews["dangerous"] = lambda value, context: Preview(f"Write to {SECRET}", "text", after=f"Dear {SECRET}")
    look = act(1, {"email": SECRET}, "private", expected_key="found", output_path=["results", "0"])
    plan = work_off(make_plan(ada, look, act(2, {"to": "${found.email}"}, "dangerous", dependencies=[1])))
    Call.objects.filter(step__plan=plan).update(reason=f"To tell {SECRET}")
    return request_of(plan, 2)


def test_requester_and_reviewers_see_private_arguments(held, ada, rosa, admin):
    for viewer in (ada, rosa, admin):
        body = Rest(viewer).get(f"approvals/{held.public_id}/").json()
        assert (body["arguments"], body["preview"]["after"]) == ({"value": {"to": SECRET}}, f"Dear {SECRET}")
        assert body["reason"] == f"To tell {SECRET}"
        assert SECRET in Pages(viewer).open(f"/approvals/?item={held.public_id}")


def test_private_arguments_are_masked_for_others(held, vera, ben):
    for viewer in (vera, ben):
        rest, pages = Rest(viewer), Pages(viewer)
        body = rest.get(f"approvals/{held.public_id}/").json()
        assert body["arguments"] == {"value": TOLD}
        assert (body["preview"]["kind"], body["preview"]["after"]) == ("text", {PRIVATE_MARKER: "string"})
        assert body["reason"] == PRIVATE_NOTICE
        for path in ("approvals/", f"approvals/{held.public_id}/", f"calls/{held.call.public_id}/"):
            assert SECRET not in rest.get(path).content.decode()
        for more in ("", "&view=json"):
            assert SECRET not in pages.open(f"/approvals/?item={held.public_id}{more}")


def test_private_arguments_are_masked_in_every_round(held, rosa, vera):
    arguments = {"value": {"to": "ada@example.org"}}
    decide(held, by=rosa, decision=Decision(ReviewVerdict.APPROVE, held.digest, arguments=arguments))
    rounds = Rest(vera).get(f"approvals/{held.public_id}/").json()["rounds"]
    assert [each["arguments"] for each in rounds] == [{"value": TOLD}, {"value": TOLD}]


def test_private_result_is_not_shown_on_requests(stage, held, rosa, ada, vera):
    plan = Plan.objects.get(public_id=held.plan_ref)
    approve(plan, rosa, 2)
    ready, result = work_off(plan), f"/approvals/{held.public_id}/result/"
    assert ready.status == "completed"
    for viewer in (rosa, ada, vera):
        pages = Pages(viewer)
        pages.open(result)
        assert "call-result" not in pages.html and SECRET not in pages.html
    Call.objects.filter(approval=held).update(status="failed", message=f"No mail for {SECRET}")
    for viewer, sees in ((rosa, True), (vera, False)):
        assert (SECRET in Pages(viewer).open(result)) is sees


@pytest.fixture
def granted(held, rosa, admin):
    """A grant that Rosa created from that request."""
    apply_overrides("dangerous", {"grantable": {}}, by=admin)
    approved = decide(held, by=rosa, decision=Decision(ReviewVerdict.APPROVE, held.digest))
    rows = [{"path": "value.to", "operator": "equals", "value": SECRET}]
    terms = GrantTerms(tool="dangerous", rows=rows, scope="plan", scope_ref=held.plan_ref)
    return create_grant(terms, by=rosa, source_request=approved)


def test_private_grant_conditions_are_masked(granted, ada, rosa, admin, vera):
    for viewer, sees in ((ada, True), (rosa, True), (admin, True), (vera, False)):
        rest = Rest(viewer)
        body = rest.get(f"grants/{granted.public_id}/").json()
        value = SECRET if sees else {PRIVATE_MARKER: "string"}
        assert body["arguments"] == [{"path": "value.to", "operator": "equals", "value": value}]
        assert (SECRET in body["sentence"]) is sees
        for text in (rest.get("grants/").content.decode(), Pages(viewer).open("/approvals/grants/")):
            assert granted.public_id[:10] in text
            assert (SECRET in text) is sees


def test_list_row_and_page_have_the_same_title(held, ada, rosa, vera, ben):
    for viewer, sees in ((ada, True), (rosa, True), (vera, False), (ben, False)):
        board = inbox_source(SocketUser(viewer, None, sees_all=True), WAITING)
        listed = Pages(viewer).open("/approvals/").partition("Answer together")[0]
        for drawn in ("".join(board.draw().fragments.values()), listed):
            assert (SECRET in drawn, "Run dangerous" in drawn) == (sees, not sees), viewer


def test_public_requests_show_the_summary_of_their_tool(held, ada, vera):
    work_off(make_plan(ada, act(1, "x", "dangerous")))
    assert f"Write to {SECRET}" in Pages(vera).open("/approvals/")


def test_registration_mail_is_visible_to_reviewers(catalog, ada, rosa, vera):
    mailing = {"registration_id": "R-20400", "document": "badge"}
    held = request_of(work_off(make_plan(ada, step(1, "send_registration_email", parameters=mailing))))
    whole, masked = (Rest(viewer).get(f"approvals/{held.public_id}/").json() for viewer in (rosa, vera))
    assert "To: one@example.org" in whole["preview"]["after"]
    assert masked["preview"]["after"] == {PRIVATE_MARKER: "string"}
    assert masked["arguments"] == {name: {PRIVATE_MARKER: "string"} for name in (*mailing, "note")}
    for path in ("/approvals/", f"/approvals/?item={held.public_id}"):
        text = Pages(vera).open(path)
        assert not [word for word in ("one@example.org", "Attendee", "R-20400") if word in text]
