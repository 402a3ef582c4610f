"""`manage.py check_invariants`: output, exit codes, and read-only operation."""

import json
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection

from catalog.signals import record_fact
from plans.invariants.base import known_invariants, long_read_snapshot
from plans.models import Plan
from tests.builders import act, make_plan, work_off
from tests.plans.invariants.worlds import corrupt

pytestmark = pytest.mark.db

GIVEN = ["I10", "I14", "I15"]


def check(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and output."""
    output = StringIO()
    try:
        call_command("check_invariants", *options, stdout=output)
    except SystemExit as end:
        return int(end.code or 0), output.getvalue()
    return 0, output.getvalue()


@pytest.fixture
def plan(stage: Any, ada: Any) -> Plan:
    """A completed plan."""
    return work_off(make_plan(ada, act(1, "x")))


def test_success_is_reported(plan, monkeypatch):
    """Without roles, which the test users have without audit entries."""
    monkeypatch.setattr("plans.invariants.audit_log._roles", lambda: iter(()))
    monkeypatch.setattr("plans.invariants.audit_log.changed_rows", lambda: iter(()))
    code, said = check("--json")
    every = [each.id for each in known_invariants()]
    checked = [each for each in every if each not in GIVEN]
    assert every == [f"I{number}" for number in range(1, 23)]
    assert (code, json.loads(said)) == (0, {"ok": True, "checked": checked, "not_checked": GIVEN, "violations": []})


def test_violations_are_reported(plan):
    """The invariant, ids, number and reasons; for people one line each, with the input a check needs."""
    corrupt("UPDATE plans_plan SET status = 'failed' WHERE id = %s", plan.pk)
    code, said = check("--json")
    why = "The status of the plan does not follow from its events."
    told = {"invariant": "I8", "ids": [plan.public_id], "count": 1, "reasons": {why: 1}}
    assert code == 1 and told in json.loads(said)["violations"]
    code, said = check()
    assert (code, len([line for line in said.splitlines() if line.startswith("I")])) == (1, 22)
    assert "I8  1 broken" in said and f"    1: {why}\n    {plan.public_id}\n" in said
    assert "I10 not checked" in said and "--effects" in said


def test_long_lists_are_cut(plan):
    """All findings are counted, a hundred are named."""
    Plan.objects.bulk_create(
        Plan(goal="x", author=plan.author, created_at=plan.created_at, last_seq=3) for _ in range(150)
    )
    found = next(each for each in json.loads(check("--json")[1])["violations"] if each["invariant"] == "I9")
    assert (found["count"], len(found["ids"])) == (150, 100)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--effects", "not-there"], "cannot be read"),
        (["--grace", "-1"], "0 to 1,000,000"),
        (["--grace", "nan"], "0 to 1,000,000"),
        (["--captures", "x"], "--canary"),
        (["--canary", "abc"], "fewer than 6"),
        (["--secret", "half of a pair \udc80"], "characters that a database cannot store"),
        (["--canary", "long enough", "--captures", "not-there"], "cannot be read"),
    ],
)
def test_impossible_checks_are_reported(db, options, why):
    """With their own exit code."""
    with pytest.raises(CommandError, match=why) as refusal:
        check(*options)
    assert refusal.value.returncode == 2


def test_missing_database_is_no_violation(db, monkeypatch):
    monkeypatch.setattr("plans.invariants.structure.NUMBERED", "SELECT x FROM not_there")
    with pytest.raises(CommandError) as refusal:
        check()
    assert refusal.value.returncode == 2


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL stores no other types")
@pytest.mark.parametrize("value", ["x'ff'", "CAST(x'ff' AS TEXT)", "'{'"])
def test_malformed_row_is_a_violation(db, ada, value):
    record_fact("tool.changed", tool="x")
    corrupt(f"UPDATE approvals_auditentry SET details = {value}")  # noqa: S608 - the values above
    code, said = check()
    assert code == 1 and "audit#1" in said


def test_check_reads_a_snapshot_and_writes_nothing(transactional_db, catalog, ada):
    """Concurrent writers are neither seen nor blocked."""

    def write() -> None:
        make_plan(ada, {"step_id": 1, "description": "Think"})
        connection.close()

    with long_read_snapshot():
        before = Plan.objects.count()
        writer = threading.Thread(target=write)
        writer.start()
        writer.join(timeout=30)
        assert (writer.is_alive(), Plan.objects.count()) == (False, before)
        with pytest.raises(DatabaseError):
            Plan.objects.update(goal="changed")
    assert Plan.objects.get().goal == "Try it"
    Plan.objects.update(goal="changed")


def test_the_file_of_effects_may_be_empty(db, tmp_path: Path):
    (tmp_path / "sink").touch()
    assert "I10" in json.loads(check("--json", "--effects", str(tmp_path / "sink"))[1])["checked"]
