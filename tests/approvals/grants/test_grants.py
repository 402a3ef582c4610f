"""Grants in use: a held call that one covers starts, and is counted. What weighs more ends them, with a reason."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from approvals import recovery
from approvals.errors import GrantRefused
from approvals.grants.conditions import conditions_cover
from approvals.grants.proposals import propose_grant
from approvals.grants.services import GrantTerms, create_grant, revoke_grant
from approvals.models import ApprovalRequest, AuditEntry, Grant, GrantUse, PolicyRevision
from approvals.policies import gate
from approvals.reviews.decisions import revoke as revoke_approval
from catalog.access.roles import NotAllowed
from catalog.core import clock
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
    """The stage, whose dangerous tool may be granted."""
    let_be_granted(admin, settings, monkeypatch)
    return stage


@pytest.fixture
def granting(grantable, admin) -> Any:
    """Make a grant, by the administrator."""
    return partial(grant, admin)


def test_a_covered_call_runs_without_a_review(grantable, ada, admin):
    """The use is counted, kept, audited and told as an event; nobody was asked."""
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


def test_a_direct_call_runs_as_well(grantable, ada, admin):
    """Also where the process that took it executes nothing: whoever claims it asks the grants again."""
    made = grant(admin)
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert (call.status, hasattr(call, "approval")) == ("created", False)
    plan = work_off(Plan.objects.get(public_id=call.plan_ref))
    made.refresh_from_db()
    assert (plan.status, made.uses, call_of(plan).pk) == ("completed", 1, call.pk)
    assert_invariants()


def test_a_direct_call_whose_grant_ends_before_it_starts_waits_for_people(grantable, ada, rosa, admin):
    """It is held after all, as the same call."""
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
def test_what_no_row_names_is_not_covered(rows, value, covered, granting, ada):
    """Every argument is spoken of, or people are asked."""
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
    """Folders above, however they are written, and hosts with a longer name."""
    wrong = [
        (begin, value)
        for begin, value, covered in BEGINNINGS
        if conditions_cover([{"path": "value", "operator": "starts_with", "value": begin}], {"value": value})
        is not covered
    ]
    assert wrong == []


def test_a_username_that_changes_hands_takes_no_grant_along(granting, ada, ben):
    """A grant is for the account that was meant."""
    granting()
    ada.username, ben.username = "ada.l", "ada"
    ada.save()
    ben.save()
    assert [run(ada).status, run(ben).status] == ["in_progress", "in_progress"]
    assert_invariants()


def test_nobody_is_meant_by_an_unknown_username(granting):
    """Nothing is made."""
    with pytest.raises(GrantRefused) as refused:
        granting("nobody")
    assert refused.value.details["field"] == "scope_ref"
    assert not Grant.objects.exists()


def test_it_covers_its_scope_only(grantable, ada, ben, admin):
    """Another requester is asked about; so is another plan."""
    grant(admin)
    assert work_off(make_plan(ben, dangerous())).status == "in_progress"
    mine = make_plan(ben, dangerous())
    grant(admin, mine.public_id, "plan")
    assert work_off(mine).status == "completed"
    assert work_off(make_plan(ben, dangerous())).status == "in_progress"


def in_session(someone, session):
    """Ask for a direct call in a session of that name."""
    return create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(someone, session=session))


def test_the_session_is_a_scope(grantable, ada, admin):
    """Calls of one session, out of a request in it."""
    source = in_session(ada, "night").approval
    terms = terms_from(source, "session", "night")
    for wrong, request in ((terms, None), (replace(terms, scope_ref="day"), source)):
        with pytest.raises(GrantRefused) as refused:
            create_grant(wrong, by=admin, created_from=request)
        assert refused.value.details["field"] == "scope"
    create_grant(terms, by=admin, created_from=source)
    for session, status in (("night", "completed"), ("day", "in_progress"), ("", "in_progress")):
        call = in_session(ada, session)
        assert work_off(Plan.objects.get(public_id=call.plan_ref)).status == status


def test_it_is_used_up(grantable, ada, admin):
    """After its uses people are asked again."""
    made = grant(admin, max_uses=2)
    assert [run(ada).status for _ in range(3)] == ["completed", "completed", "in_progress"]
    assert grant_state(made) == "used_up"


def test_its_time_ends(grantable, ada, admin):
    """Then people are asked."""
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    assert run(ada).status == "in_progress"
    assert grant_state(made) == "expired"


def test_it_is_revoked_in_one_press(grantable, ada, rosa, ben, admin):
    """By any reviewer, once; nobody else may."""
    made = grant(admin)
    with pytest.raises(NotAllowed):
        revoke_grant(made, by=ben)
    revoke_grant(made, by=rosa)
    assert (grant_state(made), made.revoked_by) == ("revoked", rosa)
    with pytest.raises(Conflict):
        revoke_grant(made, by=admin)
    assert run(ada).status == "in_progress"
    assert AuditEntry.objects.get(action="grant.revoked").actor == rosa


def test_a_rejection_beats_it(grantable, ada, ben, rosa, admin):
    """A person said no to what it would cover."""
    waiting = run(ada)
    made, other = grant(admin), grant(admin, "ben")
    reject(waiting, rosa)
    assert (grant_state(made), grant_state(other)) == ("ended", "active")
    assert "Rosa" in made.ended_because
    assert run(ada).status == "in_progress"


def test_a_revoked_approval_beats_it(grantable, ada, rosa, admin):
    """As a rejection does."""
    waiting = run(ada)
    made = grant(admin)
    revoke_approval(approve(waiting, rosa), by=rosa)
    assert grant_state(made) == "ended"
    assert "Rosa" in made.ended_because


def test_what_was_refused_in_a_plan_is_refused_there_in_spite_of_a_later_grant(grantable, ada, rosa, admin):
    """People's memory is longer than a grant."""
    plan = make_plan(ada, dangerous(), act(2, "x", "dangerous", dependencies=[]))
    work_off(plan)
    reject(plan, rosa)
    grant(admin, plan.public_id, "plan")
    again = create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(ada))
    assert again.status == "failed" or not GrantUse.objects.filter(call=again).exists()
    assert grantable.values("dangerous") == []


