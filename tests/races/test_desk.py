"""Races over claims, delegations and snoozes: one claim, one delegate, no answer by a right that was taken back."""

from functools import partial

import pytest
from django.contrib.auth.models import User

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, AuditEntry, Delegation, Review, Snooze
from approvals.requests.lifecycle import withdraw
from approvals.reviews.coordination import claim, delegate, release, snooze
from approvals.reviews.decisions import decide
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict
from tests import counts
from tests.approvals.factories import approval, ask, hand
from tests.races.acts import audited
from tests.racing import Act, rounds_at_once

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]

ROUNDS = counts.count(500, 75)
FEWER_ROUNDS = counts.count(100, 50)


def again(user: User) -> User:
    """Return a new instance of the user, as a second request loads it."""
    return User.objects.get(pk=user.pk)


def assert_claimed_first_or_never(request: ApprovalRequest, result: object) -> None:
    """Check that a claim came before everything else on the request, or was refused and left no trace."""
    assert isinstance(result, ApprovalRequest | Conflict)
    claims = [index for index, action in enumerate(audited(request)) if action == "approval.claimed"]
    assert claims == ([0] if isinstance(result, ApprovalRequest) else [])


def test_one_claims(transactional_db, ada, rosa, tomas):
    """The other gets a conflict."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    races = [[partial(claim, request, by=rosa), partial(claim, request, by=tomas)] for request in requests]
    for request, results in zip(requests, rounds_at_once(races), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        winner = tomas if isinstance(results[0], Conflict) else rosa
        assert ApprovalRequest.objects.get(pk=request.pk).claimed_by == winner
    assert AuditEntry.objects.filter(action="approval.claimed").count() == ROUNDS
    assert verify().intact


def test_a_claim_against_a_decision(transactional_db, ada, rosa, tomas):
    """The decision always stands, and nothing is claimed after it."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    races = [
        [partial(claim, request, by=rosa), partial(decide, request, by=tomas, decision=approval(request))]
        for request in requests
    ]
    for request, (claimed, decided) in zip(requests, rounds_at_once(races), strict=True):
        assert isinstance(decided, ApprovalRequest)
        assert decided.status == "approved"
        assert_claimed_first_or_never(request, claimed)


def test_a_release_against_another_claim(transactional_db, ada, rosa, tomas):
    """A release gives back the claim of the one who releases, never another's."""
    requests = [claim(ask(ada), by=rosa) for _ in range(ROUNDS)]
    races = [[partial(release, request, by=rosa), partial(claim, request, by=tomas)] for request in requests]
    for request, (released, claimed) in zip(requests, rounds_at_once(races), strict=True):
        assert isinstance(released, ApprovalRequest)
        holder = ApprovalRequest.objects.get(pk=request.pk).claimed_by
        assert holder == (tomas if isinstance(claimed, ApprovalRequest) else None)


def test_a_delegate_answers_while_it_is_taken_back(transactional_db, ada, rosa, vera):
    """Either the delegate answers on behalf of Rosa, or the answer comes too late and is refused."""
    requests = [hand(ask(ada), rosa, vera) for _ in range(ROUNDS)]
    races = [
        [partial(delegate, request, by=rosa, to=None), partial(decide, request, by=vera, decision=approval(request))]
        for request in requests
    ]
    for request, (taken_back, answered) in zip(requests, rounds_at_once(races), strict=True):
        review = Review.objects.filter(request=request).first()
        if isinstance(answered, ApprovalRequest):
            assert review is not None
            assert (review.person, review.on_behalf_of, answered.status) == (vera, rosa, "approved")
            assert isinstance(taken_back, Conflict)
        else:
            assert isinstance(answered, NotAllowed)
            assert (review, Delegation.objects.filter(request=request).exists()) == (None, False)


def test_the_same_person_in_two_tabs(transactional_db, ada, rosa, tomas, admin):
    """One delegate and one snooze, though both tabs set them."""
    requests = [ask(ada) for _ in range(FEWER_ROUNDS)]
    until = clock.now() + (requests[0].expires_at - requests[0].opened_at) / 2
    races = [
        [
            partial(delegate, request, by=rosa, to=tomas),
            partial(delegate, request, by=again(rosa), to=admin),
            partial(snooze, request, by=rosa, until=until),
            partial(snooze, request, by=again(rosa), until=until),
        ]
        for request in requests
    ]
    for request, results in zip(requests, rounds_at_once(races), strict=True):
        assert not [each for each in results if isinstance(each, Exception)]
        assert Delegation.objects.get(request=request).by == rosa
        assert Snooze.objects.filter(request=request).count() == 1


def test_a_claim_against_a_withdrawal(transactional_db, ada, rosa):
    """Nothing is claimed after the withdrawal."""
    requests = [ask(ada) for _ in range(FEWER_ROUNDS)]
    races: list[list[Act]] = [
        [partial(claim, request, by=rosa), partial(withdraw, request, by=ada, reason="")] for request in requests
    ]
    for request, (claimed, _) in zip(requests, rounds_at_once(races), strict=True):
        assert ApprovalRequest.objects.get(pk=request.pk).status == "withdrawn"
        assert_claimed_first_or_never(request, claimed)
