"""A restored database: nothing starts on it, and after a new epoch no earlier approval is used."""

from contextlib import suppress
from dataclasses import dataclass
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals.audit import restore_guard
from approvals.audit.checkpoints import write_checkpoint
from approvals.audit.restore_guard import detect_restore
from approvals.audit.verification import verify
from approvals.models import AuditEntry, Grant
from catalog.core import clock
from catalog.errors import RestoredDatabase
from catalog.models import Tool
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.models import Plan
from tests.builders import act, approve, call_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants
from tests.pages import Pages

WHY = "The disk was replaced; restored last night's backup."


@dataclass
class World:
    """Plans as a backup found them; since then they went on, and the backup was restored."""

    waiting: Plan
    approved: Plan
    running: Plan
    lost_seq: int


@pytest.fixture
def world(stage, ada, rosa, checkpoints, monkeypatch) -> World:
    """One plan waits for a person, one was approved, one runs a dangerous call; then all went on, and was set back."""
    waiting, approved, running = (make_plan(ada, act(1, name, "dangerous")) for name in ("w", "a", "r"))
    for plan in (waiting, approved, running):
        work_off(plan)
    approve(running, rosa)
    work = loop.claim_work(running.pk, owner="lost")
    assert work is not None and isinstance(loop.advance(work, TimeSlice("lost")), RunningCall)
    approve(approved, rosa)
    write_checkpoint()
    backup = transaction.savepoint()
    approve(waiting, rosa)
    assert (work_off(waiting).status, work_off(approved).status) == ("completed", "completed")
    assert write_checkpoint()
    lost_seq = AuditEntry.objects.order_by("-seq")[0].seq
    transaction.savepoint_rollback(backup)
    monkeypatch.setattr(connection, "close", lambda: None)  # commands do, and it would lose the test's transaction
    return World(waiting, approved, running, lost_seq)


def begin(reason: str = WHY) -> str:
    """Begin a new epoch by the command; return what it says."""
    output = StringIO()
    call_command("new_epoch", reason=reason, stdout=output)
    return output.getvalue()


def test_commands_refuse_to_execute(world, settings, monkeypatch):
    assert str(world.lost_seq) in detect_restore()
    settings.TOOLGATE_EXECUTOR = "procrastinate"
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {})
    for command in (["worker"], ["run_plan", "nothing.json"], ["demo", "--no-serve"]):
        with pytest.raises(CommandError, match=str(world.lost_seq)):
            call_command(*command)


def test_what_was_approved_does_not_start(world, stage):
    played = list(stage.played)
    with suppress(RestoredDatabase):
        work_off(world.approved)
    assert (stage.played, call_of(world.approved).status) == (played, "ready")


def test_executor_claims_nothing_more(world, stage, monkeypatch):
    monkeypatch.setattr(restore_guard, "_cached_fault", "")
    pool = ExecutorPool(threads=1)
    ticker, entries = Ticker(pool), AuditEntry.objects.count()
    monkeypatch.setattr(ticker, "_wake", lambda: pytest.fail("worked"))
    ticker.tick()
    assert pool._stopping.is_set() and str(world.lost_seq) in restore_guard.cached_fault()
    assert AuditEntry.objects.count() == entries


def test_administrators_are_told_on_every_page(world, admin, rosa, monkeypatch):
    monkeypatch.setattr(restore_guard, "_cached_fault", detect_restore())
    assert "Nothing is started." in Pages(admin).open("/plans/")
    assert "Nothing is started." not in Pages(rosa).open("/plans/")


def test_the_probe_says_so(world, client):
    from config.operations import health  # noqa: PLC0415 - it remembers what it has seen

    assert "manage.py new_epoch" in health._check_audit()


def test_a_new_epoch_voids_what_was_open(world, stage):
    before = AuditEntry.objects.order_by("-seq")[0].seq
    assert f"{world.lost_seq - before:,}" in begin()
    assert detect_restore() == "" and verify().intact
    assert (call_of(world.running).status, step_of(world.running).waiting_for) == ("outcome_unknown", "outcome")
    began = AuditEntry.objects.get(action="epoch.began")
    assert began.details_json["reason"] == WHY and began.details_json["known_to"] == world.lost_seq
    assert {request_of(each).status for each in (world.waiting, world.approved)} == {"invalidated"}


def test_nothing_old_runs_after_a_new_epoch(world, stage, rosa):
    begin()
    ran = stage.values("dangerous")
    world.approved.steps.update(ready_at=clock.now())
    work_off(world.approved)
    assert (stage.values("dangerous"), request_of(world.approved).status) == (ran, "pending")
    approve(world.approved, rosa)
    assert work_off(world.approved).status == "completed"
    assert stage.values("dangerous") == [*ran, "a"]
    assert_invariants()


def test_the_log_goes_on_and_is_witnessed(world, stage, rosa):
    begin()
    world.waiting.steps.update(ready_at=clock.now())
    work_off(world.waiting)
    approve(world.waiting, rosa)
    assert write_checkpoint() and detect_restore() == "" and verify().intact
    begin("Once more.")
    assert detect_restore() == "" and verify().intact


def test_grants_end_with_their_epoch(world, admin):
    tool = Tool.objects.select_related("current_version").get(name="dangerous")
    Grant.objects.create(
        tool=tool,
        fingerprint="f" * 64,
        scope="requester",
        scope_ref="ada",
        epoch=1,
        created_by=admin,
        created_at=clock.now(),
        expires_at=clock.now().replace(year=2999),
        max_uses=3,
    )
    with CaptureQueriesContext(connection) as done:
        begin()
    [update] = [each["sql"] for each in done if each["sql"].startswith('UPDATE "approvals_grant"')]
    assert '"revoked_at" IS NULL' in update  # whoever ended it a moment before keeps their reason
    grant = Grant.objects.get()
    assert grant.revoked_at is not None and WHY in grant.ended_because
    assert AuditEntry.objects.get(action="grant.revoked").object_ref == grant.public_id


@pytest.mark.parametrize("reason", ["", " ", "x" * 1001])
def test_a_new_epoch_has_a_reason(world, reason):
    with pytest.raises(CommandError):
        begin(reason)


def test_a_new_epoch_that_was_cut_off_is_begun_again(world, stage, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("approvals.recovery._raise_epoch", lambda *_, **__: 1 / 0)
        begin()
    assert detect_restore() != ""
    begin()
    assert detect_restore() == "" and verify().intact
