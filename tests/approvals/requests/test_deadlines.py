"""Time never approves: what nobody answered, or nobody started, expires with a sentence for its asker."""

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


def test_a_request_expires_when_nobody_answers(ada):
    """Its call fails and says so; once."""
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
def test_the_rule_says_how_long(ada, seconds, said):
    """In the largest whole unit."""
    set_rule(expires_seconds=seconds)
    request = ask(ada)
    assert expire_if_due(request, clock.now() + timedelta(seconds=seconds))
    assert said in Call.objects.get().message


def test_an_approval_expires_when_nothing_starts_it(ada, rosa):
    """After its run window."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert expire_due(clock.now() + timedelta(minutes=15)) == 1
    call = Call.objects.get()
    assert (call.status, call.error_kind) == ("failed", "expired")
    assert call.message.startswith("Approved, but not started within 15 min:")  # the model reads it
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {"approval.expired", "call.refused"}


@pytest.mark.parametrize("answer", [approval, rejection])
def test_no_answer_is_taken_after_the_time(ada, rosa, answer):
    """Asking to decide is what finds out; the expiry stays."""
    request = ask(ada)
    ApprovalRequest.objects.update(expires_at=clock.now())
    request.refresh_from_db()
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=answer(request))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("expired", 0)


def test_an_answer_does_not_outlast_the_time_that_ends_while_it_is_recorded(ada, rosa, monkeypatch):
    request = ask(ada)
    before = iter([request.expires_at - timedelta(seconds=1)])
    monkeypatch.setattr(clock, "now", lambda: next(before, request.expires_at))
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("pending", 0)


def test_a_stale_look_at_a_request_does_not_expire_it(ada):
    """The row decides, not what was read before."""
    request = ask(ada)
    ApprovalRequest.objects.update(expires_at=clock.now() + 2 * DAY)
    assert not expire_if_due(request, clock.now() + DAY)


def test_what_is_next_due(ada, rosa):
    """An effect, an expiry, the end of a window; not what is past already."""
    now = clock.now()
    assert next_due(now) is None
    request = ask(ada)
    assert next_due(now) == request.expires_at
    decided = decide(request, by=rosa, decision=approval(request, channel="page"))
    assert next_due(now) == decided.effective_at
    assert next_due(now + 2 * DAY) is None
    ApprovalRequest.objects.update(applied_at=now)
    assert next_due(now) == decided.not_after


def test_a_withdrawn_request_cancels_its_call(ada, rosa):
    """Whether it was answered or not; it cannot be answered afterwards."""
    pending, approved = ask(ada), ask(ada)
    decide(approved, by=rosa, decision=approval(approved))
    for request in (pending, approved):
        withdraw(request, by=ada, reason="No longer needed.")
        assert Call.objects.get(pk=request.call_id).status == "cancelled"
    with pytest.raises(Conflict):
        decide(pending, by=rosa, decision=approval(pending))
    with pytest.raises(Conflict):
        withdraw(pending, by=ada, reason="Twice.")


def test_an_invalidated_request_cancels_its_call(ada, rosa):
    """With the reason."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    invalidate(request, reason="The definition changed.")
    call = Call.objects.get()
    assert (call.status, call.message) == ("cancelled", "The definition changed.")
    assert AuditEntry.objects.get(action="approval.invalidated").details_json["reason"] == call.message


def test_time_passes_over_a_call_that_ended_otherwise(ada):
    """A cancelled plan may have ended the call first."""
    request = ask(ada)
    Call.objects.update(status="cancelled", message="The plan was cancelled.")
    assert expire_if_due(request, clock.now() + DAY)
    assert Call.objects.get().message == "The plan was cancelled."


@pytest.mark.parametrize("decided", [True, False])
def test_whoever_reads_a_request_sees_that_its_time_is_over(ada, rosa, decided):
    """Over REST, on its page and in the lists; no clock ticks here."""
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
