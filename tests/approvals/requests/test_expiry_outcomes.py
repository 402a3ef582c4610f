"""Effects of expiry on the step, escalation, and the lifetime of approvals."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.deadlines import expire_if_due, run_window_end, start_run_window
from approvals.reviews.decisions import decide, revoke
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict
from plans.models import Plan
from tests.approvals.factories import approval, ask, set_rule
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants

pytestmark = pytest.mark.django_db


def unanswered(ada, **terms: object) -> Plan:
    """Return a plan whose request expired unanswered under a rule with these terms."""
    set_rule(**terms)
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, "y", dependencies=[1]), act(3, "z", "dangerous")))
    request = request_of(plan)
    expire_if_due(request, request.expires_at)
    return work_off(plan)


@pytest.mark.parametrize(
    ("outcome", "stands"),
    [
        ("fail", ("in_progress", "failed", "pending", "in_progress")),
        ("skip", ("in_progress", "completed", "completed", "in_progress")),
        ("cancel_plan", ("cancelled", "failed", "cancelled", "cancelled")),
    ],
)
def test_rule_defines_the_effect_on_the_step(stage, ada, outcome, stands):
    plan = unanswered(ada, on_expiry=outcome)
    assert (plan.status, *(step_of(plan, each).status for each in (1, 2, 3))) == stands
    assert (request_of(plan).status, call_of(plan).status) == ("expired", "failed")
    assert AuditEntry.objects.get(action="approval.expired").details_json["effect"] == outcome
    assert_invariants()


@pytest.fixture
def finance(rosa, tomas) -> Group:
    """A group with Tomas, who is no reviewer, as its only member."""
    group = Group.objects.create(name="finance")
    tomas.groups.set([group])
    return group


def test_escalation_group_may_decide(stage, ada, tomas, finance):
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    set_rule(on_expiry="escalate", escalate_to="finance", expires_seconds=600)
    request = request_of(plan)
    with pytest.raises(NotAllowed):
        decide(request, by=tomas, decision=approval(request))
    assert not expire_if_due(request, request.expires_at)
    request = request_of(plan)
    assert (request.status, request.escalated_to, request.escalated_at is None) == ("pending", "finance", False)
    assert "1 approval.escalated" in events_of(plan)
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"
    work_off(plan)
    assert step_of(plan).status == "completed"
    assert_invariants()


def test_escalation_restarts_the_time_once(stage, ada, finance):
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    set_rule(on_expiry="escalate", escalate_to="finance", expires_seconds=600)
    first = request_of(plan).expires_at
    expire_if_due(request_of(plan), first)
    second = request_of(plan).expires_at
    assert second == first + timedelta(seconds=600)
    assert expire_if_due(request_of(plan), second)
    assert (request_of(plan).status, step_of(plan).status) == ("expired", "failed")
    assert "finance" in step_of(plan).error
    assert AuditEntry.objects.filter(action="approval.escalated").count() == 1


def test_escalation_without_a_group_fails_the_step(stage, ada):
    plan = unanswered(ada, on_expiry="escalate")
    assert (request_of(plan).status, step_of(plan).status) == ("expired", "failed")


def test_unused_approval_fails_its_step(stage, ada, rosa):
    set_rule(on_expiry="skip")
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    request = approve(plan, rosa)
    assert request.not_after is not None
    expire_if_due(request_of(plan), request.not_after)
    assert (step_of(plan).status, step_of(plan).skipped) == ("failed", False)


def test_expired_approval_cannot_be_revoked(ada, rosa, settings):
    settings.TOOLGATE_RUN_WINDOW_SECONDS = 0
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    with pytest.raises(Conflict):
        revoke(ApprovalRequest.objects.get(), by=rosa)
    assert ApprovalRequest.objects.get().status == "expired"


def test_pre_approval_lasts_at_most_eight_hours(ada, rosa, settings):
    window = timedelta(seconds=settings.TOOLGATE_RUN_WINDOW_SECONDS)
    request = ask(ada)
    ApprovalRequest.objects.update(is_early=True)
    request = decide(request, by=rosa, decision=approval(request))
    given = request.effective_at
    assert given is not None and request.not_after == given + timedelta(hours=8)
    start_run_window(request, given + timedelta(hours=1))
    request.refresh_from_db()
    assert request.not_after == given + timedelta(hours=1) + window
    start_run_window(request, given + timedelta(hours=7, minutes=55))
    request.refresh_from_db()
    assert request.not_after == given + timedelta(hours=8) == run_window_end(request, given)
