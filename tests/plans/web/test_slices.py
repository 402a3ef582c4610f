"""Tests of the page of a plan slice."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import ApprovalRequest, PolicyRevision, Review
from catalog.models import ToolVersion
from plans.models import Plan
from tests.builders import act, make_plan, request_of, work_off
from tests.pages import compact


@pytest.fixture
def plan(stage: Any, ada: User) -> Plan:
    """A plan whose first step waits for people, with two such steps and one with unknown arguments after it."""
    gated = [act(number, f"v{number}", "dangerous", dependencies=[1]) for number in (2, 3)]
    first = act(1, "v1", "dangerous", expected_key="first")
    return work_off(make_plan(ada, first, *gated, act(4, "${first}", "dangerous", dependencies=[1])))


def page_for(user: User) -> Client:
    """Return the browser of someone who has signed in."""
    client = Client()
    client.force_login(user)
    return client


def send(user: User, plan: Plan, **form: Any) -> Any:
    """Press a button of the page."""
    return page_for(user).post(f"/plans/{plan.public_id}/slice/", form)


def boxes(*requests: ApprovalRequest) -> list[str]:
    """Return the values of the checkboxes of these requests."""
    return [f"{each.public_id}:{each.digest}" for each in requests]


def text(response: Any) -> str:
    """Return a page's text."""
    return compact(response.content.decode())


def test_viewing_requests_nothing(plan, rosa):
    response = page_for(rosa).get(f"/plans/{plan.public_id}/slice/")
    page_text = text(response)
    assert response.status_code == 200
    assert 'id="slice-ahead"' in page_text
    assert "${first}" in page_text
    assert "v1" in page_text
    assert not ApprovalRequest.objects.filter(is_early=True).exists()


def test_requested_steps_are_shown_in_full(plan, rosa):
    page_text = text(send(rosa, plan, do="ask", count="2"))
    early = ApprovalRequest.objects.filter(is_early=True)
    assert [each.call.step_ref for each in early] == ["2", "3"]
    assert all(f'value="{box}" checked' in page_text for box in boxes(*early))
    assert 'Do <code class="given">v2</code>' in page_text


def test_checked_requests_are_approved_together(plan, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    send(rosa, plan, do="ask", count="2")
    one, two, three = request_of(plan), request_of(plan, 2), request_of(plan, 3)
    chosen = [*boxes(one, two), f"{three.public_id}:{'0' * 64}"]
    response = send(rosa, plan, do="approve", item=chosen, comment="All three.")
    statuses = {number: request_of(plan, number).status for number in (1, 2, 3)}
    assert statuses == {1: "approved", 2: "approved", 3: "pending"}
    assert {each.comment for each in Review.objects.all()} == {"All three."}
    assert 'id="slice-results"' in text(response)


def test_requester_cannot_approve(plan, ada, rosa):
    assert send(ada, plan, do="ask", count="1").status_code == 403
    send(rosa, plan, do="ask", count="1")
    page_text = text(page_for(ada).get(f"/plans/{plan.public_id}/slice/"))
    assert not [box for box in boxes(request_of(plan, 2)) if f'value="{box}" checked' in page_text]
    send(ada, plan, do="approve", item=boxes(request_of(plan, 2)))
    assert not Review.objects.exists()


def test_irreversible_step_needs_confirmation(plan, rosa):
    send(rosa, plan, do="ask", count="1")
    ToolVersion.objects.filter(tool__name="dangerous").update(reversibility="irreversible")
    chosen = boxes(request_of(plan, 2))
    page_text = text(send(rosa, plan, do="approve", item=chosen, comment="Sure."))
    assert 'name="confirmed" value="1"' in page_text
    assert "Sure." in page_text
    assert not Review.objects.exists()
    send(rosa, plan, do="approve", item=chosen, confirmed="1")
    assert request_of(plan, 2).status == "approved"


def test_hidden_characters_need_confirmation(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, "v\u202e1", "dangerous"), act(2, "v2", "dangerous")))
    hiding, plain = boxes(request_of(plan, 1)), boxes(request_of(plan, 2))
    send(rosa, plan, do="approve", item=plain)
    page_text = text(send(rosa, plan, do="approve", item=hiding))
    assert 'name="confirmed" value="1"' in page_text
    assert [each.request for each in Review.objects.all()] == [request_of(plan, 2)]
    send(rosa, plan, do="approve", item=hiding, confirmed="1")
    assert Review.objects.filter(request=request_of(plan, 1)).exists()


def test_request_needing_individual_review_is_not_approved(plan, rosa):
    send(rosa, plan, do="ask", count="1")
    PolicyRevision.objects.update(min_review_seconds=30)
    send(rosa, plan, do="approve", item=boxes(request_of(plan, 2)), confirmed="1")
    assert request_of(plan, 2).status == "pending"
    assert not Review.objects.exists()


def test_empty_selection_is_refused(plan, rosa):
    assert send(rosa, plan, do="approve").status_code == 422
    rosa.groups.clear()
    assert page_for(rosa).get(f"/plans/{plan.public_id}/slice/").status_code == 404


def test_page_is_linked_from_plan_and_request(plan, rosa):
    address = f"/plans/{plan.public_id}/slice/"
    assert address in text(page_for(rosa).get(f"/plans/{plan.public_id}/"))
    assert address in text(page_for(rosa).get(f"/approvals/?item={request_of(plan).public_id}"))


def test_unauthorized_viewer_has_no_checkbox(plan, rosa, vera):
    waiting = f'id="item-{request_of(plan, 1).public_id}"'
    for viewer, may in ((rosa, True), (vera, False)):
        page_text = text(page_for(viewer).get(f"/plans/{plan.public_id}/slice/"))
        assert (waiting in page_text, 'name="item"' in page_text) == (True, may)
