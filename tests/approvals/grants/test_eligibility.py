"""Permission to create grants, their terms, and their effect on calls."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.errors import GrantRefused
from approvals.grants.services import GrantTerms, create_grant, grant_status, grants_for, revoke_grant
from approvals.models import AuditEntry, Grant, GrantUse
from approvals.policies import gate
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from catalog.models import Tool
from catalog.results import Preview
from plans.actions.call import CallOrder, create_call
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import calls, grants, loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall, snapshot_of
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import (
    ANY,
    allow,
    approved,
    dangerous,
    grant,
    grant_state,
    let_be_granted,
    run,
    set_rule,
    terms_from,
)
from tests.builders import approve, call_of, make_plan, step_of, work_off
from tests.invariants import assert_invariants
from tests.pages import Pages
from tests.rest import Rest


@pytest.fixture
def grantable(stage, admin, settings, monkeypatch) -> Any:
    """The stage with a dangerous tool that can be granted."""
    let_be_granted(admin, settings, monkeypatch)
    return stage


def test_grant_does_not_cover_calls_of_its_creator(grantable, ada, admin):
    with pytest.raises(NotAllowed):
        grant(admin, "admin")
    plan = make_plan(admin, dangerous())
    grant(admin, plan.public_id, "plan")
    assert work_off(plan).status == "in_progress"


def test_grant_does_not_satisfy_a_quorum_of_two(grantable, ada, admin):
    grant(admin)
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    gate.invalidate_rules()
    assert run(ada).status == "in_progress"


def test_grant_needs_a_creator_who_may_still_decide(grantable, ada, rosa, admin):
    """A grant is worth as much as an approval by its creator would be now."""
    made = create_grant(terms_from(first := approved(ada, rosa)), by=rosa, source_request=first)
    assert run(ada).status == "completed"
    rosa.groups.clear()
    assert (run(ada).status, grant_state(made)) == ("in_progress", "active")


def test_reviewer_creates_grants_from_own_approvals_only(grantable, ada, rosa, tomas):
    source = approved(ada, rosa)
    made = create_grant(terms_from(source), by=rosa, source_request=source)
    assert run(ada).status == "completed"
    assert AuditEntry.objects.get(action="grant.used").details_json["made_from"] == source.public_id
    for by, request, terms in (
        (tomas, source, terms_from(source)),
        (rosa, None, terms_from(source)),
        (rosa, source, terms_from(source, ref="ben")),
        (rosa, source, terms_from(source, "plan", "plan_other")),
        (ada, source, terms_from(source)),
    ):
        with pytest.raises(NotAllowed):
            create_grant(terms, by=by, source_request=request)
    assert list(Grant.objects.all()) == [made]


def test_handler_gets_the_previewed_state(grantable, ada, admin):
    grantable.previews["dangerous"] = lambda value, context: Preview("Do it", "text", state_token="as it was")
    states: list[object] = []
    grantable.acts["dangerous"] = lambda value, context: states.append(context.target_state)
    grant(admin)
    assert (run(ada).status, states) == ("completed", ["as it was"])


def test_invalid_terms_name_their_field(grantable, admin):
    Tool.objects.create(name="other", source=Tool.objects.get(name="dangerous").source, current_version=None)
    now = clock.now()
    wrong: dict[str, list[dict[str, Any]]] = {
        "tool": [{"tool": "nothing"}, {"tool": "other"}],
        "scope": [{"scope": "world"}],
        "scope_ref": [{"scope_ref": " "}],
        "max_uses": [{"max_uses": 21}, {"max_uses": 0}],
        "expires_at": [{"expires_at": now + timedelta(hours=9)}, {"expires_at": now - timedelta(seconds=1)}],
        "arguments.0.operator": [{"rows": [{"path": "value", "operator": "like", "value": "x"}]}],
        "arguments.0": [
            {"rows": [{"path": "value", "operator": "equals", "value": {"$secret": "value"}}]},
            {"rows": [{"path": "value", "operator": "in", "value": ["a", f"b\nghp_{'aB3' * 12}"]}]},
        ],
    }
    for field, each in wrong.items():
        for terms in each:
            given: dict[str, Any] = {"tool": "dangerous", "rows": ANY, "scope": "requester", "scope_ref": "ada"}
            with pytest.raises(ParameterError) as refused:
                create_grant(GrantTerms(**(given | terms)), by=admin)
            assert refused.value.details["field"] == field, terms
    assert not Grant.objects.exists()


def test_dangerous_tool_cannot_be_granted_by_default(stage, ada, admin):
    with pytest.raises(GrantRefused) as refused:
        grant(admin)
    assert refused.value.details["field"] == "tool"
    assert not Grant.objects.exists()


def test_tools_without_grants_cost_the_query_of_envelopes_alone(grantable, ada, admin, django_assert_num_queries):
    allow(admin)
    plan = make_plan(ada, dangerous(), start=False)
    order = calls.prepare_call("dangerous", {"value": "x"}, plan_ref=plan.public_id)
    with django_assert_num_queries(1):
        assert not grants.may_be_covered(snapshot_of(plan), order)


def test_grants_are_visible_to_users_with_a_role(grantable, ada, ben, admin, vera):
    grant(admin)
    nobody = User.objects.create(username="nobody")
    assert [grants_for(each).count() for each in (admin, vera, nobody)] == [1, 1, 0]
    assert (grants_for(admin, active=True).count(), grants_for(admin, tool="safe").count()) == (1, 0)


def started(plan: Plan) -> RunningCall:
    """Claim the plan's next step and stop after its call has started."""
    work: Any = loop.claim_work(plan.pk, owner="tests")
    while not isinstance(work, RunningCall):
        work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    return work


