"""The desk when several reach for the same thing at once: one claim, one delegate; no answer through a lost right."""

from functools import partial

import pytest
from django.contrib.auth.models import User

from approvals.decisions import decide
from approvals.desk import claim, delegate, release, snooze
from approvals.models import ApprovalRequest, AuditEntry, Delegation, Review, Snooze
from approvals.requests import withdraw
from approvals.verification import verify
from catalog import clock
from catalog.access import NotAllowed
from catalog.errors import Conflict
from tests import counts
from tests.approvals.builders import approval, ask
from tests.racing import Act, rounds_at_once

pytestmark = pytest.mark.timeout(counts.seconds(1800))

ROUNDS = counts.count(500, 25)


def again(user: User) -> User:
    """Return the person as another request of theirs sees them."""
    return User.objects.get(pk=user.pk)


def test_one_claims(transactional_db, ada, rosa, tomas):
    """The other is told who has it."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    races = [[partial(claim, request, by=rosa), partial(claim, request, by=tomas)] for request in requests]
    for request, results in zip(requests, rounds_at_once(races), strict=True):
        winner = next(each for each in results if isinstance(each, ApprovalRequest))
        loser = next(each for each in results if isinstance(each, Conflict))
        assert winner.claimed_by is not None
        assert f"{winner.claimed_by.first_name} has claimed this" in str(loser)
        assert ApprovalRequest.objects.get(pk=request.pk).claimed_by == winner.claimed_by
    assert AuditEntry.objects.filter(action="approval.claimed").count() == ROUNDS
    assert verify().intact


def test_a_claim_against_a_decision(transactional_db, ada, rosa, tomas):
    """Whoever is first: the decision stands, and nothing is claimed after it."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    races = [
        [partial(claim, request, by=rosa), partial(decide, request, by=tomas, decision=approval(request))]
        for request in requests
    ]
    for claimed, decided in rounds_at_once(races):
        assert isinstance(decided, ApprovalRequest)
        assert decided.status == "approved"
        assert isinstance(claimed, ApprovalRequest) or "Tomas approved this" in str(claimed)


def test_a_release_against_another_claim(transactional_db, ada, rosa, tomas):
    """Nobody's claim is given back by somebody else."""
    requests = [claim(ask(ada), by=rosa) for _ in range(ROUNDS)]
    races = [[partial(release, request, by=rosa), partial(claim, request, by=tomas)] for request in requests]
    for request, (released, claimed) in zip(requests, rounds_at_once(races), strict=True):
        assert isinstance(released, ApprovalRequest)
        holder = ApprovalRequest.objects.get(pk=request.pk).claimed_by
        assert holder == (tomas if isinstance(claimed, ApprovalRequest) else None)


def test_a_delegate_answers_while_it_is_taken_back(transactional_db, ada, rosa, vera):
    """Either the answer counts in rosa's place, or it was too late; never by nobody's right."""
    requests = [delegate(ask(ada), by=rosa, to=vera) for _ in range(ROUNDS)]
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


def test_the_same_person_in_two_tabs(transactional_db, ada, rosa, vera, ben):
    """One delegate and one snooze, whatever was pressed twice."""
    requests = [ask(ada) for _ in range(ROUNDS // 5 or 1)]
    until = clock.now() + (requests[0].expires_at - requests[0].opened_at) / 2
    races = [
        [
            partial(delegate, request, by=rosa, to=vera),
            partial(delegate, request, by=again(rosa), to=ben),
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
    """Nothing is claimed that is no longer asked."""
    requests = [ask(ada) for _ in range(ROUNDS // 5 or 1)]
    races: list[list[Act]] = [
        [partial(claim, request, by=rosa), partial(withdraw, request, by=ada, reason="")] for request in requests
    ]
    for request, (claimed, _) in zip(requests, rounds_at_once(races), strict=True):
        assert ApprovalRequest.objects.get(pk=request.pk).status == "withdrawn"
        assert isinstance(claimed, ApprovalRequest) or "withdrawn" in str(claimed)