def deny() -> None:
    """Let the rule for dangerous calls refuse them."""
    PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny", message="Not on Fridays.")
    gate.invalidate_rules()


def test_a_policy_that_refuses_beats_it(grantable, ada, admin):
    """In a plan, and where a call is asked for directly."""
    first, second = grant(admin), grant(admin)
    revoke_grant(second, by=admin)
    deny()
    assert run(ada).status == "failed"
    assert grant_state(first) == "ended"
    third = grant(admin)
    with pytest.raises(ToolError):
        create_call(CallOrder("dangerous", {"value": "x"}), by=Requester(ada))
    assert grant_state(third) == "ended"


def test_another_definition_ends_it(grantable, ada, admin):
    """At once, when the tool is changed."""
    made = grant(admin)
    apply_overrides("dangerous", {"description_override": "Do worse."}, by=admin)
    assert grant_state(made) == "ended"
    assert run(ada).status == "in_progress"


def test_other_code_ends_it(grantable, ada, admin):
    """It is noticed when a call would use it."""
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(implementation_digests=["0" * 64])
    assert run(ada).status == "in_progress"
    assert grant_state(made) == "ended"


def test_a_new_epoch_ends_it(grantable, ada, admin):
    """What was granted before a restore is not known any more."""
    made = grant(admin)
    recovery.begin_epoch("The disk died.")
    assert grant_state(made) == "ended"
    assert run(ada).status == "in_progress"


def test_a_grant_of_an_earlier_epoch_is_never_used(grantable, ada, admin):
    """Also one that a crash left in force."""
    made = grant(admin)
    Grant.objects.filter(pk=made.pk).update(epoch=0)
    assert run(ada).status == "in_progress"


def test_taking_the_setting_back_ends_it(grantable, ada, admin):
    """Dangerous tools are granted only while an administrator lets them be."""
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
def test_a_proposal_covers_the_request_that_it_is_made_from(grantable, ada, rosa, shape):
    """Whatever its arguments hold: the rows are taken, and cover them."""
    value = SHAPES[shape]
    plan = run(ada, value)
    approve(plan, rosa)
    asked = request_of(plan)
    terms = GrantTerms(tool="dangerous", rows=propose_grant(asked, rosa).rows, scope="plan", scope_ref=plan.public_id)
    made = create_grant(terms, by=rosa, created_from=asked)
    assert conditions_cover(made.conditions, {"value": value})


def test_a_beginning_that_leads_out_is_not_proposed(grantable, ada, rosa):
    """It would cover nothing: a person chooses."""
    for name in ("a", "b"):
        plan = run(ada, f"reports/../{name}")
        approve(plan, rosa)
    assert [part.row for part in propose_grant(request_of(plan), rosa).parts] == [None]
