"""Queries of requests: access, status sentences and query counts."""

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.requests.lifecycle import supersede, withdraw
from approvals.requests.queries import (
    current_round,
    pending_for,
    request_for,
    requests_for,
    status_sentence,
    waiting_count,
    with_related,
)
from approvals.reviews.decisions import decide
from catalog.access.roles import can_see_all, has_role, roles_of, user_display_name, user_for_token
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import ApiToken, Call, CallRequester
from tests.approvals.factories import approval, ask
from tests.conftest import person


@pytest.fixture
def nobody(db) -> User:
    """A user without a role."""
    return person("nobody")


@pytest.fixture
def cast(ada, rosa, vera, admin) -> list[User]:
    """One user per role."""
    return [ada, rosa, vera, admin]


def test_users_with_a_role_see_all_requests(cast, ben):
    request = ask(ben)
    for viewer in cast:
        assert request_for(viewer, request.public_id) == request
        assert waiting_count(viewer) == 1


def test_users_without_a_role_see_their_own_requests(ada, nobody):
    other, own, shared = ask(ada), ask(nobody), ask(ada)
    CallRequester.objects.create(call=shared.call, user=nobody)
    assert set(requests_for(nobody)) == {own, shared}
    with pytest.raises(ApprovalRequest.DoesNotExist):
        request_for(nobody, other.public_id)


def test_agent_token_sees_its_own_requests(ada, rosa):
    ask(ada)
    own = ask(rosa)
    fields = {"name": "bot", "user": rosa, "kind": "agent", "expires_at": clock.now()}
    token = ApiToken.objects.create(**fields)
    Call.objects.filter(pk=own.call_id).update(token=token)
    assert set(requests_for(rosa)) > {own}
    assert set(requests_for(user_for_token(token))) == {own}


def test_pending_requests_are_unanswered(ada, rosa):
    first, second, third = ask(ada), ask(ada), ask(ada)
    decide(second, by=rosa, decision=approval(second))
    assert set(pending_for(rosa)) == {first, third}
    assert waiting_count(rosa) == 2


@pytest.mark.parametrize("count", [1, 5])
def test_page_needs_a_fixed_number_of_queries(ada, rosa, count, django_assert_num_queries):
    for _ in range(count):
        ask(ada)
    assert can_see_all(rosa)
    with django_assert_num_queries(6):
        for request in with_related(pending_for(rosa)):
            shown = (request.call.requested_by, request.tool_version.tool.name, request.policy_revision.sentence)
            assert all(shown)
            assert current_round(request).preview_json
            assert status_sentence(request)


def test_preview_is_stored_in_full(ada):
    preview = current_round(ask(ada)).preview_json
    assert preview is not None
    assert (preview["summary"], preview["kind"], preview["after"]) == ("Write note.txt", "diff", "hello")
    without = current_round(ask(ada, preview=None))
    assert (without.preview_json, without.state_token) == (None, "")


@pytest.mark.usefixtures("long_now")
def test_status_sentences(ada, rosa):
    request = ask(ada)
    assert "waiting for an answer" in status_sentence(request)
    assert status_sentence(decide(request, by=rosa, decision=approval(request))) == "Rosa approved this just now."
    for status, words in (("expired", "expired"), ("withdrawn", "withdrawn"), ("invalidated", "no longer valid")):
        request.status = status
        assert words in status_sentence(request)


@pytest.mark.usefixtures("long_now")
def test_late_decisions_and_withdrawals_report_the_status(ada, rosa):
    request = ask(ada)
    withdraw(request, by=ada, reason="not needed")
    for late in (
        lambda: decide(request, by=rosa, decision=approval(request)),
        lambda: withdraw(request, by=ada, reason=""),
    ):
        with pytest.raises(Conflict) as refused:
            late()
        request.refresh_from_db()
        assert status_sentence(request) in refused.value.message
    assert "Ada: not needed" in status_sentence(request)


def test_superseded_request_links_to_its_replacement(ada):
    old, new = ask(ada), ask(ada)
    supersede(old.call, new)
    old.refresh_from_db()
    assert (old.superseded_by, new.supersedes) == (new, old)


def test_roles(ada, nobody, admin):
    assert roles_of(ada) == {"operator"}
    assert (has_role(ada, "operator", "reviewer"), has_role(ada, "reviewer")) == (True, False)
    assert (can_see_all(ada), can_see_all(nobody)) == (True, False)
    nobody.is_superuser = True
    assert roles_of(nobody) == {"administrator"}
    admin.is_active = False
    assert roles_of(admin) == frozenset()
    assert (user_display_name(ada), user_display_name(User(username="x"))) == ("Ada", "x")
