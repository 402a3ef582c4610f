"""Confirmations: minimum review time, typed target, fresh sign-in."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import ApprovalRequest
from approvals.policies.rulebook import rule_from_revision
from approvals.requests.lifecycle import open_request
from catalog.access.roles import SIGNED_IN_AT_KEY
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.results import Preview
from tests.approvals.factories import add_policy, ask, held_call, set_rule, setback_on
from tests.builders import act, make_plan, request_of, work_off
from tests.pages import Pages, compact
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.django_db


def opened(by: User, ada: User, **terms: Any) -> tuple[Pages, ApprovalRequest]:
    """Open the page of a request held by a rule with these terms."""
    set_rule(**terms)
    request = ask(ada)
    pages = Pages(by)
    pages.open(f"/approvals/?item={request.public_id}")
    return pages, request


def approve(pages: Pages, request: ApprovalRequest, status: int = 200, **fields: str) -> str:
    """Approve on the page and return its text."""
    sent = {"verdict": "approve", "seen_digest": request.digest, **fields}
    return pages.send(f"/approvals/{request.public_id}/decision/", sent, status=status)


def status_of(request: ApprovalRequest) -> str:
    """Return the status of the request."""
    return ApprovalRequest.objects.get(pk=request.pk).status


def test_target_must_be_typed(ada, rosa):
    pages, request = opened(rosa, ada, typed_target=True)
    approve(pages, request, 422, typed="yes")
    assert (setback_on(pages), status_of(request)) == ("typed", "pending")
    approve(pages, request, typed="note.txt")
    assert status_of(request) == "approved"


def test_argument_that_repeats_the_summary_is_no_target(ada, rosa):
    set_rule(typed_target=True)
    decoy = Preview("Write note.txt, as you said", "text", after="x")
    call = held_call(ada)
    call.arguments = canonical_text({"path": "note.txt", "content": "note.txt, as you said"})
    call.save()
    request = open_request(call, rule=rule_from_revision(set_rule()), preview=decoy, now=clock.now())
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request.public_id}")
    assert "<code>note.txt</code></label>" in pages.html
    approve(pages, request, 422, typed="note.txt, as you said")
    assert setback_on(pages) == "typed"


def test_tool_name_is_typed_without_a_target(ada, rosa):
    set_rule(typed_target=True)
    request = ask(ada, preview=Preview("Say hello", "text", after="x"))
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request.public_id}")
    approve(pages, request, 422, typed="hello")
    approve(pages, request, typed="write_note")


def test_edit_needs_the_confirmations_of_its_own_rule(stage, ada, rosa):
    rule = {"effect": "hold", "stages": [{"group": "reviewer", "count": 1}], "typed_target": True}
    rows = [{"path": "value", "operator": "equals", "value": "prod"}]
    add_policy(5, safety_level="dangerous", conditions=rows, **rule)
    request = request_of(work_off(make_plan(ada, act(1, "test", "dangerous"))))
    form: dict[str, Any] = {"mode": "json", "json": '{"value": "prod"}'}
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request.public_id}")
    approve(pages, request, 422, **form)
    assert "<code>prod</code></label>" in pages.html
    assert (setback_on(pages), status_of(request)) == ("typed", "pending")
    approve(pages, request, typed="prod", **form)
    assert status_of(request) == "approved"


def test_edit_check_shows_the_required_confirmations(stage, ada, rosa):
    rule = {"effect": "hold", "stages": [{"group": "reviewer", "count": 1}], "typed_target": True}
    rows = [{"path": "value", "operator": "equals", "value": "prod"}]
    add_policy(5, safety_level="dangerous", conditions=rows, **rule, min_review_seconds=30)
    request = request_of(work_off(make_plan(ada, act(1, "test", "dangerous"))))
    pages, form = Pages(rosa), {"mode": "json", "json": '{"value": "prod"}', "do": "check", "typed": "pr"}
    pages.open(f"/approvals/?item={request.public_id}&view=edit")
    assert 'name="typed"' not in pages.html
    pages.send(f"/approvals/{request.public_id}/edit/", form)
    assert "<code>prod</code></label>" in pages.html
    assert pages.html.count('data-wait-note="30"') == 1
    part = compact(pages.swap(f"/approvals/{request.public_id}/edit/", "edited", form).content.decode())
    assert 'id="edit-asks" hx-swap-oob="true"' in part
    assert 'name="typed" autocomplete="off" spellcheck="false" value="pr"' in part
    back = pages.swap(f"/approvals/{request.public_id}/edit/", "edited", form | {"json": '{"value": "test"}'})
    assert 'name="typed"' not in back.content.decode()


def test_minimum_review_time(ada, rosa, monkeypatch):
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    pages, request = opened(rosa, ada, min_review_seconds=30)
    shown = pages.field("since")
    for since in (shown, "", "0"):
        approve(pages, request, 422, since=since)
        assert (setback_on(pages), status_of(request)) == ("review", "pending")
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=29))
    approve(pages, request, 422, since=shown)
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=30))
    approve(pages, request, since=shown)
    assert status_of(request) == "approved"


def sign_in(user: User) -> Client:
    """Return a signed-in client."""
    client = Client()
    client.force_login(user)
    return client


def test_fresh_sign_in_is_required_of_this_session(ada, rosa):
    pages, request = opened(rosa, ada, fresh_sign_in_seconds=600)
    session = pages.client.session
    session[SIGNED_IN_AT_KEY] = clock.now().timestamp() - 601
    session.save()
    sign_in(rosa)
    approve(pages, request, 422)
    assert (setback_on(pages), status_of(request)) == ("sign_in", "pending")
    session[SIGNED_IN_AT_KEY] = clock.now().timestamp() - 5
    session.save()
    approve(pages, request)
    assert status_of(request) == "approved"


def test_fresh_sign_in_is_required_over_rest_but_not_of_tokens(ada, rosa):
    _, request = opened(rosa, ada, fresh_sign_in_seconds=600)
    rest, body = Rest(None), {"verdict": "approve", "seen_digest": request.digest}
    rest.client = sign_in(rosa)
    session = rest.client.session
    session[SIGNED_IN_AT_KEY] = clock.now().timestamp() - 601
    session.save()
    answer = rest.post(f"approvals/{request.public_id}/reviews/", body)
    assert (answer.status_code, wrong_paths(answer)) == (422, ["sign_in"])
    assert status_of(request) == "pending"
    assert Rest(rosa).post(f"approvals/{request.public_id}/reviews/", body).status_code == 201


def test_signed_in_user_can_sign_in_again(ada, rosa):
    rosa.set_password("quite-a-secret-word")
    rosa.save()
    pages, request = opened(rosa, ada, fresh_sign_in_seconds=600)
    session = pages.client.session
    session[SIGNED_IN_AT_KEY] = 0.0
    session.save()
    pages.open(f"/approvals/?item={request.public_id}")
    again = f"/sign-in/?again=1&amp;next=/approvals/%3Fitem={request.public_id}"
    approve(pages, request, 422)
    assert set(re.findall(r'href="(/sign-in/[^"]*)"', pages.html)) == {again}
    pages.open(again.replace("&amp;", "&"))
    sent = {"username": "rosa", "password": "quite-a-secret-word", "next": f"/approvals/?item={request.public_id}"}
    pages.send("/sign-in/?again=1", sent)
    approve(pages, request)
    assert status_of(request) == "approved"


def test_session_without_sign_in_time_is_not_fresh(ada, rosa):
    pages, request = opened(rosa, ada, fresh_sign_in_seconds=600)
    session = pages.client.session
    del session[SIGNED_IN_AT_KEY]
    session.save()
    approve(pages, request, 422)
    assert (setback_on(pages), status_of(request)) == ("sign_in", "pending")


@pytest.mark.parametrize("terms", [{"typed_target": True}, {"min_review_seconds": 30}, {"fresh_sign_in_seconds": 1}])
def test_rejection_needs_no_confirmation(ada, rosa, terms):
    pages, request = opened(rosa, ada, **terms)
    pages.send(f"/approvals/{request.public_id}/decision/", {"verdict": "reject", "seen_digest": request.digest})
    assert status_of(request) == "rejected"
