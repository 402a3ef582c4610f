"""Remembered rejections: a rejected call is refused again in the same plan."""

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.deadlines import expire_due
from approvals.requests.held_calls import find_previous_rejection
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core import clock
from plans.actions import slices
from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import reject, send_back
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step, step_of, work_off
from tests.invariants import assert_invariants
from tests.plans.secret_tools import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan that requests the same call twice, the second time after the first was skipped, and a different call."""
    again = act(2, "x", "dangerous", dependencies=[1])
    return work_off(make_plan(ada, act(1, "x", "dangerous"), again, act(3, "z", "dangerous")))


def test_repeated_call_is_refused_with_the_first_reason(plan, stage, rosa):
    first = request_of(plan)
    reject(plan, rosa, effect="skip", comment="Never on a Friday.")
    work_off(plan)
    call = call_of(plan, 2)
    assert (call.status, call.error_kind, stage.played) == ("failed", "refused_before", [])
    assert all(fact in call.message for fact in ("Rosa", first.public_id, "Never on a Friday."))
    assert call.response_json["error"] == call.message == step_of(plan, 2).error
    assert ApprovalRequest.objects.filter(plan_ref=plan.public_id).count() == 2
    entry = AuditEntry.objects.get(action="call.refused", details__contains="refused_before")
    assert (entry.object_ref, entry.details_json["call"]) == (first.public_id, call.public_id)
    assert "2 step.failed" in events_of(plan)
    assert_invariants()


@pytest.mark.parametrize("first, again", [({}, {"value": None}), ({"value": None}, {})])
def test_explicit_default_counts_as_the_same_call(stage, ada, rosa, first, again):
    steps = [step(1, "dangerous", parameters=first), step(2, "dangerous", parameters=again, dependencies=[1])]
    plan = work_off(make_plan(ada, *steps))
    reject(plan, rosa, effect="skip", comment="Not this.")
    work_off(plan)
    assert call_of(plan, 2).error_kind == "refused_before"


def test_secret_is_recognised_after_a_key_rotation(stage, keepers, ada, rosa, settings):
    """The HMAC of a secret changes with the key."""
    same, other = {"host": "db1", "password": PASSWORD}, {"host": "db1", "password": f"{PASSWORD}-2"}
    plan = work_off(make_plan(ada, step(1, "wipe", parameters=same), act(2, "z", "dangerous")))
    reject(plan, rosa, effect="skip", comment="Not this one.")
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.TOOLGATE_SECRET_KEYS]
    calls = [create_call(CallOrder("wipe", each, plan_ref=plan.public_id), by=Requester(ada)) for each in (same, other)]
    for call in calls:
        call.refresh_from_db()
    assert [call.error_kind for call in calls] == ["refused_before", ""]
    assert [call.status for call in calls] == ["failed", "held"]


def test_different_call_is_not_refused(plan, rosa):
    reject(plan, rosa, effect="skip")
    work_off(plan)
    assert request_of(plan, 3).status == "pending"


def test_added_call_is_refused_too(plan, ada, rosa):
    reject(plan, rosa, effect="skip")
    call = create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(ada))
    call.refresh_from_db()
    assert (call.status, call.error_kind) == ("failed", "refused_before")
    other = create_call(CallOrder("dangerous", {"value": "new"}, plan_ref=plan.public_id), by=Requester(ada))
    other.refresh_from_db()
    assert other.status == "held"
    assert_invariants()


def test_other_plan_is_not_refused(plan, ada, rosa):
    reject(plan, rosa)
    assert request_of(work_off(make_plan(ada, act(1, "x", "dangerous")))).status == "pending"
    assert create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada)).status == "held"


def test_expiry_and_requested_changes_are_not_remembered(stage, ada, rosa):
    unanswered, sent_back = (work_off(make_plan(ada, act(1, "x", "dangerous"))) for _ in range(2))
    send_back(sent_back, rosa)
    expire_due(clock.now() + timedelta(days=2))
    for plan in (unanswered, sent_back):
        assert find_previous_rejection(plan.public_id, "dangerous", {}, '{"value":"x"}') is None


def test_undoable_rejection_is_not_remembered_yet(stage, ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    reject(plan, rosa, channel="page")
    assert find_previous_rejection(plan.public_id, "dangerous", {}, '{"value":"x"}') is None


def test_rejection_overrides_a_pre_approval(stage, ada, rosa):
    """A rejection applies to the whole plan, also to calls that were approved early."""
    later = act(3, "x", "dangerous", dependencies=[2])
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "a", "dangerous"), later))
    early = slices.prepare_slice(plan, 1, by=rosa).requests[0]
    decide(early, by=rosa, decision=Decision(ReviewVerdict.APPROVE, early.digest))
    reject(plan, rosa, "skip")
    approve(plan, rosa, 2)
    work_off(plan)
    early.refresh_from_db()
    assert (stage.values("dangerous"), early.status) == (["a"], "withdrawn")
    assert (call_of(plan, 3).error_kind, step_of(plan, 3).status) == ("refused_before", "failed")
    assert_invariants()
