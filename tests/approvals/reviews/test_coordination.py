"""Coordination: claims, snoozes, delegations and comments."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import ApprovalRequest, AuditEntry, Comment, Delegation, Snooze
from approvals.policies.eligibility import delegator_of, may_decide
from approvals.requests.lifecycle import MAX_COMMENT
from approvals.requests.queries import request_for
from approvals.reviews.coordination import (
    CLAIM_SECONDS,
    claim,
    comment,
    delegate,
    release,
    snooze,
    unsnooze,
)
from approvals.reviews.decisions import decide
from approvals.web.review.actions import ReviewActions
from approvals.web.review.detail import detail_for
from catalog.access.roles import NotAllowed, user_display_name, user_for_token
from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Call, CallRequester
from tests.approvals.factories import approval, ask, hand, refusal_at, rejection
from tests.conftest import person


@pytest.fixture
def request_(ada) -> ApprovalRequest:
    """A request by Ada."""
    return ask(ada)


def again(user: User) -> User:
    """Return the user freshly loaded, as in the next HTTP request."""
    return User.objects.get(pk=user.pk)


def age(request: ApprovalRequest, **moments: timedelta) -> None:
    """Set times of a request relative to now."""
    ApprovalRequest.objects.filter(pk=request.pk).update(**{name: clock.now() + by for name, by in moments.items()})


def actions() -> list[str]:
    """Return the audited actions, oldest first."""
    return list(AuditEntry.objects.order_by("seq").values_list("action", flat=True))


def test_claim_is_a_visible_lease(request_, rosa, tomas):
    held = claim(request_, by=rosa)
    assert held.claimed_by == rosa
    assert held.claimed_until is not None
    assert timedelta(seconds=CLAIM_SECONDS - 60) < held.claimed_until - clock.now() <= timedelta(seconds=CLAIM_SECONDS)
    with pytest.raises(Conflict):
        claim(request_, by=tomas)
    assert claim(request_, by=rosa).claimed_by == rosa


def test_claim_does_not_prevent_decisions(request_, rosa, tomas):
    claim(request_, by=rosa)
    assert decide(request_, by=tomas, decision=approval(request_)).status == "approved"


def test_expired_claim_can_be_taken_over(request_, rosa, tomas):
    claim(request_, by=rosa)
    age(request_, claimed_until=timedelta(seconds=-1))
    assert claim(request_, by=tomas).claimed_by == tomas


def test_claim_ends_at_the_deadline(request_, rosa):
    age(request_, expires_at=timedelta(seconds=90))
    held = claim(request_, by=rosa)
    assert held.claimed_until == held.expires_at


def test_only_the_claimant_may_release(request_, rosa, tomas):
    with pytest.raises(Conflict):
        release(request_, by=rosa)
    claim(request_, by=rosa)
    with pytest.raises(Conflict):
        release(request_, by=tomas)
    assert request_for(rosa, request_.public_id).claimed_by == rosa
    assert release(request_, by=rosa).claimed_by is None
    assert claim(request_, by=tomas).claimed_by == tomas
    assert actions()[-3:] == ["approval.claimed", "approval.released", "approval.claimed"]


def test_requester_may_not_claim(request_, ada, vera):
    ada.groups.add(Group.objects.get(name="reviewer"))
    for somebody in (again(ada), vera):
        with pytest.raises(NotAllowed):
            claim(request_, by=somebody)


def test_closed_request_cannot_be_claimed_snoozed_or_delegated(ada, rosa, tomas):
    answered, late = ask(ada), ask(ada)
    decide(answered, by=rosa, decision=rejection(answered, "No."))
    age(late, expires_at=timedelta(seconds=-1))
    late.refresh_from_db()
    later = clock.now() + timedelta(minutes=5)
    for request in (answered, late):
        for act in (
            lambda held: claim(held, by=tomas),
            lambda held: delegate(held, by=rosa, to=tomas),
            lambda held: snooze(held, by=tomas, until=min(later, held.expires_at + timedelta(days=1))),
        ):
            with pytest.raises((Conflict, ParameterError)):
                act(request)
    assert not ApprovalRequest.objects.exclude(claimed_by=None).exists()
    assert not (Delegation.objects.exists() or Snooze.objects.exists())


def test_snooze_is_personal_and_expires(request_, rosa, tomas):
    until = clock.now() + timedelta(hours=1)
    snooze(request_, by=rosa, until=until)
    snooze(request_, by=rosa, until=until + timedelta(hours=1))
    assert Snooze.objects.get().until == until + timedelta(hours=1)
    seen = {name: request_for(user, request_.public_id) for name, user in (("rosa", rosa), ("tomas", tomas))}
    assert [getattr(each, "snoozed_until", None) is not None for each in seen.values()] == [True, False]
    unsnooze(request_, by=rosa)
    assert not Snooze.objects.exists()
    assert "approval.snoozed" not in actions()


@pytest.mark.parametrize("by", [timedelta(0), timedelta(days=2)])
def test_invalid_snooze_time_is_refused(request_, rosa, by):
    with refusal_at("until", "invalid"):
        snooze(request_, by=rosa, until=clock.now() + by)


def test_delegation(request_, rosa, tomas):
    claim(request_, by=rosa)
    given = delegate(request_, by=rosa, to=tomas)
    assert given.claimed_by is None
    entry = AuditEntry.objects.get(action="approval.delegated")
    assert (entry.actor, entry.details_json["to"]) == (rosa, "tomas")
    assert decide(given, by=tomas, decision=approval(given)).status == "approved"


def test_user_without_a_role_may_decide_as_delegate(request_, rosa, vera):
    assert may_decide(request_, vera) is not None
    hand(request_, rosa, vera)
    handed = request_for(vera, request_.public_id)
    assert (may_decide(handed, vera), delegator_of(handed, vera)) == (None, rosa)
    assert decide(handed, by=vera, decision=approval(handed)).status == "approved"


@pytest.mark.usefixtures("tomas", "admin")
def test_delegate_must_be_eligible(request_, ada, rosa, vera, ben):
    gone = person("gone", "reviewer")
    User.objects.filter(pk=gone.pk).update(is_active=False)
    asking = person("asking", "reviewer")
    CallRequester.objects.create(call=request_.call, user=asking)
    offered = ReviewActions(request_for(rosa, request_.public_id), rosa).candidates
    assert {each.username for each in offered} == {"tomas", "admin"}
    for somebody in (ada, vera, ben, again(gone), asking, person("guest")):
        with refusal_at("to", "invalid"):
            delegate(request_, by=rosa, to=somebody)
    assert not Delegation.objects.exists()


def test_page_lists_all_possible_deciders(request_, rosa, tomas, vera, admin):
    ApprovalRequest.objects.filter(pk=request_.pk).update(escalated_to="administrator")
    hand(request_, rosa, vera)
    hand(request_, tomas, person("guest"))
    tomas.groups.clear()
    shown = detail_for(request_for(vera, request_.public_id), vera).who_may
    assert shown == sorted(user_display_name(each) for each in (admin, rosa, vera))


def test_delegate_without_a_role_sees_the_request(request_, rosa):
    guest = person("guest")
    with pytest.raises(ApprovalRequest.DoesNotExist):
        request_for(guest, request_.public_id)
    hand(request_, rosa, guest)
    assert may_decide(request_for(guest, request_.public_id), guest) is None


def test_delegation_ends_with_the_right_of_its_giver(request_, rosa, vera):
    hand(request_, rosa, vera)
    rosa.groups.clear()
    assert may_decide(request_for(vera, request_.public_id), vera) is not None
    rosa.groups.add(Group.objects.get(name="reviewer"))
    assert may_decide(request_for(vera, request_.public_id), vera) is None
    delegate(request_, by=again(rosa), to=None)
    assert may_decide(request_for(vera, request_.public_id), vera) is not None
    with pytest.raises(Conflict):
        delegate(request_, by=rosa, to=rosa)


def test_new_delegation_replaces_the_old(request_, rosa, admin, tomas):
    delegate(request_, by=rosa, to=admin)
    delegate(request_, by=rosa, to=tomas)
    assert [(each.by, each.to) for each in Delegation.objects.all()] == [(rosa, tomas)]


def test_delegate_cannot_delegate(request_, rosa, tomas, vera):
    with pytest.raises(NotAllowed):
        delegate(request_, by=vera, to=tomas)
    hand(request_, rosa, vera)
    with pytest.raises(NotAllowed):
        delegate(request_for(vera, request_.public_id), by=vera, to=tomas)
    assert [(each.by, each.to) for each in Delegation.objects.all()] == [(rosa, vera)]


def test_comments_by_agents_are_marked(request_, ada, vera):
    token = ApiToken.objects.create(name="bot", user=ada, kind="agent", expires_at=clock.now())
    Call.objects.filter(pk=request_.call_id).update(token=token)
    first = comment(request_, by=vera, text="Why <b>now</b>?")
    second = comment(request_, by=user_for_token(token), text="Because.")
    assert [(each.text, each.is_agent) for each in (first, second)] == [("Why <b>now</b>?", False), ("Because.", True)]
    entry = AuditEntry.objects.filter(action="approval.commented").latest("seq")
    assert "Because" not in entry.details


NO_COMMENTS = {
    "": "required",
    "  \n": "required",
    "a" * (MAX_COMMENT + 1): "too_long",
    "a\x00b": "invalid",
    "a\ud800": "invalid",
}


def test_invalid_comments_are_refused(request_, vera):
    for text, code in NO_COMMENTS.items():
        with refusal_at("text", code):
            comment(request_, by=vera, text=text)
    assert not Comment.objects.exists()
