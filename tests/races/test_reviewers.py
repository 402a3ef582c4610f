"""Races of two reviewers over one request: one decides, the other gets a conflict."""

import json
from functools import partial
from itertools import cycle, islice

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, AuditEntry, Review
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.errors import Conflict
from catalog.models import Call
from tests import counts
from tests.approvals.factories import ask
from tests.racing import rounds_at_once

pytestmark = [pytest.mark.db, pytest.mark.timeout(counts.seconds(1800))]

ROUNDS = counts.count(1000, 75)
HTTP_ROUNDS = counts.count(500, 150)
APPROVE, REJECT = ReviewVerdict.APPROVE, ReviewVerdict.REJECT


def answer(request: ApprovalRequest, by: User, verdict: ReviewVerdict) -> ApprovalRequest:
    """Answer a request by the service."""
    return decide(request, by=by, decision=Decision(verdict, request.digest, comment="Because."))


def test_one_decides(transactional_db, ada, rosa, tomas):
    """Approve against approve and approve against reject, alternately."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    others = islice(cycle((APPROVE, REJECT)), ROUNDS)
    races = [
        [partial(answer, request, rosa, APPROVE), partial(answer, request, tomas, other)]
        for request, other in zip(requests, others, strict=True)
    ]
    for request, results in zip(requests, rounds_at_once(races), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        review = Review.objects.get(request=request)
        assert review.person == (tomas if isinstance(results[0], Conflict) else rosa)
        decided, started = {APPROVE: ("approved", "ready"), REJECT: ("rejected", "failed")}[
            ReviewVerdict(review.verdict)
        ]
        assert (ApprovalRequest.objects.get(pk=request.pk).status, Call.objects.get(pk=request.call_id).status) == (
            decided,
            started,
        )
    assert AuditEntry.objects.filter(action="approval.decided").count() == ROUNDS
    assert verify().intact


def review(request: ApprovalRequest, person: User, verdict: str) -> int:
    """Answer a request over HTTP; return the status."""
    client = Client()
    client.force_login(person)
    body = json.dumps({"verdict": verdict, "seen_digest": request.digest, "comment": "Because."})
    url = f"/api/v1/approvals/{request.public_id}/reviews/"
    return client.post(url, body, content_type="application/json").status_code


@pytest.mark.slow
def test_one_decides_over_http(transactional_db, ada, rosa, tomas):
    """The other gets 409."""
    requests = [ask(ada) for _ in range(HTTP_ROUNDS)]
    races = [[partial(review, each, rosa, "approve"), partial(review, each, tomas, "reject")] for each in requests]
    assert [sorted(results) for results in rounds_at_once(races)] == [[201, 409]] * HTTP_ROUNDS
    assert Review.objects.count() == HTTP_ROUNDS
