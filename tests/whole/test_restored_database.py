"""Responses of a server with a restored database: nothing starts, and reading works."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from approvals.audit import restore_guard
from approvals.models import AuditEntry
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.models import Call, Tool
from catalog.testing import clean_registry
from catalog.tools.registry import get_tool
from config.operations import health
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
    assert restore_guard.write_checkpoint()
    transaction.savepoint_rollback(backup)
    monkeypatch.setattr(connection, "close", lambda: None)  # it would lose the test's transaction
    monkeypatch.setattr(restore_guard, "_cached_fault", "")
    assert not lifespan._prepare(executes=False)
    return World(waiting, new, paused, approved)


def review(world: World, verdict: str = "reject") -> dict[str, str]:
    """Return an answer to the request that waits."""
    return {"verdict": verdict, "comment": "No.", "seen_digest": request_of(world.waiting).digest}


def item(world: World) -> dict[str, str]:
    """Return the request that waits as a batch names it."""
    request = request_of(world.waiting)
    return {"id": request.public_id, "seen_digest": request.digest}


def batch(world: World, **answer: str) -> dict[str, Any]:
    """Return an answer to the request that waits, as to one of many."""
    return {**answer, "items": [item(world)]}


def later() -> str:
    """Return a time before the request expires."""
    return format_utc(clock.now() + timedelta(minutes=5))


def about(plan: Plan, do: str) -> str:
    """Return the path under which something is done about the request of a plan."""
    return f"approvals/{request_of(plan).public_id}/{do}/"


Door = Callable[[World], tuple[str, Any]]
ASKERS: dict[str, Door] = {
    "call": lambda _: ("calls/", CALL),
    "call of no tool": lambda _: ("calls/", {"tool": "nowhere", "arguments": {}}),
    "plan": lambda _: ("plans/", PLAN),
    "start": lambda world: (f"plans/{world.new.public_id}/start/", {}),
    "resume": lambda world: (f"plans/{world.paused.public_id}/resume/", {}),
    "retry": lambda world: (f"plans/{world.waiting.public_id}/retry/", {}),
    "skip": lambda world: (f"plans/{world.waiting.public_id}/steps/1/skip/", {"reason": "No."}),
    "withdraw": lambda world: (about(world.waiting, "withdraw"), {}),
}
REVIEWERS: dict[str, Door] = {
    "approve": lambda world: (about(world.waiting, "reviews"), review(world, "approve")),
    "reject": lambda world: (about(world.waiting, "reviews"), review(world)),
    "batch": lambda world: ("approvals/batch/", {"verdict": "reject", "comment": "No.", "items": [item(world)]}),
    "batch put off": lambda world: (
        "approvals/batch/",
        {"verdict": "snooze", "until": later(), "items": [item(world)]},
    ),
    "slice": lambda world: ("approvals/slice/", {"plan": world.waiting.public_id, "items": [item(world)]}),
    "undo": lambda world: (about(world.approved, "undo"), {}),
    "revoke": lambda world: (about(world.approved, "revoke"), {}),
    "claim": lambda world: (about(world.waiting, "claim"), {}),
    "release": lambda world: (about(world.waiting, "release"), {}),
    "extend": lambda world: (about(world.waiting, "extend"), {}),
    "snooze": lambda world: (about(world.waiting, "snooze"), {"until": later()}),
    "wake": lambda world: (about(world.waiting, "snooze"), {"until": None}),
    "delegate": lambda world: (about(world.waiting, "delegate"), {"to": "ada"}),
    "comment": lambda world: (about(world.waiting, "comments"), {"text": "Look."}),
}


def assert_refused(rest: Rest, door: str, path: str, body: Any) -> None:
    """Assert that the door says what the matter is, with a key and without, and that nothing was written."""
    before = AuditEntry.objects.count(), Call.objects.count(), Plan.objects.count()
    for key in (None, f"once {door}".replace(" ", "-")):
        response = rest.post(path, body, key=key)
        assert (response.status_code, response["Content-Type"]) == (503, "application/problem+json"), door
        told = response.json()
        assert told["type"] == "urn:toolgate:restored"
        assert "manage.py new_epoch" in told["detail"]
    assert (AuditEntry.objects.count(), Call.objects.count(), Plan.objects.count()) == before, door


def test_requests_are_refused_with_the_reason(world, ada):
    for name, door in ASKERS.items():
        assert_refused(Rest(ada), name, *door(world))


def test_decisions_are_refused_with_the_reason(world, rosa):
    """A review there would be lost, or would answer an already answered request."""
    for name, door in REVIEWERS.items():
        assert_refused(Rest(rosa), name, *door(world))
    assert [request_of(plan).status for plan in (world.waiting, world.approved)] == ["pending", "approved"]


def test_reading_stays_possible(world, ada, rosa):
    assert Rest(ada).get("plans/").status_code == 200
    assert Rest(rosa).get(f"approvals/{request_of(world.waiting).public_id}/").status_code == 200
    assert Rest(ada).post("plans/check/", PLAN).json()["valid"]


def test_a_server_that_starts_there_loads_the_tools(world):
    """Rows of tools stay unchanged, including unknown ones."""
    with clean_registry():
        assert not lifespan._prepare(executes=False)
        assert get_tool("read_file")
    assert not Tool.objects.filter(registered=False).exists()


def test_pages_display_the_reason(world, ada, rosa, admin):
    request, pages = request_of(world.waiting), Pages(rosa)
    pages.open(f"/approvals/?item={request.public_id}")
    fields = review(world) | {"confirmed": "1"}
    said = pages.send(f"/approvals/{request.public_id}/decision/", fields, 409)
    assert "manage.py new_epoch" in said and request_of(world.waiting).status == "pending"
    owner = Pages(ada)
    owner.open(f"/plans/{world.new.public_id}/")
    assert "manage.py new_epoch" in owner.send(f"/plans/{world.new.public_id}/start/", {}, 409)
    assert "manage.py new_epoch" in Pages(admin).open("/plans/")


def test_pages_say_it_of_what_is_done_beside_deciding(world, rosa):
    pages, fields = Pages(rosa), {"until": later(), "to": "ada", "comment": "So."}
    done = {world.approved: ("undo", "revoke"), world.waiting: ("claim", "extend", "snooze", "delegate", "comment")}
    for plan, does in done.items():
        request = request_of(plan)
        pages.open(f"/approvals/?item={request.public_id}")
        for do in does:
            said = pages.send(f"/approvals/{request.public_id}/{do}/", fields, 409)
            assert "manage.py new_epoch" in said, do
        assert request_of(plan).status == request.status


def test_requester_cannot_withdraw(world, ada):
    request, pages = request_of(world.waiting), Pages(ada)
    pages.open(f"/approvals/?item={request.public_id}")
    assert "manage.py new_epoch" in pages.send(f"/approvals/{request.public_id}/withdraw/", {}, 409)
    assert request_of(world.waiting).status == "pending"


def test_a_database_that_is_itself_again_takes_everything(world, ada, rosa, checkpoints):
    checkpoints.unlink()
    assert restore_guard.refresh_status() == ""
    assert Rest(ada).post("calls/", CALL).status_code == 201
    path, body = REVIEWERS["reject"](world)
    assert Rest(rosa).post(path, body).status_code == 201


def test_a_server_that_executes_nothing_takes_nothing(world, ada, checkpoints, monkeypatch):
    """It started on the backup, so accepted work would wait until a restart."""
    monkeypatch.setattr(restore_guard, "_needs_restart", False)
    assert not lifespan._prepare(executes=True)
    checkpoints.unlink()
    assert restore_guard.refresh_status() == restore_guard.RESTART_REQUIRED
    response = Rest(ada).post("calls/", CALL)
    assert (response.status_code, response.json()["type"]) == (503, "urn:toolgate:restored")
    assert restore_guard.RESTART_REQUIRED in health._check_audit()
