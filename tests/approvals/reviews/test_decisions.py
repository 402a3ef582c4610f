"""One answer decides, once, by the right people, about exactly what they saw."""

from datetime import datetime, timedelta

import pytest

from approvals.models import ApprovalRequest, AuditEntry, Review
from approvals.requests.queries import request_for
from approvals.reviews.decisions import apply_due, decide, undo_decision
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from tests.approvals.factories import approval, ask, make_tool, refusal_at, rejection, set_rule


def moment(value: datetime | None) -> datetime:
    """Return a time that must be there."""
    assert value is not None
    return value


def call_of(request: ApprovalRequest) -> Call:
    """Return the request's call as it is now."""
    return Call.objects.get(approval=request)


def test_an_approval_releases_the_call_at_once(ada, rosa):
    """Over REST there is no undo window."""
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request, "Looks right."))
    assert (decided.status, call_of(request).status) == ("approved", "ready")
    assert decided.effective_at == decided.decided_at == decided.reviews.get().at
    assert moment(decided.not_after) - moment(decided.effective_at) == timedelta(minutes=15)
    assert decided.applied_at == decided.decided_at


@pytest.mark.parametrize(
    ("comment", "message"), [("Wrong folder.", "Rejected by Rosa: Wrong folder."), ("", "Rejected by Rosa.")]
)
def test_a_rejection_fails_the_call_with_its_reason(ada, rosa, comment, message):
    """The agent is told who and why, in the standard shape."""
    request = ask(ada)
    decided = decide(request, by=rosa, decision=rejection(request, comment))
    call = call_of(request)
    assert (decided.status, call.status, call.error_kind) == ("rejected", "failed", "rejected")
    assert call.message == message
    assert call.response_json["error"] == call.message
    assert call.response_json["success"] is False
    assert call.finished_at is not None


@pytest.mark.parametrize("first", [approval, rejection])
def test_second_answer_is_refused_and_not_recorded(ada, rosa, tomas, first):
    request = ask(ada)
    status = decide(request, by=tomas, decision=first(request, "because")).status
    with pytest.raises(Conflict) as refused:
        decide(request, by=rosa, decision=approval(request))
    request.refresh_from_db()
    assert (request.status, Review.objects.get().person) == (status, tomas)
    assert "Tomas" in refused.value.message


def test_what_was_seen_must_be_what_is_asked(ada, rosa):
    """A review of an older round, or of another request, counts nothing."""
    request, other = ask(ada), ask(ada)
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(other))
    request.refresh_from_db()
    assert (request.status, request.reviews.count()) == ("pending", 0)
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


@pytest.mark.parametrize("terms", [{"reason_required": True}, {}], ids=["the rule", "an irreversible tool"])
def test_a_reason_may_be_required_for_a_rejection(ada, rosa, terms):
    """By the rule, or because nothing takes the call back; never for an approval."""
    set_rule(**terms)
    tool = make_tool(reversibility="restorable" if terms else "irreversible")
    request = ask(ada, tool)
    with refusal_at("comment", "required"):
        decide(request, by=rosa, decision=rejection(request, "  "))
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


def test_a_comment_that_cannot_be_kept_is_refused(ada, rosa):
    """By name, and nothing is stored."""
    request = ask(ada)
    for comment, code in (("x" * 4001, "too_long"), ("a\x00b", "invalid"), ("half \ud800 a pair", "invalid")):
        with refusal_at("comment", code):
            decide(request, by=rosa, decision=approval(request, comment))
    assert Review.objects.count() == 0


def test_the_longest_comment_is_kept(ada, rosa):
    """Whole."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, "é" * 4000))
    assert Review.objects.get().comment == "é" * 4000


def test_two_people_where_the_rule_asks_for_two(ada, rosa, tomas):
    """The first answer waits for the second; nobody answers twice."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    assert decide(request, by=rosa, decision=approval(request)).status == "pending"
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    assert (call_of(request).status, request.reviews.count()) == ("held", 1)
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


