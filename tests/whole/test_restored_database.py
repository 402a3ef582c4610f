"""Responses of a server with a restored database: nothing starts, and reading works."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction
from django.urls import get_resolver

from approvals.audit import restore_guard
from approvals.audit.checkpoints import write_checkpoint
from approvals.models import AuditEntry
from approvals.states import ReviewVerdict
from catalog.models import Call, Tool
from catalog.testing import clean_registry
from catalog.tools.registry import get_tool
from config.operations import health
from config.operations.restored_database import ALLOWED_ROUTES, REVOKING_ROUTES
from config.serving import lifespan
from plans.actions.control import pause_plan
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import answer
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.pages import Pages
from tests.rest import Rest

CALL = {"tool": "safe", "arguments": {"value": "x"}}
PLAN = {"goal": "Try", "steps": [act(1, "x")]}


@dataclass
class World:
    """Plans as the backup knows them: one waits for people, one has not started, one is paused, one was approved."""

    waiting: Plan
    new: Plan
    paused: Plan
    approved: Plan


@pytest.fixture
def world(stage, ada, rosa, checkpoints, monkeypatch) -> World:
    """A server that starts on a backup, while the checkpoints tell of what came after it."""
    waiting, paused = make_plan(ada, act(1, "w", "dangerous")), make_plan(ada, act(1, "p"))
    new = make_plan(ada, act(1, "n"), start=False)
    pause_plan(paused, by=Requester(ada))
    approved = make_plan(ada, act(1, "a", "dangerous"))
    for plan in (approved, waiting):
        work_off(plan)
    answer(approved, rosa, ReviewVerdict.APPROVE, channel="page")
    backup = transaction.savepoint()
    approve(waiting, rosa)
    assert write_checkpoint()
    transaction.savepoint_rollback(backup)
    monkeypatch.setattr(connection, "close", lambda: None)  # it would lose the test's transaction
    monkeypatch.setattr(restore_guard, "_cached_fault", "")
    assert not lifespan._prepare(executes=False)
    return World(waiting, new, paused, approved)


def approval(world: World) -> dict[str, str]:
    """Return the body of an approval of the waiting request."""
    return {"verdict": "approve", "seen_digest": request_of(world.waiting).digest}


def assert_refused(response: Any) -> None:
    assert (response.status_code, response["Content-Type"]) == (503, "application/problem+json")
    problem = response.json()
    assert problem["type"] == "urn:toolgate:restored" and "manage.py new_epoch" in problem["detail"]


def test_rest_refuses_changes(world, ada, rosa):
    """A review there would be lost, or would answer an already answered request."""
    requester, reviewer = Rest(ada), Rest(rosa)
    before = AuditEntry.objects.count(), Call.objects.count(), Plan.objects.count()
    assert_refused(requester.post("calls/", CALL))
    assert_refused(requester.post("plans/", PLAN, key="once"))
    assert_refused(reviewer.post(f"approvals/{request_of(world.waiting).public_id}/reviews/", approval(world)))
    assert_refused(reviewer.patch("notifications/", {}))
    assert_refused(reviewer.delete("grants/grt_nothing/"))
    assert_refused(reviewer.patch("tokens/999999/", {}))
    assert (AuditEntry.objects.count(), Call.objects.count(), Plan.objects.count()) == before
    assert request_of(world.waiting).status == "pending"


def test_reading_stays_possible(world, ada, rosa):
    assert Rest(ada).get("plans/").status_code == 200
    assert Rest(rosa).get(f"approvals/{request_of(world.waiting).public_id}/").status_code == 200
    assert Rest(ada).post("plans/check/", PLAN).json()["valid"]


def test_pages_display_the_reason(world, rosa, admin):
    request, pages = request_of(world.waiting), Pages(rosa)
    pages.open(f"/approvals/?item={request.public_id}")
    path, fields = f"/approvals/{request.public_id}/decision/", approval(world) | {"comment": "Fine by me."}
    response = pages.swap(path, "pane", fields, 409)
    assert (response["HX-Retarget"], response["HX-Reselect"]) == ("#main", "#main")
    text = pages.send(path, fields, 409)
    assert "manage.py new_epoch" in text and "Fine by me." in text
    assert request_of(world.waiting).status == "pending"
    assert "manage.py new_epoch" in Pages(admin).open("/plans/")


def test_stopping_and_verifying_stay_possible(world, ada, admin):
    rest, pages = Rest(ada), Pages(admin)
    assert rest.post(f"plans/{world.approved.public_id}/pause/").status_code == 200
    assert rest.post(f"plans/{world.new.public_id}/cancel/").status_code == 200
    assert Rest(admin).post("audit/verify/").status_code == 200
    assert Rest(admin).delete("tokens/999999/").status_code == 404
    pages.open("/audit/")
    assert pages.swap("/audit/export/", "", {"format": "csv"})["Content-Type"].startswith("text/csv")
    assert pages.swap("/sign-out/", "", status=302)


def test_allowed_routes_exist():
    assert {name for name in get_resolver().reverse_dict if isinstance(name, str)} >= ALLOWED_ROUTES | REVOKING_ROUTES


def test_a_server_that_starts_there_loads_the_tools(world):
    """Rows of tools stay unchanged, including unknown ones."""
    with clean_registry():
        assert not lifespan._prepare(executes=False)
        assert get_tool("read_file")
    assert not Tool.objects.filter(registered=False).exists()


def test_changes_are_accepted_once_the_fault_is_gone(world, ada, checkpoints):
    checkpoints.unlink()
    assert restore_guard.refresh_status() == ""
    assert Rest(ada).post("calls/", CALL).status_code == 201


def test_a_server_that_executes_nothing_takes_nothing(world, ada, checkpoints, monkeypatch):
    """It started on the backup, so accepted work would wait until a restart."""
    monkeypatch.setattr(restore_guard, "_needs_restart", False)
    assert not lifespan._prepare(executes=True)
    checkpoints.unlink()
    assert restore_guard.refresh_status() == restore_guard.RESTART_REQUIRED
    response = Rest(ada).post("calls/", CALL)
    assert (response.status_code, response.json()["type"]) == (503, "urn:toolgate:restored")
    assert restore_guard.RESTART_REQUIRED in health._check_audit()
