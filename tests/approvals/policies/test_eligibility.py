"""Eligibility: stages, delegation and age of roles."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.errors import Drift, Invalidated
from approvals.models import ApprovalRequest, AuditEntry
from approvals.policies.eligibility import delegator_of, may_decide
from approvals.policies.quorum import missing_stages
from approvals.requests.queries import request_for
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide
from catalog.access.roles import NotAllowed, user_for_token
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import ApiToken, CallRequester
from tests.approvals.factories import approval, ask, binding_of, hand, rejection, set_rule
from tests.conftest import person

TWO_STAGES = [{"group": "reviewer", "count": 1}, {"group": "finance", "count": 1}]


pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_anew")]


@pytest.fixture
def fay(db) -> User:
    """A member of finance."""
    Group.objects.get_or_create(name="finance")
    return person("fay", "finance")


def fresh(request: ApprovalRequest) -> ApprovalRequest:
    """Return the current request."""
    return ApprovalRequest.objects.get(pk=request.pk)


def approve(request: ApprovalRequest, by: User) -> str:
    """Approve and return the new status."""
    now = fresh(request)
    return decide(now, by=User.objects.get(pk=by.pk), decision=approval(now)).status


def test_every_stage_must_be_filled(ada, rosa, tomas, fay):
    set_rule(stages=TWO_STAGES)
    request = ask(ada)
    assert approve(request, rosa) == approve(request, tomas) == "pending"
    assert [(each.group, each.count) for each in missing_stages(request_for(rosa, request.public_id))] == [
        ("finance", 1)
    ]
    assert approve(request, fay) == "approved"


def test_member_of_two_groups_has_one_vote(ada, rosa, fay):
    set_rule(stages=TWO_STAGES)
    rosa.groups.add(Group.objects.get(name="finance"))
    request = ask(ada)
    assert approve(request, rosa) == "pending"
    with pytest.raises(Conflict):
        approve(request, rosa)
    assert approve(request, fay) == "approved"


def test_one_rejection_settles_the_request(ada, fay):
    set_rule(stages=TWO_STAGES)
    request = ask(ada)
    assert decide(request, by=fay, decision=rejection(request, "No.")).status == "rejected"


def test_vote_does_not_count_after_losing_the_role(ada, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    approve(request, rosa)
    rosa.groups.clear()
    assert approve(request, tomas) == "pending"


@pytest.mark.parametrize("who", ["by", "to"])
def test_delegate_may_decide_while_both_are_eligible(ada, ben, rosa, who):
    request = ask(ada)
    assert may_decide(request, ben) is not None
    hand(request, rosa, ben)
    assert may_decide(fresh(request), ben) is None
    assert delegator_of(fresh(request), ben) == rosa
    if who == "by":
        rosa.groups.clear()
    else:
        CallRequester.objects.create(call=request.call, user=ben)
    with pytest.raises(NotAllowed):
        approve(request, ben)


def test_requester_cannot_delegate_own_request(rosa, ben):
    request = ask(rosa)
    hand(request, rosa, ben)
    assert may_decide(fresh(request), ben) is not None


def test_delegator_and_delegate_have_one_vote(ada, ben, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    hand(request, rosa, ben)
    assert approve(request, ben) == approve(request, rosa) == "pending"
    assert approve(request, tomas) == "approved"
    data = AuditEntry.objects.filter(action="approval.reviewed", actor=ben).get().details_json
    assert data["on_behalf_of"] == "Rosa"


def test_delegated_approval_is_void_if_the_delegator_loses_the_role(ada, ben, rosa):
    request = ask(ada)
    hand(request, rosa, ben)
    assert approve(request, ben) == "approved"
    rosa.groups.clear()
    with pytest.raises(Invalidated) as refused:
        consume(request.call, binding_of(request.call))
    assert refused.value.what == Drift.REVIEWERS


def test_agent_tokens_cannot_be_delegates(ada, ben, rosa):
    request = ask(ada)
    hand(request, rosa, ben)
    token = ApiToken.objects.create(name="a", user=ben, kind="agent", secret_digest="a", expires_at=clock.now())
    with pytest.raises(NotAllowed):
        decide(fresh(request), by=user_for_token(token), decision=approval(request))


def test_minimum_role_age(ada, ben):
    set_rule(min_role_age_seconds=3600)
    request = ask(ada)
    User.objects.update(date_joined=clock.now() - timedelta(days=9))
    ben.groups.add(Group.objects.get(name="reviewer"))
    ben = User.objects.get(pk=ben.pk)
    assert may_decide(request, ben) is not None
    set_rule(min_role_age_seconds=0)
    assert may_decide(fresh(request), ben) is None


def test_role_missing_in_the_log_is_as_old_as_the_account(ada, rosa):
    set_rule(min_role_age_seconds=3600)
    request = ask(ada)
    assert may_decide(request, rosa) is not None
    User.objects.filter(pk=rosa.pk).update(date_joined=clock.now() - timedelta(hours=2))
    assert may_decide(request, User.objects.get(pk=rosa.pk)) is None


def test_escalation_group_may_decide(ada, ben):
    ben.groups.add(Group.objects.create(name="finance"))
    request, ben = ask(ada), User.objects.get(pk=ben.pk)
    assert may_decide(request, ben) is not None
    ApprovalRequest.objects.update(escalated_to="finance")
    assert may_decide(fresh(request), ben) is None
    assert approve(request, ben) == "approved"


def test_self_review_is_audited(rosa):
    set_rule(allow_self_review=True)
    request = ask(rosa)
    assert approve(request, rosa) == "approved"
    entries = AuditEntry.objects.filter(action__in=["approval.reviewed", "approval.decided"])
    assert [entry.details_json.get("self_review") for entry in entries] == [True, True]


@pytest.mark.parametrize(
    "terms",
    [
        {"stages": [{"group": "reviewer", "count": 1}]},
        {"min_review_seconds": 600, "fresh_sign_in_seconds": 60, "typed_target": True},
    ],
)
def test_confirmations_do_not_apply_over_rest(ada, rosa, terms: dict[str, Any]):
    set_rule(**terms)
    assert approve(ask(ada), rosa) == "approved"
