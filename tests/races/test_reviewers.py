"""Two people at once: one decision, and the other is told so."""

import json
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.decisions import Decision, decide
from approvals.models import ApprovalRequest, AuditEntry, Review
from approvals.states import Verdict
from approvals.verification import verify
from catalog.errors import Conflict
from catalog.models import Call
from tests import counts
from tests.approvals.builders import ask
from tests.racing import rounds_at_once

pytestmark = pytest.mark.timeout(counts.seconds(1800))

ROUNDS = counts.count(1000, 25)
HTTP_ROUNDS = counts.count(500, 50)
APPROVE, REJECT = Verdict.APPROVE, Verdict.REJECT


def answer(request: ApprovalRequest, by: User, verdict: Verdict) -> ApprovalRequest:
    """Let someone answer over REST's service."""
    return decide(request, by=by, decision=Decision(verdict, request.digest, "Because."))


def test_one_decides(transactional_db, ada, rosa, tomas):
    """Approve against approve, and approve against reject, in turns."""
    requests = [ask(ada) for _ in range(ROUNDS)]
    verdicts = [(APPROVE, APPROVE), (APPROVE, REJECT)] * (ROUNDS // 2)
    races = [
        [partial(answer, request, rosa, first), partial(answer, request, tomas, second)]
        for request, (first, second) in zip(requests, verdicts, strict=True)
    ]
    for request, results in zip(requests, rounds_at_once(races), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        loser = next(each for each in results if isinstance(each, Conflict))
        assert "Your answer was not recorded." in str(loser)
        review = Review.objects.get(request=request)
        decided, started = {APPROVE: ("approved", "ready"), REJECT: ("rejected", "failed")}[Verdict(review.verdict)]
        assert (ApprovalRequest.objects.get(pk=request.pk).status, Call.objects.get(pk=request.call_id).status) == (
            decided,
            started,
        )
    assert AuditEntry.objects.filter(action="approval.decided").count() == ROUNDS
    assert verify().intact


def review(request: ApprovalRequest, person: User, verdict: str) -> int:
    """Let someone answer over HTTP; return the status."""
    client = Client()
    client.force_login(person)
    body = json.dumps({"verdict": verdict, "seen_digest": request.digest, "comment": "Because."})
    url = f"/api/v1/approvals/{request.public_id}/reviews/"
    return client.post(url, body, content_type="application/json").status_code


def test_one_decides_over_http(transactional_db, ada, rosa, tomas):
    """The other gets 409."""
    requests = [ask(ada) for _ in range(HTTP_ROUNDS)]
    races = [[partial(review, each, rosa, "approve"), partial(review, each, tomas, "reject")] for each in requests]
    assert [sorted(results) for results in rounds_at_once(races)] == [[201, 409]] * HTTP_ROUNDS
    assert Review.objects.count() == HTTP_ROUNDS
