"""Races with real threads and connections: one decision, one start, one chain."""

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, Review, Round
from approvals.requests.deadlines import expire_due
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide, undo_decision
from approvals.reviews.effects import apply_due
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from tests import counts
from tests.approvals.factories import approval, ask, binding_of, rejection
from tests.racing import at_once

pytestmark = [pytest.mark.slow, pytest.mark.db]
ROUNDS = counts.count(100, 10)


def start(call: Call) -> Round:
    """Consume the call's approval in a transaction, as the engine does."""
    with transaction.atomic():
        return consume(call, binding_of(call))


def test_concurrent_decisions_by_two_reviewers(transactional_db, ada, rosa, tomas):
    for _ in range(ROUNDS):
        request = ask(ada)
        results = at_once(
            partial(decide, request, by=rosa, decision=approval(request)),
            partial(decide, request, by=tomas, decision=rejection(request, "No.")),
        )
        winner = next(each for each in results if isinstance(each, ApprovalRequest))
        verdict = Review.objects.get(request=request).verdict
        assert winner.status == {"approve": "approved", "reject": "rejected"}[verdict]
        assert Call.objects.get(pk=request.call_id).status == {"approve": "ready", "reject": "failed"}[verdict]
        assert sum(isinstance(each, Conflict) for each in results) == 1
    assert verify().intact


def test_concurrent_decisions_by_one_person(transactional_db, ada, rosa):
    for _ in range(ROUNDS):
        request = ask(ada)
        at_once(*[partial(decide, request, by=rosa, decision=approval(request))] * 2)
        assert request.reviews.count() == 1


def test_concurrent_starts_of_one_approval(transactional_db, ada, rosa):
    for _ in range(ROUNDS):
        request = ask(ada)
        decide(request, by=rosa, decision=approval(request))
        results = at_once(*[partial(start, request.call)] * 4)
        assert sum(isinstance(each, Conflict) for each in results) == 3


def test_undo_races_with_the_ticker(transactional_db, ada, rosa):
    for _ in range(ROUNDS):
        request = ask(ada)
        decide(request, by=rosa, decision=approval(request, channel="page"))
        taken_back, applied = at_once(
            partial(undo_decision, request, by=rosa),
            partial(apply_due, clock.now() + timedelta(seconds=5)),
        )
        call = Call.objects.get(pk=request.call_id)
        assert (isinstance(taken_back, Conflict), call.status) == ((True, "ready") if applied else (False, "held"))


def test_decision_races_with_expiry(transactional_db, ada, rosa, settings):
    settings.TOOLGATE_RUN_WINDOW_SECONDS = 7 * 24 * 3600  # only the answer is late, not the start
    for _ in range(ROUNDS):
        request = ask(ada)
        answer, expired = at_once(
            partial(decide, request, by=rosa, decision=approval(request)),
            partial(expire_due, request.expires_at),
        )
        call = Call.objects.get(pk=request.call_id)
        assert (isinstance(answer, Conflict), call.status) == ((True, "failed") if expired else (False, "ready"))


def test_concurrent_audit_entries(transactional_db):
    at_once(
        *[
            lambda: [
                append_entry(AuditRecord(action="tool.changed", details={"at": str(clock.now())})) for _ in range(10)
            ]
        ]
        * 4
    )
    assert (verify().intact, verify().entries) == (True, 40)