def test_lost_worker_leads_to_unknown_outcome(grantable, ada, admin):
    grant(admin)
    plan = make_plan(ada, dangerous())
    started(plan)
    plan.steps.update(lease_until=clock.now() - timedelta(seconds=1))
    recovery.take_back_lost_steps(clock.now())
    assert (step_of(plan).waiting_for, call_of(plan).status) == ("outcome", "outcome_unknown")
    settle_outcome(plan, 1, settlement=Settlement("request_again", comment="Once more."), by=Requester(ada))
    assert work_off(plan).status == "in_progress"
    assert (step_of(plan).waiting_for, GrantUse.objects.count()) == ("approval", 1)
    assert_invariants()


def test_handed_back_call_starts_on_the_same_use(grantable, ada, admin):
    """Its handler has not begun, so another worker starts it, even if the grant has ended meanwhile."""
    made = grant(admin, max_uses=1)
    plan = make_plan(ada, dangerous())
    recovery.hand_back(started(plan))
    assert (call_of(plan).status, call_of(plan).attempt) == ("ready", 0)
    assert work_off(plan).status == "completed"
    assert (GrantUse.objects.get().grant, grant_state(made)) == (made, "used_up")
    assert_invariants()


@pytest.mark.parametrize("by_grant", [True, False])
def test_handed_back_call_keeps_the_previewed_state(by_grant, grantable, ada, rosa, admin):
    grantable.previews["dangerous"] = lambda value, context: Preview("Do it", "text", state_token="seen")
    if by_grant:
        grant(admin)
        plan = make_plan(ada, dangerous())
    else:
        approve(plan := run(ada), rosa)
    recovery.hand_back(first := started(plan))
    again = started(plan)
    assert (first.target_state, again.target_state, again.call.attempt) == ("seen", "seen", 1)
    assert GrantUse.objects.count() == int(by_grant)


def test_spent_grant_can_be_revoked_while_a_call_is_handed_back(grantable, ada, admin):
    """The handed-back call then needs approval; an expired grant cannot be revoked."""
    made = grant(admin, max_uses=1)
    plan = make_plan(ada, dangerous())
    recovery.hand_back(started(plan))
    made.refresh_from_db()
    assert (grant_status(made).word, grant_status(made).may_be_ended) == ("used_up", True)
    pages = Pages(admin)
    pages.open("/approvals/grants/")
    assert f"/approvals/grants/{made.public_id}/revoke/" in pages.html
    revoke_grant(made, by=admin)
    assert (grant_state(made), work_off(plan).status) == ("revoked", "in_progress")
    spent = grant(admin, max_uses=1)
    Grant.objects.filter(pk=spent.pk).update(uses=1, expires_at=clock.now())
    with pytest.raises(Conflict):
        revoke_grant(spent, by=admin)


def test_values_of_a_grant_without_request_are_masked(grantable, ada, admin, vera):
    made = grant(admin, rows=[{"path": "value", "operator": "equals", "value": "jo@example.org"}])
    assert "jo@example.org" in Pages(admin).open("/approvals/grants/")
    page = Pages(vera).open("/approvals/grants/")
    assert made.public_id[:10] in page and "jo@example.org" not in page
    assert "jo@example.org" not in Rest(vera).get(f"grants/{made.public_id}/").content.decode()


def test_handed_back_call_starts_on_the_same_approval(grantable, ada, rosa):
    plan = run(ada)
    approve(plan, rosa)
    recovery.hand_back(started(plan))
    assert work_off(plan).status == "completed"
    assert_invariants()


def test_session_grant_does_not_cover_other_users(grantable, ada, ben, rosa):
    order = CallOrder("dangerous", {"value": "x"})
    held = create_call(order, by=Requester(ada, session="night"))
    source = decide(held.approval, by=rosa, decision=Decision(ReviewVerdict.APPROVE, held.approval.digest))
    create_grant(terms_from(source, "session", "night"), by=rosa, source_request=source)
    for someone, status in ((ben, "in_progress"), (ada, "completed")):
        call = create_call(order, by=Requester(someone, session="night"))
        assert work_off(Plan.objects.get(public_id=call.plan_ref)).status == status
