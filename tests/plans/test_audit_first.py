"""No audit, no dangerous start: where its entry cannot be written a dangerous call does not run. Safe ones go on."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from django.db import DatabaseError, connection, transaction

from plans.models import Plan
from tests.builders import act, approve, call_of, make_plan, work_off

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
    """Let the database take no audit entry, as on a full disk or for a role that may not."""
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
    """It starts once there is room again, by the same approval."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    approve(plan, rosa)
    with no_room():
        assert try_to(plan) == "in_progress"
        assert (stage.played, call_of(plan).status) == ([], "ready")
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["x"]


@pytest.mark.parametrize("tool", ["dangerous", "cautious"])
def test_what_the_log_keeps_does_not_begin(stage, ada, tool):
    """Neither is asked about nor runs."""
    plan = make_plan(ada, act(1, "x", tool))
    with no_room():
        try_to(plan)
        assert stage.played == []
    assert work_off(plan).status == ("in_progress" if tool == "dangerous" else "completed")


def test_nobody_decides(stage, ada, rosa):
    """A decision that cannot be kept is none."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    with no_room(), pytest.raises(DatabaseError), transaction.atomic():
        approve(plan, rosa)
    assert call_of(plan).status == "held"


def test_safe_calls_go_on(stage, ada):
    """They leave no entry."""
    plan = make_plan(ada, act(1, "x"), act(2, "y", dependencies=[1]))
    with no_room():
        assert work_off(plan).status == "completed"
    assert stage.values("safe") == ["x", "y"]
