"""A change of a tool invalidates its open requests and replaces them."""

import pytest

from approvals.errors import Drift
from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.lifecycle import invalidate_outdated
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.sync import sync_tools
from catalog.models import Tool
from catalog.tools.registry import register_tool
from plans.models import Plan
from tests.builders import act, approve, assert_gapless, events_of, make_plan, request_of, step_of, work_off
from tests.conftest import forget_what_was_read
from tests.plans.factories import hurry
from tests.tools_for_tests import dangerous


@pytest.fixture
def waiting(stage, ada) -> Plan:
    """A plan whose dangerous step waits for approval."""
    return work_off(make_plan(ada, act(1, "x", "dangerous")))


def describe(text, admin):
    """Change the tool's description, which creates a new version, and run the work after its commit."""
    apply_overrides("dangerous", {"description_override": text}, by=admin)
    return invalidate_outdated()


def assert_void(request: ApprovalRequest) -> None:
    """Check that the request ended with a message for its requester."""
    request.refresh_from_db()
    assert (request.status, request.call.status) == ("invalidated", "cancelled")
    assert request.call.error_kind == f"changed:{Drift.DEFINITION}"
    assert "definition of dangerous changed from version 1 to 2" in request.call.message
    kept = AuditEntry.objects.filter(action="approval.invalidated", object_ref=request.public_id).get().details_json
    assert (kept["what"], kept["reason"]) == (Drift.DEFINITION, request.call.message)


def test_open_request_is_replaced_after_a_tool_change(waiting, admin, rosa, stage):
    old = request_of(waiting)

    assert describe("Another description.", admin) == 1

    assert_void(old)
    assert (step_of(waiting).waiting_for, step_of(waiting).status) == ("retry", "in_progress")
    hurry(waiting)
    plan = work_off(waiting)
    new = request_of(plan)
    old.refresh_from_db()
    assert (old.superseded_by, new.status, new.tool_version.number) == (new, "pending", 2)
    assert [kind for kind in events_of(plan) if "approval" in kind or "retrying" in kind] == [
        "1 approval.opened", "1 step.retrying", "1 approval.opened",
    ]  # fmt: skip
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]
    assert_gapless(plan)


def test_unused_approval_is_replaced_after_a_tool_change(waiting, admin, rosa, stage):
    approve(waiting, rosa)
    old = request_of(waiting)

    assert describe("Another description.", admin) == 1

    assert_void(old)
    hurry(waiting)
    assert (work_off(waiting).status, request_of(waiting).status, stage.values("dangerous")) == (
        "in_progress", "pending", [],
    )  # fmt: skip


def test_call_runs_after_its_level_was_lowered(waiting, admin, stage):
    old = request_of(waiting)
    apply_overrides("dangerous", {"safety_level": "cautious"}, by=admin, reason="It only plays.")
    assert invalidate_outdated() == 1

    hurry(waiting)

    assert work_off(waiting).status == "completed"
    assert stage.values("dangerous") == ["x"]
    assert_void(old)


def test_closed_and_current_requests_are_unchanged(waiting, admin, rosa, ada, stage):
    approve(waiting, rosa)
    work_off(waiting)
    other = work_off(make_plan(ada, act(1, "y", "dangerous")))
    assert invalidate_outdated() == 0

    assert describe("Another description.", admin) == 1

    assert request_of(waiting).status == "consumed"
    assert (request_of(other).status, invalidate_outdated()) == ("invalidated", 0)


def test_code_change_replaces_the_request(waiting):
    register_tool(dangerous.with_changes(
        description="Changed in code.", safety_level=dangerous.safety_level, categories=dangerous.categories,
    ))  # fmt: skip
    assert sync_tools().drifted == ["dangerous"]
    assert invalidate_outdated() == 1

    assert_void(request_of(waiting))
    forget_what_was_read()


def test_weights_categories_and_enabling_keep_requests(waiting, admin):
    code = Tool.objects.get(name="dangerous").implementations.get()
    apply_overrides("dangerous", {"categories": ["x"], "implementations": [{"id": code.pk, "weight": 3}]}, by=admin)

    assert invalidate_outdated() == 0
    assert request_of(waiting).status == "pending"
