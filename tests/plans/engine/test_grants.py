"""Stored calls started by a grant or an approval, which must still hold at the start, for the call's requester."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import recovery as approvals_recovery
from approvals.grants.services import revoke_grant
from approvals.models import ApprovalRequest, Grant, GrantUse
from approvals.policies.eligibility import may_decide
from approvals.requests.queries import request_for
from catalog.core import clock
from catalog.errors import RestoredDatabase
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from plans.actions.call import CallOrder, create_call
from plans.actions.upcoming import upcoming_steps
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import dangerous, ended, grant, let_be_granted, run
from tests.builders import act, approve, call_of, make_plan, request_of, work_off
from tests.invariants import assert_invariants

pytestmark = pytest.mark.db

X = [{"path": "value", "operator": "equals", "value": "x"}]


@pytest.fixture(autouse=True)
def grantable(stage, admin, settings, monkeypatch) -> Any:
    """A stage whose dangerous tool allows grants."""
    let_be_granted(admin, settings, monkeypatch)
    return stage


@pytest.fixture
def boss(admin) -> User:
    """Another administrator who may review."""
    boss = User.objects.create(username="boss", first_name="Boss")
    boss.groups.set(Group.objects.filter(name__in=("administrator", "reviewer")))
    return boss


def test_grant_of_the_person_who_added_the_call_does_not_cover_it(grantable, ada, admin, boss):
    """Also if the call waited for its start; nor may they decide."""
    plan = make_plan(ada, act(1, "y", "dangerous"))
    work_off(plan)
    other = grant(admin, plan.public_id, "plan", X)
    own = grant(boss, plan.public_id, "plan", X)
    call = create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(boss))
    assert call.status == "created"
    revoke_grant(other, by=admin)
    work_off(plan)
    own.refresh_from_db()
    assert (call_of(plan, 2).status, own.uses, grantable.values("dangerous")) == ("held", 0, [])
    request = request_for(boss, request_of(plan, 2).public_id)
    assert may_decide(request, boss) is not None
    assert boss.pk in {each.user_id for each in call.requesters.all()}
    assert_invariants()


def test_stored_call_is_matched_for_its_requester(ada, admin, boss):
    """Ada's grant does not cover a call that somebody else adds to her plan."""
    plan = make_plan(ada, act(1, "y", "dangerous"))
    work_off(plan)
    door = grant(admin, plan.public_id, "plan", X)
    create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(boss))
    revoke_grant(door, by=admin)
    hers = grant(admin, "ada", rows=X)
    work_off(plan)
    hers.refresh_from_db()
    assert (call_of(plan, 2).status, hers.uses) == ("held", 0)


def test_preview_is_computed_for_the_requester(grantable, ada, rosa, boss):
    """Also the one compared with the approval."""
    plan = make_plan(ada, act(1, "y", "dangerous"))
    work_off(plan)
    seen: list[int | None] = []
    grantable.previews["dangerous"] = lambda value, context: seen.append(context.requested_by)
    create_call(CallOrder("dangerous", {"value": "x"}, plan_ref=plan.public_id), by=Requester(boss))
    approve(plan, rosa, 2)
    work_off(plan)
    assert seen == [boss.pk, boss.pk]


def started(plan: Plan) -> RunningCall:
    """Claim the plan's next step until its call has started, and leave it running."""
    work: Any = loop.claim_work(plan.pk, owner="tests")
    while not isinstance(work, RunningCall):
        work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    return work


def handed_back(ada: User) -> Plan:
    """Return a plan whose call started under a grant and was released before its handler began."""
    plan = make_plan(ada, dangerous())
    recovery.hand_back(started(plan))
    return plan


def revoked(made: Grant, admin: User) -> None:
    """A person revokes the grant."""
    revoke_grant(made, by=admin)


def expired(made: Grant, admin: User) -> None:
    """The grant expires."""
    Grant.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(seconds=1))


def of_another_epoch(made: Grant, admin: User) -> None:
    """The database is restored, and the grant is left in force."""
    Grant.objects.filter(pk=made.pk).update(epoch=0)


