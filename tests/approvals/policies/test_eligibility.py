"""Who may decide, in whose place, and whether those who agreed are enough: stages, delegation, age of roles."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.errors import Drift, Invalidated
from approvals.models import ApprovalRequest, AuditEntry
from approvals.policies.eligibility import delegator_of, may_decide, missing_stages
from approvals.requests.consumption import consume
from approvals.requests.queries import request_for
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
    """Return the request as it is now."""
    return ApprovalRequest.objects.get(pk=request.pk)


def approve(request: ApprovalRequest, by: User) -> str:
    """Approve, and return where the request stands then."""
    now = fresh(request)
    return decide(now, by=User.objects.get(pk=by.pk), decision=approval(now)).status


def test_every_stage_needs_its_people(ada, rosa, tomas, fay):
    """Two reviewers are not a reviewer and someone of finance."""
    set_rule(stages=TWO_STAGES)
    request = ask(ada)
    assert approve(request, rosa) == approve(request, tomas) == "pending"
    assert [(each.group, each.count) for each in missing_stages(request_for(rosa, request.public_id))] == [
        ("finance", 1)
    ]
    assert approve(request, fay) == "approved"


def test_someone_in_both_groups_has_one_vote(ada, rosa, fay):
    """And stands where nobody else can."""
    set_rule(stages=TWO_STAGES)
    rosa.groups.add(Group.objects.get(name="finance"))
    request = ask(ada)
    assert approve(request, rosa) == "pending"
    with pytest.raises(Conflict):
        approve(request, rosa)
    assert approve(request, fay) == "approved"


def test_one_rejection_decides_whatever_the_stages(ada, fay):
    """Of anyone who may decide."""
    set_rule(stages=TWO_STAGES)
    request = ask(ada)
    assert decide(request, by=fay, decision=rejection(request, "No.")).status == "rejected"


def test_a_vote_of_someone_who_lost_the_role_does_not_count(ada, rosa, tomas):
    """Before the last vote as well as before the start."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    approve(request, rosa)
    rosa.groups.clear()
    assert approve(request, tomas) == "pending"


@pytest.mark.parametrize("who", ["by", "to"])
def test_a_delegate_decides_as_long_as_both_may(ada, ben, rosa, who):
    """In the stage of who gave it; neither asked for the call, and who gave it still has the role."""
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


def test_a_requester_cannot_delegate_what_they_may_not_decide(rosa, ben):
    """Four eyes hold on this path, too."""
    request = ask(rosa)
    hand(request, rosa, ben)
    assert may_decide(fresh(request), ben) is not None


def test_who_delegated_and_who_answered_have_one_vote(ada, ben, rosa, tomas):
    """A delegation makes nobody count twice."""
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    request = ask(ada)
    hand(request, rosa, ben)
    assert approve(request, ben) == approve(request, rosa) == "pending"
    assert approve(request, tomas) == "approved"
    told = AuditEntry.objects.filter(action="approval.reviewed", actor=ben).get().details_json
    assert told["on_behalf_of"] == "Rosa"


def test_a_delegated_approval_starts_nothing_once_it_was_lost(ada, ben, rosa):
    """Who gave it lost the role between the approval and the start."""
    request = ask(ada)
    hand(request, rosa, ben)
    assert approve(request, ben) == "approved"
    rosa.groups.clear()
    with pytest.raises(Invalidated) as refused:
        consume(request.call, binding_of(request.call))
    assert refused.value.what == Drift.REVIEWERS


def test_agents_tokens_are_no_delegates(ada, ben, rosa):
    """Whoever gave it."""
    request = ask(ada)
    hand(request, rosa, ben)
    token = ApiToken.objects.create(name="a", user=ben, kind="agent", secret_digest="a", expires_at=clock.now())
    with pytest.raises(NotAllowed):
        decide(fresh(request), by=user_for_token(token), decision=approval(request))


def test_a_role_must_be_old_enough(ada, ben):
    """As the audit log tells; taking it away and giving it again starts anew."""
    set_rule(min_role_age_seconds=3600)
    request = ask(ada)
    User.objects.update(date_joined=clock.now() - timedelta(days=9))
    ben.groups.add(Group.objects.get(name="reviewer"))
    ben = User.objects.get(pk=ben.pk)
    assert may_decide(request, ben) is not None
    set_rule(min_role_age_seconds=0)
    assert may_decide(fresh(request), ben) is None


def test_a_role_that_the_log_does_not_name_is_as_old_as_the_account(ada, rosa):
    """It was given before there was a log."""
    set_rule(min_role_age_seconds=3600)
    request = ask(ada)
    assert may_decide(request, rosa) is not None
    User.objects.filter(pk=rosa.pk).update(date_joined=clock.now() - timedelta(hours=2))
    assert may_decide(request, User.objects.get(pk=rosa.pk)) is None


def test_once_escalated_another_group_may_answer(ada, ben):
    """In any stage."""
    ben.groups.add(Group.objects.create(name="finance"))
    request, ben = ask(ada), User.objects.get(pk=ben.pk)
    assert may_decide(request, ben) is not None
    ApprovalRequest.objects.update(escalated_to="finance")
    assert may_decide(fresh(request), ben) is None
    assert approve(request, ben) == "approved"


def test_ones_own_decision_is_told_each_time(rosa):
    """Where the policy allows it, the log says so."""
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
def test_over_rest_nobody_is_refused_for_speed(ada, rosa, terms: dict[str, Any]):
    """What is asked on pages against reflexes does not hold programs up."""
    set_rule(**terms)
    assert approve(ask(ada), rosa) == "approved"
