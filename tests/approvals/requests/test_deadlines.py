"""Deadlines: unanswered requests and unused approvals expire."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.deadlines import expire_due, expire_if_due, next_due
from approvals.requests.lifecycle import invalidate, withdraw
from approvals.requests.queries import waiting_count
from approvals.reviews.decisions import decide
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from tests.approvals.factories import approval, ask, rejection, set_rule
from tests.pages import Pages
from tests.rest import Rest

DAY = timedelta(hours=24)

pytestmark = [pytest.mark.django_db, pytest.mark.db]


def test_unanswered_request_expires(ada):
    request = ask(ada)
    now = clock.now()
    assert expire_due(now + DAY - timedelta(seconds=1)) == 0
    assert (expire_due(now + DAY), expire_due(now + DAY)) == (1, 0)
    request.refresh_from_db()
    call = Call.objects.get(pk=request.call_id)
    assert (request.status, call.status, call.error_kind) == ("expired", "failed", "expired")
    assert call.message == "Nobody answered within 24 h: the request has expired and the call was not run."
    assert call.response_json["error"] == call.message


@pytest.mark.parametrize(("seconds", "said"), [(90, "90 s"), (900, "15 min"), (5400, "90 min")])
def test_rule_defines_the_deadline(ada, seconds, said):
    set_rule(expires_seconds=seconds)
    request = ask(ada)
    assert expire_if_due(request, clock.now() + timedelta(seconds=seconds))
    assert said in Call.objects.get().message


def test_unused_approval_expires(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert expire_due(clock.now() + timedelta(minutes=15)) == 1
    call = Call.objects.get()
    assert (call.status, call.error_kind) == ("failed", "expired")
    assert call.message.startswith("Approved, but not started within 15 min:")  # the model reads it
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {"approval.expired", "call.refused"}


@pytest.mark.parametrize("answer", [approval, rejection])
def test_late_decision_is_refused(ada, rosa, answer):
    request = ask(ada)
    ApprovalRequest.objects.update(expires_at=clock.now())
    request.refresh_from_db()
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=answer(request))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("expired", 0)


def test_decision_is_refused_if_the_deadline_passes_meanwhile(ada, rosa, monkeypatch):
    request = ask(ada)
    before = iter([request.expires_at - timedelta(seconds=1)])
    monkeypatch.setattr(clock, "now", lambda: next(before, request.expires_at))
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("pending", 0)


def test_stale_instance_does_not_expire_an_extended_request(ada):
    request = ask(ada)
    ApprovalRequest.objects.update(expires_at=clock.now() + 2 * DAY)
    assert not expire_if_due(request, clock.now() + DAY)


def test_next_due_time(ada, rosa):
    now = clock.now()
    assert next_due(now) is None
    request = ask(ada)
    assert next_due(now) == request.expires_at
    decided = decide(request, by=rosa, decision=approval(request, channel="page"))
    assert next_due(now) == decided.effective_at
    assert next_due(now + 2 * DAY) is None
    ApprovalRequest.objects.update(applied_at=now)
    assert next_due(now) == decided.not_after


def test_withdrawal_cancels_the_call(ada, rosa):
    pending, approved = ask(ada), ask(ada)
    decide(approved, by=rosa, decision=approval(approved))
    for request in (pending, approved):
        withdraw(request, by=ada, reason="No longer needed.")
        assert Call.objects.get(pk=request.call_id).status == "cancelled"
    with pytest.raises(Conflict):
        decide(pending, by=rosa, decision=approval(pending))
    with pytest.raises(Conflict):
        withdraw(pending, by=ada, reason="Twice.")


def test_invalidation_cancels_the_call(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    invalidate(request, reason="The definition changed.")
    call = Call.objects.get()
    assert (call.status, call.message) == ("cancelled", "The definition changed.")
    assert AuditEntry.objects.get(action="approval.invalidated").details_json["reason"] == call.message


def test_expiry_leaves_an_ended_call_unchanged(ada):
    request = ask(ada)
    Call.objects.update(status="cancelled", message="The plan was cancelled.")
    assert expire_if_due(request, clock.now() + DAY)
    assert Call.objects.get().message == "The plan was cancelled."


@pytest.mark.parametrize("decided", [True, False])
def test_overdue_request_expires_when_it_is_read(ada, rosa, decided):
    request = ask(ada)
    if decided:
        decide(request, by=rosa, decision=approval(request))
    past = clock.now() - timedelta(seconds=1)
    ApprovalRequest.objects.update(**{"not_after" if decided else "expires_at": past})
    page, rest = Pages(rosa), Rest(rosa)
    assert rest.get("approvals/?status=pending").json()["results"] == []
    page.open(f"/approvals/?item={request.public_id}")
    assert f'id="decide-{request.public_id}"' not in page.html
    assert rest.get(f"approvals/{request.public_id}/").json()["status"] == "expired"
    assert (Call.objects.get().status, waiting_count(rosa)) == ("failed", 0)
