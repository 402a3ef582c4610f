"""Use of grants: covered calls, counting, and the events that end a grant."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from approvals import recovery
from approvals.errors import GrantRefused
from approvals.grants.proposals import propose_grant
from approvals.grants.services import GrantTerms, create_grant, revoke_grant
from approvals.models import ApprovalRequest, AuditEntry, Grant, GrantUse, PolicyRevision
from approvals.policies import gate
from approvals.policy_language.bounds import conditions_cover
from approvals.reviews.decisions import revoke as revoke_approval
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.dispatch.arguments import CallArguments
from catalog.errors import Conflict, ToolError
from catalog.inventory.overrides import apply_overrides
from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import allow, dangerous, grant, grant_state, let_be_granted, run, terms_from
from tests.builders import act, approve, call_of, events_of, make_plan, reject, request_of, work_off
from tests.invariants import assert_invariants


@pytest.fixture
def grantable(stage, admin, settings, monkeypatch) -> Any:
    """The stage with a dangerous tool that can be granted."""
    let_be_granted(admin, settings, monkeypatch)
    return stage


@pytest.fixture
def granting(grantable, admin) -> Any:
    """Create a grant as administrator."""
    return partial(grant, admin)


def test_covered_call_runs_without_review(grantable, ada, admin):
    made = grant(admin)
    plan = run(ada)
    made.refresh_from_db()
    use = GrantUse.objects.get(call=call_of(plan))
    assert (plan.status, made.uses, use.grant, ApprovalRequest.objects.count()) == ("completed", 1, made, 0)
    entry = AuditEntry.objects.get(action="grant.used")
    assert (entry.object_ref, entry.details_json) == (
        use.call.public_id,
        {"grant": made.public_id, "made_by": "Admin"},
    )
    assert "1 grant.used" in events_of(plan)
    assert grantable.values("dangerous") == ["x"]
    assert_invariants()


def test_covered_direct_call_runs_without_review(grantable, ada, admin):
    made = grant(admin)
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert (call.status, hasattr(call, "approval")) == ("created", False)
    plan = work_off(Plan.objects.get(public_id=call.plan_ref))
    made.refresh_from_db()
    assert (plan.status, made.uses, call_of(plan).pk) == ("completed", 1, call.pk)
    assert_invariants()


def test_direct_call_is_held_if_its_grant_ends_before_the_start(grantable, ada, rosa, admin):
    made = grant(admin)
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    revoke_grant(made, by=admin)
    plan = work_off(Plan.objects.get(public_id=call.plan_ref))
    call.refresh_from_db()
    assert (call.status, call_of(plan).pk, GrantUse.objects.count()) == ("held", call.pk, 0)
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert_invariants()


@pytest.mark.parametrize(
    ("rows", "value", "covered"),
    [
        ([{"path": "value", "operator": "equals", "value": "x"}], "x", True),
        ([{"path": "value", "operator": "equals", "value": "x"}], "y", False),
        ([{"path": "value", "operator": "starts_with", "value": "reports/"}], "reports/a", True),
        ([{"path": "value.path", "operator": "exists"}], {"path": "a"}, True),
        ([{"path": "value.path", "operator": "exists"}], {"path": "a", "force": True}, False),
        ([{"path": "value", "operator": "exists"}], {"path": "a", "force": True}, True),
        ([{"path": "value.0", "operator": "exists"}], ["a", "b"], False),
        ([], "x", False),
    ],
)
def test_unnamed_argument_is_not_covered(rows, value, covered, granting, ada):
    granting(rows=rows)
    assert (run(ada, value).status == "completed") is covered
    assert ApprovalRequest.objects.exists() is not covered


BEGINNINGS = [
    ("reports/", "reports/%2e%2e/secrets", False),
    ("reports/", "reports/.%2E%2fsecrets", False),
    ("reports/", "reports/%252e%252e/secrets", False),
    ("reports/", "reports/%25252525252e%2e/secrets", False),
    ("reports/", "reports/.\t./secrets", False),
    ("reports/", "reports/100%25..txt", True),
    ("https://api.example.com", "https://api.example.com.evil.com", False),
    ("https://api.example.com", "https://api.example.com@evil.com/", False),
    ("https://api.example.com", "https://api.example.com:80@evil.com/", False),
    ("//api.example.com", "//api.example.com.evil.com", False),
    ("https://api.example.com", "https://api.example.com", True),
    ("https://api.example.com", "https://api.example.com/v1", True),
    ("https://api.example.com/v1", "https://api.example.com/v1?page=2", True),
    ("https://api.example.com/", "https://api.example.com/v1", True),
    ("Hello", "Hello, Ben", True),
]


def test_starts_with_covers_whole_folders_and_hosts_only():
    wrong = [
        (begin, value)
        for begin, value, covered in BEGINNINGS
        if conditions_cover(
            [{"path": "value", "operator": "starts_with", "value": begin}], CallArguments({"value": value})
        )
        is not covered
    ]
    assert wrong == []


def test_grant_does_not_follow_a_reassigned_username(granting, ada, ben):
    granting()
    ada.username, ben.username = "ada.l", "ada"
    ada.save()
    ben.save()
    assert [run(ada).status, run(ben).status] == ["in_progress", "in_progress"]
    assert_invariants()


def test_unknown_username_is_refused(granting):
    with pytest.raises(GrantRefused) as refused:
        granting("nobody")
    assert refused.value.details["field"] == "scope_ref"
    assert not Grant.objects.exists()


def test_grant_covers_its_scope_only(grantable, ada, ben, admin):
    grant(admin)
    assert work_off(make_plan(ben, dangerous())).status == "in_progress"
    mine = make_plan(ben, dangerous())
    grant(admin, mine.public_id, "plan")
    assert work_off(mine).status == "completed"
    assert work_off(make_plan(ben, dangerous())).status == "in_progress"


def in_session(someone, session):
    """Request a direct call in a session with this name."""
    return create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(someone, session=session))


def test_session_scope(grantable, ada, admin):
    source = in_session(ada, "night").approval
    terms = terms_from(source, "session", "night")
    for wrong, request in ((terms, None), (replace(terms, scope_ref="day"), source)):
        with pytest.raises(GrantRefused) as refused:
            create_grant(wrong, by=admin, source_request=request)
        assert refused.value.details["field"] == "scope"
    create_grant(terms, by=admin, source_request=source)
    for session, status in (("night", "completed"), ("day", "in_progress"), ("", "in_progress")):
        call = in_session(ada, session)
        assert work_off(Plan.objects.get(public_id=call.plan_ref)).status == status


def test_used_up_grant_covers_nothing(grantable, ada, admin):
    made = grant(admin, max_uses=2)
    assert [run(ada).status for _ in range(3)] == ["completed", "completed", "in_progress"]
    assert grant_state(made) == "used_up"


def test_expired_grant_covers_nothing(grantable, ada, admin):
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    assert run(ada).status == "in_progress"
    assert grant_state(made) == "expired"


def test_any_reviewer_may_revoke_a_grant(grantable, ada, rosa, ben, admin):
    made = grant(admin)
    with pytest.raises(NotAllowed):
        revoke_grant(made, by=ben)
    revoke_grant(made, by=rosa)
    assert (grant_state(made), made.revoked_by) == ("revoked", rosa)
    with pytest.raises(Conflict):
        revoke_grant(made, by=admin)
    assert run(ada).status == "in_progress"
    assert AuditEntry.objects.get(action="grant.revoked").actor == rosa


def test_rejection_of_a_covered_call_ends_the_grant(grantable, ada, ben, rosa, admin):
    waiting = run(ada)
    made, other = grant(admin), grant(admin, "ben")
    reject(waiting, rosa)
    assert (grant_state(made), grant_state(other)) == ("ended", "active")
    assert "Rosa" in made.ended_because
    assert run(ada).status == "in_progress"


def test_revoked_approval_of_a_covered_call_ends_the_grant(grantable, ada, rosa, admin):
    waiting = run(ada)
    made = grant(admin)
    revoke_approval(approve(waiting, rosa), by=rosa)
    assert grant_state(made) == "ended"
    assert "Rosa" in made.ended_because


def test_later_grant_does_not_override_a_remembered_rejection(grantable, ada, rosa, admin):
    plan = make_plan(ada, dangerous(), act(2, "x", "dangerous", dependencies=[]))
    work_off(plan)
    reject(plan, rosa)
    grant(admin, plan.public_id, "plan")
    again = create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(ada))
    assert again.status == "failed" or not GrantUse.objects.filter(call=again).exists()
    assert grantable.values("dangerous") == []


def deny() -> None:
    """Make the rule for dangerous calls deny them."""
    PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny", message="Not on Fridays.")
    gate.invalidate_rules()


def test_denying_policy_ends_the_grant(grantable, ada, admin):
    first, second = grant(admin), grant(admin)
    revoke_grant(second, by=admin)
    deny()
    assert run(ada).status == "failed"
    assert grant_state(first) == "ended"
    third = grant(admin)
    with pytest.raises(ToolError):
        create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert grant_state(third) == "ended"


def test_changed_definition_ends_the_grant(grantable, ada, admin):
    made = grant(admin)
    apply_overrides("dangerous", {"description_override": "Do worse."}, by=admin)
    assert grant_state(made) == "ended"
    assert run(ada).status == "in_progress"


def test_changed_code_ends_the_grant(grantable, ada, admin):
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(implementation_digests=["0" * 64])
    assert run(ada).status == "in_progress"
    assert grant_state(made) == "ended"


def test_new_epoch_ends_the_grant(grantable, ada, admin):
    made = grant(admin)
    recovery.begin_epoch("The disk died.")
    assert grant_state(made) == "ended"
    assert run(ada).status == "in_progress"


def test_grant_of_an_earlier_epoch_is_never_used(grantable, ada, admin):
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(epoch=0)
    assert run(ada).status == "in_progress"


def test_disabling_grants_of_the_tool_ends_them(grantable, ada, admin):
    made = grant(admin)
    allow(admin)
    assert grant_state(made) == "ended"
    assert run(ada).status == "in_progress"


SHAPES: dict[str, object] = {
    "text": "x",
    "number": 1.5,
    "boolean": False,
    "null": None,
    "empty list": [],
    "empty object": {},
    "list": [1, ["a", {"b": None}]],
    "object": {"a": {"b": [True]}, "c": ""},
    "name with a dot": {"a.b": 1, "c": 2},
    "name without letters": {"": 1},
    "many values": list(range(40)),
    "a place far back": [0] * 99 + [{"a": 1}] * 2,
    "deep": {
        "a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": {"k": {"l": {"m": {"n": {"o": {"p": 1}}}}}}}}}}}}}}}
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_proposal_covers_its_request(grantable, ada, rosa, shape):
    value = SHAPES[shape]
    plan = run(ada, value)
    approve(plan, rosa)
    request = request_of(plan)
    terms = GrantTerms(tool="dangerous", rows=propose_grant(request, rosa).rows, scope="plan", scope_ref=plan.public_id)
    made = create_grant(terms, by=rosa, source_request=request)
    assert conditions_cover(made.conditions, CallArguments({"value": value}))


def test_prefix_that_leads_elsewhere_is_not_proposed(grantable, ada, rosa):
    for name in ("a", "b"):
        plan = run(ada, f"reports/../{name}")
        approve(plan, rosa)
    assert [part.row for part in propose_grant(request_of(plan), rosa).parts] == [None]
