"""Decisions: effect, quorum, undo and validation."""

from datetime import datetime, timedelta

import pytest

from approvals.models import ApprovalRequest, AuditEntry, Review
from approvals.requests.queries import request_for
from approvals.reviews.decisions import decide, undo_decision
from approvals.reviews.effects import apply_due
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from tests.approvals.factories import approval, ask, make_tool, refusal_at, rejection, set_rule


def moment(value: datetime | None) -> datetime:
    """Return a time after checking that it is set."""
    assert value is not None
    return value


def call_of(request: ApprovalRequest) -> Call:
    """Return the current call of the request."""
    return Call.objects.get(approval=request)


def test_approval_releases_the_call(ada, rosa):
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request, "Looks right."))
    assert (decided.status, call_of(request).status) == ("approved", "ready")
    assert decided.effective_at == decided.decided_at == decided.reviews.get().at
    assert moment(decided.not_after) - moment(decided.effective_at) == timedelta(minutes=15)
    assert decided.applied_at == decided.decided_at


@pytest.mark.parametrize(
    ("comment", "message"), [("Wrong folder.", "Rejected by Rosa: Wrong folder."), ("", "Rejected by Rosa.")]
)
def test_rejection_fails_the_call_with_its_reason(ada, rosa, comment, message):
    request = ask(ada)
    decided = decide(request, by=rosa, decision=rejection(request, comment))
    call = call_of(request)
    assert (decided.status, call.status, call.error_kind) == ("rejected", "failed", "rejected")
    assert call.message == message
    assert call.response_json["error"] == call.message
    assert call.response_json["success"] is False
    assert call.finished_at is not None


@pytest.mark.parametrize("first", [approval, rejection])
def test_second_decision_is_refused(ada, rosa, tomas, first):
    request = ask(ada)
    status = decide(request, by=tomas, decision=first(request, "because")).status
    with pytest.raises(Conflict) as refused:
        decide(request, by=rosa, decision=approval(request))
    request.refresh_from_db()
    assert (request.status, Review.objects.get().person) == (status, tomas)
    assert "Tomas" in refused.value.message


def test_decision_needs_the_current_digest(ada, rosa):
    request, other = ask(ada), ask(ada)
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(other))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("pending", 0)
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


@pytest.mark.parametrize("terms", [{"reason_required": True}, {}], ids=["the rule", "an irreversible tool"])
def test_a_reason_may_be_required_for_a_rejection(ada, rosa, terms):
    set_rule(**terms)
    tool = make_tool(reversibility="restorable" if terms else "irreversible")
    request = ask(ada, tool)
    with refusal_at("comment", "required"):
        decide(request, by=rosa, decision=rejection(request, "  "))
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


def test_invalid_comment_is_refused(ada, rosa):
    request = ask(ada)
    for comment, code in (("x" * 4001, "too_long"), ("a\x00b", "invalid"), ("half \ud800 a pair", "invalid")):
        with refusal_at("comment", code):
            decide(request, by=rosa, decision=approval(request, comment))
    assert Review.objects.count() == 0


def test_longest_comment_is_accepted(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, "é" * 4000))
    assert Review.objects.get().comment == "é" * 4000


def test_quorum_of_two(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    assert decide(request, by=rosa, decision=approval(request)).status == "pending"
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    assert (call_of(request).status, request.reviews.count()) == ("held", 1)
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


def test_one_rejection_overrides_approvals(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert decide(request, by=tomas, decision=rejection(request)).status == "rejected"


def test_approval_after_a_rejection_is_refused(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=tomas, decision=rejection(request))
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    assert Review.objects.get().person == tomas


def test_a_page_decision_takes_effect_after_the_undo_window(ada, rosa):
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request, channel="page"))
    assert (decided.status, call_of(request).status) == ("approved", "held")
    assert moment(decided.effective_at) - moment(decided.decided_at) == timedelta(seconds=5)
    ends = moment(decided.effective_at)
    assert apply_due(ends - timedelta(microseconds=1)) == 0
    assert (apply_due(ends), apply_due(ends)) == (1, 0)
    assert call_of(request).status == "ready"


def test_undo_window_can_be_disabled(ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 0
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    assert call_of(request).status == "ready"


def test_page_rejection_is_applied_after_the_undo_window(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No.", channel="page"))
    apply_due(clock.now() + timedelta(seconds=6))
    call = call_of(request)
    assert (call.status, call.error_kind, "No." in call.message) == ("failed", "rejected", True)
    assert AuditEntry.objects.get(action="call.refused").actor == rosa


def test_undo_reopens_the_request(ada, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "Oops.", channel="page"))
    undone = undo_decision(request, by=rosa)
    assert (undone.status, undone.decided_at, undone.effective_at, undone.not_after) == ("pending", None, None, None)
    assert request.reviews.get().undone_at is not None
    assert apply_due(clock.now() + timedelta(minutes=2)) == 0
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


def test_only_the_reviewer_may_undo(ada, rosa, tomas):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    with pytest.raises(NotAllowed):
        undo_decision(request, by=tomas)
    request.refresh_from_db()
    assert request.status == "approved"


def test_undo_is_refused_after_its_window(ada, rosa):
    request, at_once, undecided = ask(ada), ask(ada), ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    ApprovalRequest.objects.filter(pk=request.pk).update(effective_at=clock.now())
    decide(at_once, by=rosa, decision=approval(at_once))
    for each in (request, at_once):
        with pytest.raises(Conflict):
            undo_decision(each, by=rosa)
        each.refresh_from_db()
        assert (each.status, each.reviews.get().undone_at) == ("approved", None)
    with pytest.raises(Conflict):
        undo_decision(undecided, by=rosa)


def test_undoing_one_of_two_approvals(ada, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    decide(request, by=tomas, decision=approval(request, channel="page"))
    undo_decision(request, by=tomas)
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


def test_every_decision_is_in_the_audit_log(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, "Checked."))
    kept = AuditEntry.objects.filter(object_ref=request.public_id).order_by("seq")
    opened, reviewed, decided, released = kept
    assert [opened.action, released.action] == ["approval.opened", "call.released"]
    assert (reviewed.actor, reviewed.digest, reviewed.details_json["reason"]) == (rosa, request.digest, "Checked.")
    assert decided.details_json["verdict"] == "approve"
    assert decided.details_json["call"] == request.call.public_id
    assert "hello" not in "".join(kept.values_list("details", flat=True))


def test_decided_request_shows_its_review(ada, rosa):
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request))
    assert request_for(rosa, request.public_id).effective_at == decided.effective_at


def test_decision_on_an_ended_call_has_no_effect(ada, rosa):
    """The plan was cancelled during the undo window, so applying the decision does nothing."""
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No.", channel="page"))
    Call.objects.update(status="cancelled", message="The plan was cancelled.")
    with pytest.raises(Conflict):
        undo_decision(request, by=rosa)
    assert apply_due(clock.now() + timedelta(seconds=6)) == 1
    assert call_of(request).message == "The plan was cancelled."
