"""Dangerous calls do not run if their audit entry cannot be written; safe ones do."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction

from approvals.audit.checkpoints import write_checkpoint
from approvals.audit.restore_guard import RestoreMonitor
from catalog.core import clock
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan, Step
from tests.builders import act, approve, call_of, make_plan, step_of, work_off
from tests.invariants import assert_invariants

pytestmark = pytest.mark.db

FULL = {
    "sqlite": [
        "CREATE TRIGGER disk_is_full BEFORE INSERT ON approvals_auditentry "
        "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER disk_is_full BEFORE INSERT ON approvals_auditentry "
        "FOR EACH ROW EXECUTE FUNCTION disk_is_full()",
    ],
}
ROOM = {
    "sqlite": "DROP TRIGGER disk_is_full",
    "postgresql": "DROP TRIGGER disk_is_full ON approvals_auditentry; DROP FUNCTION disk_is_full()",
}


@contextmanager
def no_room() -> Iterator[None]:
    """Make the database refuse audit entries, as with a full disk or a missing permission."""
    with connection.cursor() as cursor:
        for statement in FULL[connection.vendor]:
            cursor.execute(statement)
    yield
    with connection.cursor() as cursor:
        cursor.execute(ROOM[connection.vendor])


def try_to(plan: Plan) -> str:
    """Work a plan off as far as it goes; return its status."""
    with suppress(DatabaseError), transaction.atomic():
        work_off(plan)
    plan.refresh_from_db()
    return plan.status


def test_an_approved_call_does_not_start(stage, ada, rosa):
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    approve(plan, rosa)
    with no_room():
        assert try_to(plan) == "in_progress"
        assert (stage.played, call_of(plan).status) == ([], "ready")
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]


@pytest.mark.parametrize("tool", ["dangerous", "cautious"])
def test_dangerous_call_does_not_begin(stage, ada, tool):
    plan = make_plan(ada, act(1, "x", tool))
    with no_room():
        try_to(plan)
        assert stage.played == []
    assert work_off(plan).status == ("in_progress" if tool == "dangerous" else "completed")


def test_decision_is_refused(stage, ada, rosa):
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    with no_room(), pytest.raises(DatabaseError), transaction.atomic():
        approve(plan, rosa)
    assert call_of(plan).status == "held"


def test_safe_calls_go_on(stage, ada):
    plan = make_plan(ada, act(1, "x"), act(2, "y", dependencies=[1]))
    with no_room():
        assert work_off(plan).status == "completed"
    assert stage.values("safe") == ["x", "y"]


def full_disk(checkpoints: Path) -> None:
    """Make writing the checkpoints' file fail, as on a full disk."""
    checkpoints.unlink(missing_ok=True)
    checkpoints.symlink_to("/dev/full")


def closed(checkpoints: Path) -> None:
    """Make opening the checkpoints' file fail."""
    checkpoints.unlink(missing_ok=True)
    checkpoints.mkdir()


def space_again(checkpoints: Path) -> None:
    """Make the checkpoints' file writable again, and run the ticker's check."""
    (checkpoints.rmdir if checkpoints.is_dir() else checkpoints.unlink)()
    RestoreMonitor().check()
    Step.objects.exclude(ready_at=None).update(ready_at=clock.now())


@pytest.mark.parametrize("spoil", [full_disk, closed])
def test_no_dangerous_call_starts_unwitnessed(stage, ada, rosa, checkpoints, spoil):
    """It waits while others of its plan continue, and later starts by the same approval."""
    plan = make_plan(ada, act(1, "x", "dangerous"), act(2, "y"))
    work_off(plan)
    approve(plan, rosa)
    spoil(checkpoints)
    write_checkpoint()
    assert work_off(plan).status == "in_progress"
    assert (stage.values("dangerous"), stage.values("safe")) == ([], ["y"])
    assert (step_of(plan).waiting_for, call_of(plan).status) == ("retry", "ready")
    space_again(checkpoints)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]
    assert_invariants()


def test_a_started_call_whose_checkpoint_fails_is_put_back(stage, ada, rosa, checkpoints):
    """The disk fills up at that moment; the start does not count as an attempt."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    approve(plan, rosa)
    resume = loop.claim_work(plan.pk, owner="tests")
    assert resume is not None
    run = loop.advance(resume, TimeSlice("tests"))
    assert isinstance(run, RunningCall)
    full_disk(checkpoints)
    assert loop.advance(run, TimeSlice("tests")) is None
    assert (stage.played, call_of(plan).status, call_of(plan).attempt) == ([], "ready", 0)
    space_again(checkpoints)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]
    assert_invariants()
