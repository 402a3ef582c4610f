"""Health checks: reported problems, response time, public content."""

import itertools
import os
import sqlite3
import threading

import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from approvals.audit.checkpoints import write_checkpoint
from approvals.audit.log import AuditRecord, append_entry
from approvals.models import Instance
from catalog.core import clock
from catalog.inventory import snapshot
from catalog.models import Tool
from config.operations import health
from plans.executor import heartbeats

pytestmark = pytest.mark.db

PEERS = ("cluster", "executor")
NAMES = ["database", "migrations", "audit", "clock", "tools", "cluster", "executor", "late_tools"]


@pytest.fixture(autouse=True)
def anew():
    """Clear cached results before every test."""
    health._database_probe.forget()
    health._last_state.clear()
    yield
    health._database_probe.forget()
    health._last_state.clear()


def checks(client) -> dict[str, str]:
    """Return a fresh readiness response."""
    health._database_probe.forget()
    found: dict[str, str] = client.get("/readyz").json()["checks"]
    return found


def failing(response) -> list[str]:
    """Return the names of the checks that fail, apart from those of a process without an executor."""
    found = response.json()["checks"]
    return [
        name for name, said in found.items() if said not in (health.OK, health.UNKNOWN_RESULT) and name not in PEERS
    ]


def fail(*arguments: object, **options: object) -> None:
    """Stand in for a database that is away."""
    raise DatabaseError("to nobody: a secret")


def test_a_process_that_answers_is_up(client):
    assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.django_db(transaction=True)
def test_a_process_with_its_database_is_ready(client, executor):
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"ready": True, "checks": dict.fromkeys(NAMES, "ok")})


@pytest.mark.django_db(transaction=True)
def test_missing_executor_is_reported(client, catalog):
    response = client.get("/readyz")
    assert (response.status_code, response.json()["ready"]) == (200, True)
    assert response.json()["checks"]["cluster"] != health.OK
    heartbeats.record_heartbeat("elsewhere", 4)
    assert checks(client)["cluster"] == "ok"


@pytest.mark.django_db(transaction=True)
def test_drifted_tools_are_counted_and_stop_nothing(client, catalog):
    Tool.objects.get(name="read_file").versions.update(fingerprint="f" * 64)
    snapshot.drop_snapshot()
    response = client.get("/readyz")
    assert (response.status_code, response.json()["checks"]["tools"][:9]) == (200, "1 drifted")
    assert "read_file" not in response.content.decode()


@pytest.mark.django_db(transaction=True)
def test_without_its_database_a_process_is_not_ready(client, monkeypatch):
    monkeypatch.setattr(health, "_file_takes_writes", fail)
    monkeypatch.setattr(health, "_server_takes_writes", fail)
    response = client.get("/readyz")
    found = response.json()["checks"]
    assert (response.status_code, response.json()["ready"]) == (503, False)
    assert found["database"] not in (health.OK, health.UNKNOWN_RESULT)
    assert found["migrations"] == found["audit"] == health.UNKNOWN_RESULT
    assert "secret" not in response.content.decode()


def test_hanging_database_does_not_block_probes(monkeypatch):
    """The query continues in its own thread, and only once."""
    gate, looks = threading.Event(), itertools.count(1)
    held = health.CachedProbe(lambda: (next(looks), gate.wait(30)), keep=60)
    with monkeypatch.context() as patch:
        patch.setattr(health, "PROBE_TIMEOUT_SECONDS", 0.01)
        assert [held.get() for _ in range(3)] == [None] * 3
    gate.set()
    assert (held.get(), next(looks)) == ((1, True), 2)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_no_writes_is_not_ready(client, monkeypatch):
    """A standby still answers queries."""
    monkeypatch.setattr(health, "_file_takes_writes", lambda: False)
    monkeypatch.setattr(health, "_server_takes_writes", lambda: False)
    response = client.get("/readyz")
    assert (response.status_code, failing(response)) == (503, ["database"])


@pytest.mark.django_db(transaction=True)
def test_the_real_database_is_found_writable():
    assert health._file_takes_writes() if settings.ON_SQLITE else health._server_takes_writes()


@pytest.mark.skipif(not settings.ON_SQLITE, reason="a server's disk is not this machine's")
@pytest.mark.django_db(transaction=True)
def test_full_disk_is_named(client, monkeypatch):
    monkeypatch.setattr(health, "_file_takes_writes", lambda: False)
    said = checks(client)["database"]
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 100, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    for writable in (True, False):
        monkeypatch.setattr(health, "_file_takes_writes", lambda writable=writable: writable)
        assert checks(client)["database"] not in (health.OK, said)
    assert client.get("/readyz").status_code == 503


@pytest.mark.django_db(transaction=True)
def test_checkpoints_that_cannot_be_written_are_named(client, checkpoints):
    append_entry(AuditRecord(action="tool.changed"))
    assert checks(client)["audit"] == health.OK
    checkpoints.symlink_to("/dev/full")
    write_checkpoint()
    assert checks(client)["audit"] != health.OK
    assert client.get("/readyz").status_code == 503


def test_file_takes_writes_unless_damaged_or_gone(tmp_path, monkeypatch):
    """A file being written by another process is writable; a deleted one is not created again."""
    file = tmp_path / "db.sqlite3"
    monkeypatch.setitem(connection.settings_dict, "NAME", file)
    with pytest.raises(DatabaseError):
        health._file_takes_writes()
    assert not file.exists()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE approvals_instance (epoch)")
    assert health._file_takes_writes()
    other.execute("BEGIN IMMEDIATE")
    assert health._file_takes_writes()
    other.close()
    file.write_bytes(b"not a database at all" * 100)
    assert not health._file_takes_writes()


@pytest.mark.django_db(transaction=True)
def test_missing_migrations_are_named(client, monkeypatch):
    """Once none is missing, the check does not run again."""
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes("plans")
    real = MigrationExecutor.migration_plan
    missing = real(MigrationExecutor(connection), leaves, clean_start=True)[-4:]
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *arguments: missing)
    name = f"{missing[0][0].app_label}.{missing[0][0].name}"
    assert checks(client)["migrations"].startswith(f"4 not applied ({name}, ")
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *arguments: [])
    assert checks(client)["migrations"] == "ok"
    monkeypatch.setattr(MigrationExecutor, "migration_plan", fail)
    assert checks(client)["migrations"] == "ok"


@pytest.mark.django_db(transaction=True)
def test_an_audit_log_that_ends_elsewhere_than_its_head_is_not_ready(client):
    Instance.objects.update(audit_seq=7, audit_head="f" * 64)
    response = client.get("/readyz")
    assert (response.status_code, failing(response)) == (503, ["audit"])


@pytest.mark.django_db(transaction=True)
def test_clock_skew_is_reported(client, monkeypatch):
    monkeypatch.setattr(clock, "offset_seconds", lambda: -61.0)
    assert checks(client)["clock"].startswith("61 s ")
    assert client.get("/readyz").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_failing_checks_are_logged_on_change(client, executor, monkeypatch, caplog):
    monkeypatch.setattr(clock, "offset_seconds", lambda: 61.0)
    checks(client), checks(client)
    monkeypatch.setattr(clock, "offset_seconds", lambda: 0.0)
    with caplog.at_level("INFO", "toolgate.health"):
        checks(client), checks(client)
    lines = [record for record in caplog.records if record.name == "toolgate.health"]
    assert [(line.message, line.facts["checks"]) for line in lines] == [
        ("checks fail", "clock"),
        ("every check is good again", ""),
    ]
