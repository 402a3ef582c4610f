"""From approval to run: the approved call runs once; a change in between leads to a new request or ends it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.requests import deadlines, lifecycle
from catalog.core import clock
from catalog.inventory.sync import sync_tools
from catalog.models import Call, CatalogState, Tool
from catalog.results import Preview
from catalog.tools.registry import register_tool
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, RunningCall, StaleApproval
from plans.models import Plan
from tests.builders import (
    act,
    approve,
    assert_gapless,
    call_of,
    events_of,
    make_plan,
    request_of,
    step_of,
    work_off,
    write_step,
)
from tests.conftest import forget_what_was_read
from tests.plans.factories import hurry
from tests.tools_for_tests import dangerous


@pytest.fixture
def approved(stage: Any, ada: User, rosa: User) -> Plan:
    """A plan whose dangerous step is approved and has not started, with a dependent step."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, dependencies=[1])))
    approve(plan, rosa)
    return plan


def assert_asked_again(plan: Plan, old: ApprovalRequest, why: str) -> None:
    """Check that nothing ran and that a new request replaces the old one, linked in both directions."""
    old.refresh_from_db()
    new = request_of(plan)
    assert (old.status, old.superseded_by, new.status) == ("superseded", new, "pending")
    assert (old.call.replaced_by, new.call.replaces) == (new.call, old.call)
    before = Call.objects.get(pk=old.call_id)
    assert (before.status, new.call.status, step_of(plan).waiting_for) == ("cancelled", "held", "approval")
    assert why in before.message
    assert plan.status == "in_progress"
    assert_gapless(plan)


def test_an_approved_call_runs(approved, stage, rosa):
    """Once; its approval is consumed and the plan continues."""
    assert work_off(approved).status == "completed"
    request = request_of(approved)
    assert (stage.values("dangerous"), request.status, request.consumed_at is None) == (["x"], "consumed", False)
    assert [kind for kind in events_of(approved) if kind.startswith("1 ")] == [
        "1 step.started", "1 approval.opened", "1 step.waiting", "1 approval.reviewed", "1 approval.decided",
        "1 step.started", "1 call.started", "1 call.succeeded", "1 tool.invoked", "1 step.completed",
    ]  # fmt: skip


def test_a_file_is_written_as_approved(catalog, workspace, ada, rosa):
    """With the bytes that were shown."""
    (workspace / "note.txt").write_text("old")
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    assert (workspace / "note.txt").read_text() == "old"
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert (workspace / "note.txt").read_text() == "new"


def test_file_changed_after_the_approval_needs_a_new_request(catalog, workspace, ada, rosa):
    """The new request shows the current file; once approved, it runs."""
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    old = approve(plan, rosa)
    (workspace / "note.txt").write_text("someone else's")
    assert_asked_again(work_off(plan), old, "has changed since the approved preview")
    assert (workspace / "note.txt").read_text() == "someone else's"
    assert '"before":"someone else\'s"' in request_of(plan).rounds.get().preview.replace('": "', '":"')
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert (workspace / "note.txt").read_text() == "new"


def test_new_request_is_one_transaction(approved, stage, monkeypatch):
    """If it cannot be stored, the old one remains."""
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    monkeypatch.setattr(lifecycle, "supersede", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        work_off(approved)
    request = request_of(approved)
    assert (request.status, request.call.status) == ("approved", "ready")


def test_a_file_that_changes_after_the_start_is_left_alone(catalog, workspace: Path, ada, rosa):
    """The handler compares again when it writes, and the call fails."""
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    approve(plan, rosa)
    resume = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(resume, ApprovedCall)
    run = loop.advance(resume, TimeSlice("tests"))
    assert isinstance(run, RunningCall)
    (workspace / "note.txt").write_text("someone else's")
    loop.advance(run, TimeSlice("tests"))
    assert (call_of(plan).status, (workspace / "note.txt").read_text()) == ("failed", "someone else's")


def test_a_handler_that_fails_leaves_the_workspace_as_it_was(stage, workspace, ada, rosa):
    """Its changes are undone and the history records it."""
    (workspace / "old.txt").write_text("old")

    def write_and_fail(value: Any, context: Any) -> None:
        context.filesystem.write_text("old.txt", "new")
        context.filesystem.write_text("new.txt", "new")
        raise OSError("full")

    stage.acts["dangerous"] = write_and_fail
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    assert work_off(plan).status == "failed"
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"old.txt": "old"}
    assert "1 call.restored" in events_of(plan)