def test_one_rejection_beats_every_approval(ada, rosa, tomas):
    """Deny beats approve."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    assert decide(request, by=tomas, decision=rejection(request)).status == "rejected"


def test_one_of_several_approvals_is_refused_after_a_rejection(ada, rosa, tomas):
    """Also one that would not have been enough by itself."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=tomas, decision=rejection(request))
    with pytest.raises(Conflict):
        decide(request, by=rosa, decision=approval(request))
    assert Review.objects.get().person == tomas


def test_a_page_decision_takes_effect_after_the_undo_window(ada, rosa):
    """Until then the call stays held; afterwards the ticker applies it, once."""
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request, channel="page"))
    assert (decided.status, call_of(request).status) == ("approved", "held")
    assert moment(decided.effective_at) - moment(decided.decided_at) == timedelta(seconds=5)
    ends = moment(decided.effective_at)
    assert apply_due(ends - timedelta(microseconds=1)) == 0
    assert (apply_due(ends), apply_due(ends)) == (1, 0)
    assert call_of(request).status == "ready"


def test_no_undo_window_when_it_is_switched_off(ada, rosa, settings):
    """TOOLGATE_UNDO_SECONDS=0."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    assert call_of(request).status == "ready"


def test_a_rejection_on_a_page_is_applied_too(ada, rosa):
    """With its reason, by who gave it."""
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No.", channel="page"))
    apply_due(clock.now() + timedelta(seconds=6))
    call = call_of(request)
    assert (call.status, call.error_kind, "No." in call.message) == ("failed", "rejected", True)
    assert AuditEntry.objects.get(action="call.refused").actor == rosa


def test_undo_makes_it_wait_again(ada, rosa, tomas, settings):
    """The review is kept and no longer counts; its author, too, may answer again."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "Oops.", channel="page"))
    undone = undo_decision(request, by=rosa)
    assert (undone.status, undone.decided_at, undone.effective_at, undone.not_after) == ("pending", None, None, None)
    assert request.reviews.get().undone_at is not None
    assert apply_due(clock.now() + timedelta(minutes=2)) == 0
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


def test_only_the_author_undoes(ada, rosa, tomas):
    """Tomas may not take Rosa's answer back."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    with pytest.raises(NotAllowed):
        undo_decision(request, by=tomas)
    request.refresh_from_db()
    assert request.status == "approved"


def test_undo_ends_with_its_window(ada, rosa):
    """When it is over, and when there never was one."""
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
    """The first still counts, so one more is enough."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    decide(request, by=tomas, decision=approval(request, channel="page"))
    undo_decision(request, by=tomas)
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


def test_every_decision_is_in_the_audit_log(ada, rosa):
    """Who, what, on which digest, and why."""
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, "Checked."))
    kept = AuditEntry.objects.filter(object_ref=request.public_id).order_by("seq")
    opened, reviewed, decided, released = kept
    assert [opened.action, released.action] == ["approval.opened", "call.released"]
    assert (reviewed.actor, reviewed.digest, reviewed.details_json["reason"]) == (rosa, request.digest, "Checked.")
    assert decided.details_json["verdict"] == "approve"
    assert decided.details_json["call"] == request.call.public_id
    assert "hello" not in "".join(kept.values_list("details", flat=True))


def test_the_decided_request_is_seen_with_its_review(ada, rosa):
    """What comes back is what the next reader sees."""
    request = ask(ada)
    decided = decide(request, by=rosa, decision=approval(request))
    assert request_for(rosa, request.public_id).effective_at == decided.effective_at


def test_a_call_that_ended_meanwhile_is_not_asked_about_again(ada, rosa):
    """Its plan was cancelled during the undo window; the decision has nothing left to do, quietly."""
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No.", channel="page"))
    Call.objects.update(status="cancelled", message="The plan was cancelled.")
    with pytest.raises(Conflict):
        undo_decision(request, by=rosa)
    assert apply_due(clock.now() + timedelta(seconds=6)) == 1
    assert call_of(request).message == "The plan was cancelled."
