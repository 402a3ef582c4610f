"""From an approval to the run: what was approved is what runs, once; a change meanwhile asks again or ends it."""

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
from plans.engine import execution
from plans.engine.execution import TimeSlice
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
    """A plan whose dangerous step is approved and has not started, with a step after it."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, dependencies=[1])))
    approve(plan, rosa)
    return plan


def assert_asked_again(plan: Plan, old: ApprovalRequest, why: str) -> None:
    """Check that nothing ran and that another request stands in the old one's place, linked in both directions."""
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
    """Once; its request is used up; the plan goes on."""
    assert work_off(approved).status == "completed"
    request = request_of(approved)
    assert (stage.values("dangerous"), request.status, request.consumed_at is None) == (["x"], "consumed", False)
    assert [kind for kind in events_of(approved) if kind.startswith("1 ")] == [
        "1 step.started", "1 approval.opened", "1 step.waiting", "1 approval.reviewed", "1 approval.decided",
        "1 step.started", "1 call.started", "1 call.succeeded", "1 tool.invoked", "1 step.completed",
    ]  # fmt: skip


def test_a_file_is_written_as_approved(catalog, workspace, ada, rosa):
    """The bytes that were shown."""
    (workspace / "note.txt").write_text("old")
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    assert (workspace / "note.txt").read_text() == "old"
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert (workspace / "note.txt").read_text() == "new"


def test_a_file_that_changed_after_the_approval_asks_again(catalog, workspace, ada, rosa):
    """The new request shows the file as it is; once that is approved, it runs."""
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    old = approve(plan, rosa)
    (workspace / "note.txt").write_text("someone else's")
    assert_asked_again(work_off(plan), old, "has changed since the approved preview")
    assert (workspace / "note.txt").read_text() == "someone else's"
    assert '"before":"someone else\'s"' in request_of(plan).rounds.get().preview.replace('": "', '":"')
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert (workspace / "note.txt").read_text() == "new"


def test_asking_again_is_one_transaction(approved, stage, monkeypatch):
    """If the new request cannot be stored, the old one stands."""
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    monkeypatch.setattr(lifecycle, "supersede", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        work_off(approved)
    request = request_of(approved)
    assert (request.status, request.call.status) == ("approved", "ready")


def test_a_file_that_changes_after_the_start_is_left_alone(catalog, workspace: Path, ada, rosa):
    """The handler compares once more when it writes: the call fails."""
    plan = work_off(make_plan(ada, write_step(1, content="new")))
    approve(plan, rosa)
    resume = execution.claim_work(plan.pk, owner="tests")
    assert isinstance(resume, ApprovedCall)
    run = execution.advance(resume, TimeSlice("tests"))
    assert isinstance(run, RunningCall)
    (workspace / "note.txt").write_text("someone else's")
    execution.advance(run, TimeSlice("tests"))
    assert (call_of(plan).status, (workspace / "note.txt").read_text()) == ("failed", "someone else's")


def test_a_handler_that_fails_leaves_the_workspace_as_it_was(stage, workspace, ada, rosa):
    """What it wrote is undone, and the history says so."""
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


def test_another_version_asks_again(approved, stage):
    """The one that was approved is not the one that would run."""
    other = register_tool(replace(dangerous, description="Do something else."))
    other.preview(lambda value, context: dangerous.preview_for({"value": value}, context))
    sync_tools()
    assert_asked_again(work_off(approved), approved_request(approved), "definition of dangerous changed")
    assert request_of(approved).tool_version.description == "Do something else."


def approved_request(plan: Plan) -> ApprovalRequest:
    """Return the plan's first request."""
    return ApprovalRequest.objects.select_related("call").filter(plan_ref=plan.public_id).earliest("pk")


def test_a_reviewer_who_may_not_any_more_does_not_count(approved, rosa, stage):
    """Someone else must agree."""
    rosa.groups.clear()
    assert_asked_again(work_off(approved), approved_request(approved), "may no longer")
    assert stage.values("dangerous") == []


def test_a_policy_that_refuses_now_fails_the_step(approved, stage):
    """People agreed, but it is not theirs to allow."""
    PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny", message="Not today.")
    forget_what_was_read()
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("invalidated", "cancelled")
    assert ("Not today." in step_of(approved).error, stage.values("dangerous")) == (True, [])


@pytest.mark.parametrize("noticed", [True, False])
def test_a_tool_that_was_disabled_does_not_start(approved, stage, noticed):
    """Nor are people asked again, also where this process has not noticed yet."""
    Tool.objects.filter(name="dangerous").update(enabled=False)
    CatalogState.objects.update(revision=1000)
    if noticed:
        forget_what_was_read()
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("invalidated", "cancelled")
    assert call_of(approved).error_kind
    assert stage.values("dangerous") == []


def test_a_call_that_cannot_be_carried_out_any_more_fails(catalog, workspace, ada, rosa):
    """The file to delete is gone: there is nothing to ask about."""
    (workspace / "note.txt").write_text("old")
    document = {"step_id": 1, "description": "Delete", "tool": "delete_file", "parameters": {"path": "note.txt"}}
    plan = work_off(make_plan(ada, document))
    approve(plan, rosa)
    (workspace / "note.txt").unlink()
    assert work_off(plan).status == "failed"
    assert (request_of(plan).status, step_of(plan).error != "") == ("invalidated", True)


@pytest.mark.parametrize("ticked", [True, False])
def test_an_approval_that_was_not_used_in_time_expires(approved, stage, ticked):
    """Whether the clock finds it first or whoever would start it."""
    late = clock.now()
    ApprovalRequest.objects.update(effective_at=late - timedelta(minutes=15), not_after=late)
    if ticked:
        assert deadlines.expire_due(clock.now()) == 1
    assert work_off(approved).status == "failed"
    assert (request_of(approved).status, call_of(approved).status) == ("expired", "failed")
    assert "15 min" in step_of(approved).error
    assert stage.values("dangerous") == []
    assert_gapless(approved)


def test_an_expired_step_is_let_go_of(approved, stage):
    """Also when a worker had just claimed it: nothing of its lease is left."""
    assert isinstance(execution.claim_work(approved.pk, owner="tests"), ApprovedCall)
    ApprovalRequest.objects.update(not_after=clock.now())
    assert deadlines.expire_due(clock.now()) == 1
    step = step_of(approved)
    assert (step.status, step.lease_until, step.claimed_by, step.ready_at) == ("failed", None, "", None)


def test_a_call_that_is_tried_again_needs_no_second_approval(stage, ada, rosa):
    """It is the same call, and its approval was used for it."""
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


def test_asking_again_has_its_own_time_for_the_preview(approved, stage):
    """A preview that hangs the second time is given up as it would be the first time."""
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    renewal = execution.advance(resumed(approved), TimeSlice("tests"))
    assert isinstance(renewal, StaleApproval)
    execution.abandon(renewal)
    assert (step_of(approved).status, request_of(approved).status) == ("failed", "invalidated")


def resumed(plan: Plan) -> ApprovedCall:
    """Claim an approved call."""
    work = execution.claim_work(plan.pk, owner="tests")
    assert isinstance(work, ApprovedCall)
    return work
