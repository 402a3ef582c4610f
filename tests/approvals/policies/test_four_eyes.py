"""The four-eyes principle on every path."""

import pytest
from django.contrib.auth.models import Group, User

from approvals.errors import Drift, Invalidated
from approvals.models import ApprovalRequest, AuditEntry
from approvals.policies.eligibility import may_decide
from approvals.policies.quorum import EXTRA_APPROVAL_REASON, extra_approval_reason
from approvals.requests.queries import request_for
from approvals.requests.start_check import consume
from approvals.reviews.decisions import decide
from catalog.access.roles import NotAllowed, user_for_token
from catalog.core import clock
from catalog.models import ApiToken, CallRequester
from tests.approvals.factories import approval, ask, binding_of, edit, rejection, respond, set_rule
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.conftest import person


def token_of(user, kind):
    """Return a valid token of `user`."""
    return ApiToken.objects.create(name=kind, user=user, kind=kind, secret_digest=kind, expires_at=clock.now())


@pytest.fixture
def rosas(rosa) -> ApprovalRequest:
    """A request whose requester is a reviewer."""
    return ask(rosa)


@pytest.mark.parametrize("answer", [approval, rejection])
def test_requester_may_not_decide(rosas, rosa, tomas, answer):
    with pytest.raises(NotAllowed):
        decide(rosas, by=rosa, decision=answer(rosas))
    assert rosas.reviews.count() == 0
    assert decide(rosas, by=tomas, decision=answer(rosas)).status != "pending"


def test_all_requesters_are_barred(ada, rosa, tomas):
    request = ask(ada)
    CallRequester.objects.create(call=request.call, user=rosa)
    with pytest.raises(NotAllowed):
        decide(request, by=rosa, decision=approval(request))
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


@pytest.mark.parametrize("power", ["administrator", "superuser"])
def test_administrators_may_decide_but_not_their_own(ada, db, power):
    """Neither administrators nor superusers are exempt from the four-eyes principle."""
    root = person("root", *(["administrator"] if power == "administrator" else []))
    User.objects.filter(pk=root.pk).update(is_superuser=power == "superuser")
    root = User.objects.get(pk=root.pk)
    request, own = ask(ada), ask(root)
    assert decide(request, by=root, decision=approval(request)).status == "approved"
    with pytest.raises(NotAllowed):
        decide(own, by=root, decision=approval(own))
    set_rule(stages=[{"group": "finance", "count": 1}])
    theirs = ask(ada)
    with pytest.raises(NotAllowed):
        decide(theirs, by=root, decision=approval(theirs))


def test_other_roles_may_not_decide(ada, ben, vera):
    request = ask(ada)
    for each in (ada, ben, vera):
        with pytest.raises(NotAllowed):
            decide(request, by=each, decision=approval(request))
    assert request.reviews.count() == 0


def test_rule_defines_the_deciding_group(ada, ben):
    set_rule(stages=[{"group": "finance", "count": 1}])
    request = ask(ada)
    assert "finance" in (may_decide(request, ben) or "")
    ben.groups.add(Group.objects.create(name="finance"))
    assert decide(request, by=User.objects.get(pk=ben.pk), decision=approval(request)).status == "approved"


def test_disabled_account_may_not_decide(ada, rosa):
    rosa.is_active = False
    request = ask(ada)
    with pytest.raises(NotAllowed):
        decide(request, by=rosa, decision=approval(request))


def test_agent_tokens_may_not_decide(ada, rosa):
    request = ask(ada)
    with pytest.raises(NotAllowed):
        decide(request, by=user_for_token(token_of(rosa, "agent")), decision=approval(request))
    again = User.objects.get(pk=rosa.pk)
    assert (
        decide(request, by=user_for_token(token_of(again, "personal")), decision=approval(request)).status == "approved"
    )


def test_policy_may_allow_self_review(rosa):
    set_rule(allow_self_review=True)
    request = ask(rosa)
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


@pytest.mark.parametrize("loss", ["group", "account", "asked"])
def test_eligibility_is_checked_again_at_the_start(ada, rosa, loss):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    if loss == "group":
        rosa.groups.clear()
    elif loss == "account":
        User.objects.filter(pk=rosa.pk).update(is_active=False)
    else:
        CallRequester.objects.create(call=request.call, user=rosa)
    with pytest.raises(Invalidated) as refused:
        consume(request.call, binding_of(request.call))
    assert refused.value.what == Drift.REVIEWERS


def test_objection_needs_no_query_on_a_page(ada, rosa, django_assert_num_queries):
    request = request_for(rosa, ask(ada).public_id)
    with django_assert_num_queries(0):
        assert may_decide(request, rosa) is None


def test_input_author_alone_is_not_enough(ada, rosa, tomas):
    request = ask(ada)
    ApprovalRequest.objects.update(input_authors=[rosa.pk])
    assert (extra_approval_reason(whole(request, rosa), rosa), extra_approval_reason(whole(request, tomas), tomas)) == (
        EXTRA_APPROVAL_REASON,
        "",
    )
    assert decide(request, by=rosa, decision=approval(request)).status == "pending"
    assert extra_approval_reason(whole(request, tomas), tomas) == EXTRA_APPROVAL_REASON
    assert AuditEntry.objects.get(action="approval.reviewed").details_json["input_author"]
    assert decide(request, by=tomas, decision=approval(request)).status == "approved"


def test_single_person_may_approve_what_they_changed(ada, rosa):
    set_rule(allow_self_review=True)
    request = ask(ada)
    ApprovalRequest.objects.update(input_authors=[rosa.pk])
    assert decide(request, by=rosa, decision=approval(request)).status == "approved"


def whole(request, viewer) -> ApprovalRequest:
    """Return the request with the relations for its page."""
    return request_for(viewer, request.public_id)


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("say", [edit, respond])
def test_author_of_an_earlier_value_may_not_approve_alone(ada, rosa, tomas, say):
    plan = make_plan(
        ada,
        act(1, "x", "dangerous", expected_key="first"),
        act(2, "${first}", expected_key="second", dependencies=[1]),
        act(3, {"of": "${second}"}, "dangerous", dependencies=[2]),
        act(4, "z", "dangerous", dependencies=[1]),
    )
    work_off(plan)
    say(plan, rosa, "y")
    work_off(plan)
    assert (request_of(plan, 3).input_authors, request_of(plan, 4).input_authors) == ([rosa.pk], [])
    assert [approve(plan, rosa, number).status for number in (3, 4)] == ["pending", "approved"]
    assert approve(plan, tomas, 3).status == "approved"