def for_other_code(made: Grant, admin: User) -> None:
    """The implementation changes."""
    Grant.objects.filter(pk=made.pk).update(implementation_digests=["0" * 64])


@pytest.mark.parametrize("happens", [revoked, expired, of_another_epoch, for_other_code])
def test_released_call_needs_approval_after_its_grant_ended(happens, grantable, ada, rosa, admin):
    """The same call runs when it is approved."""
    made = grant(admin)
    plan = handed_back(ada)
    happens(made, admin)
    assert (work_off(plan).status, call_of(plan).status, grantable.values("dangerous")) == ("in_progress", "held", [])
    approve(plan, rosa)
    assert (work_off(plan).status, grantable.values("dangerous")) == ("completed", ["x"])
    assert (GrantUse.objects.count(), ApprovalRequest.objects.count()) == (1, 1)


def test_call_with_an_ended_grant_and_an_approval_breaks_no_invariant(ada, rosa, admin):
    """It has its grant's use, and then its approval."""
    made = grant(admin)
    plan = handed_back(ada)
    revoke_grant(made, by=admin)
    grant(admin)  # another one is not for a call that has had one
    work_off(plan)
    assert_invariants()
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert_invariants()


def test_released_granted_call_does_not_start_on_a_restored_database(ada, admin, monkeypatch):
    grant(admin)
    plan = handed_back(ada)
    monkeypatch.setattr("approvals.audit.restore_guard.compare_with_checkpoints", lambda: "It was set back.")
    with pytest.raises(RestoredDatabase):
        started(plan)
    assert call_of(plan).status == "ready"


def too_late(request: ApprovalRequest) -> None:
    """The run window passes."""
    ApprovalRequest.objects.filter(pk=request.pk).update(not_after=clock.now())


def restored(request: ApprovalRequest) -> None:
    """A new epoch begins."""
    approvals_recovery.begin_epoch("The disk died.")


def other_code(request: ApprovalRequest) -> None:
    """The implementation has other code, in this process and in the catalog."""
    ApprovalRequest.objects.filter(pk=request.pk).update(digest="0" * 64)


@pytest.mark.parametrize("happens", [too_late, restored, other_code])
def test_released_approved_call_is_compared_again(happens, grantable, ada, rosa):
    """It fails if its approval is no longer valid."""
    plan = run(ada)
    approve(plan, rosa)
    recovery.hand_back(started(plan))
    happens(request_of(plan))
    work_off(plan)
    assert (call_of(plan).status, grantable.values("dangerous")) == ("failed", [])


def test_reading_grants_ends_none(ada, admin):
    """A grant ends only by its rows, and only when a call would start."""
    made = grant(admin)
    plan = make_plan(ada, dangerous())
    Grant.objects.filter(pk=made.pk).update(fingerprint="of the tool as others know it")
    [step] = upcoming_steps(plan)
    assert (step.kind, ended(made)) == ("gated", "")
    work_off(plan)
    assert "has changed" in ended(made)


def test_a_process_that_knows_an_older_tool_ends_no_grant(ada, admin, monkeypatch, trusted_for_long):
    """Its call waits for approval, and the grant remains valid."""
    plan = make_plan(ada, dangerous())
    known = snapshot.callable_tool("dangerous")
    apply_overrides("dangerous", {"description_override": "Do worse."}, by=admin)
    made = grant(admin)
    monkeypatch.setattr(snapshot, "callable_tool", lambda name: known)
    assert (work_off(plan).status, ended(made)) == ("in_progress", "")


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one lock")
def test_slots_are_locked_before_the_audit_log(ada, admin, settings):
    """A start by a grant may still have to open a request, so it keeps the common lock order."""
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 5
    grant(admin)
    plan = make_plan(ada, dangerous())
    with CaptureQueriesContext(
        connection,
    ) as seen:
        work_off(plan)
    said = [each["sql"] for each in seen]
    room = next(place for place, sql in enumerate(said) if "pg_advisory_xact_lock" in sql)
    head = next(place for place, sql in enumerate(said) if "approvals_instance" in sql and "FOR UPDATE" in sql)
    assert room < head