def test_changed_version_needs_a_new_request(approved, stage):
    other = register_tool(replace(dangerous, description="Do something else."))
    other.preview(lambda value, context: dangerous.preview_for({"value": value}, context))
    sync_tools()
    assert_asked_again(work_off(approved), approved_request(approved), "definition of dangerous changed")
    assert request_of(approved).tool_version.description == "Do something else."


def approved_request(plan: Plan) -> ApprovalRequest:
    """Return the plan's first request."""
    return ApprovalRequest.objects.select_related("call").filter(plan_ref=plan.public_id).earliest("pk")


def test_reviewer_who_lost_their_role_does_not_count(approved, rosa, stage):
    """Another person must approve."""
    rosa.groups.clear()
    assert_asked_again(work_off(approved), approved_request(approved), "may no longer")
    assert stage.values("dangerous") == []


def test_policy_that_denies_at_the_start_fails_the_step(approved, stage):
    """An approval does not override it."""
    PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny", message="Not today.")
    forget_what_was_read()
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("invalidated", "cancelled")
    assert ("Not today." in step_of(approved).error, stage.values("dangerous")) == (True, [])


@pytest.mark.parametrize("noticed", [True, False])
def test_a_tool_that_was_disabled_does_not_start(approved, stage, noticed):
    """No new request is opened, even if this process has not noticed yet."""
    Tool.objects.filter(name="dangerous").update(enabled=False)
    CatalogState.objects.update(revision=1000)
    if noticed:
        forget_what_was_read()
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("invalidated", "cancelled")
    assert call_of(approved).error_kind
    assert stage.values("dangerous") == []


def test_call_that_is_no_longer_possible_fails(catalog, workspace, ada, rosa):
    """The file to delete is gone, so no request is opened."""
    (workspace / "note.txt").write_text("old")
    document = {"step_id": 1, "description": "Delete", "tool": "delete_file", "parameters": {"path": "note.txt"}}
    plan = work_off(make_plan(ada, document))
    approve(plan, rosa)
    (workspace / "note.txt").unlink()
    assert work_off(plan).status == "failed"
    assert (request_of(plan).status, step_of(plan).error != "") == ("invalidated", True)


@pytest.mark.parametrize("ticked", [True, False])
def test_approval_not_used_in_time_expires(approved, stage, ticked):
    """Found by the ticker or by a worker."""
    late = clock.now()
    ApprovalRequest.objects.update(effective_at=late - timedelta(minutes=15), not_after=late)
    if ticked:
        assert deadlines.expire_due(clock.now()) == 1
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("expired", "failed")
    assert "15 min" in step_of(approved).error
    assert stage.values("dangerous") == []
    assert_gapless(approved)


def test_expired_step_is_released(approved, stage):
    """Even if a worker has just claimed it."""
    assert isinstance(loop.claim_work(approved.pk, owner="tests"), ApprovedCall)
    ApprovalRequest.objects.update(not_after=clock.now())
    assert deadlines.expire_due(clock.now()) == 1
    step = step_of(approved)
    assert (step.status, step.lease_until, step.claimed_by, step.ready_at) == ("failed", None, "", None)


def test_retried_call_needs_no_second_approval(stage, ada, rosa):
    PolicyRevision.objects.filter(safety_level="cautious").update(
        effect="hold", stages=[{"group": "reviewer", "count": 1}]
    )
    forget_what_was_read()
    plan = work_off(make_plan(ada, act(1, "x", "cautious_patient")))
    approve(plan, rosa)
    stage.acts["cautious_patient"] = lambda value, context: context.attempt if context.attempt > 1 else 1 / 0
    work_off(plan)
    hurry(plan)
    assert work_off(plan).status == "completed"
    assert (stage.values("cautious_patient"), request_of(plan).status) == (["x", "x"], "consumed")


def test_new_request_has_its_own_preview_timeout(approved, stage):
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    renewal = loop.advance(resumed(approved), TimeSlice("tests"))
    assert isinstance(renewal, StaleApproval)
    loop.abandon(renewal)
    assert (step_of(approved).status, request_of(approved).status) == ("failed", "invalidated")


def resumed(plan: Plan) -> ApprovedCall:
    """Claim an approved call."""
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, ApprovedCall)
    return work
