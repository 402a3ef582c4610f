"""Tests of `manage.py worker`."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from plans.executor import heartbeats
from plans.management.commands.worker import Command
from plans.models import Executor
from tests.plans.factories import say_in_the_catalog
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
POSTGRES = "postgres://nobody@127.0.0.1:1/nothing"
KEYS = {"SECRET_KEY": "for-the-tests-only-" * 3, "TOOLGATE_AUDIT_KEY": "for-the-tests-only-" * 3}


def test_worker_needs_procrastinate_executor(settings) -> None:
    settings.TOOLGATE_EXECUTOR = "embedded"
    with pytest.raises(CommandError, match="TOOLGATE_EXECUTOR=procrastinate"):
        call_command("worker")


@pytest.mark.parametrize("concurrency", [0, -1, 257])
def test_invalid_number_of_threads_is_refused(settings, concurrency: int) -> None:
    settings.TOOLGATE_EXECUTOR = "procrastinate"
    with pytest.raises(CommandError, match="--concurrency"):
        call_command("worker", concurrency=concurrency)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"TOOLGATE_EXECUTOR": "celery"}, "TOOLGATE_EXECUTOR must be embedded or procrastinate"),
        ({"DATABASE_URL": "sqlite:///{folder}/a.sqlite3", "REDIS_URL": "redis://127.0.0.1:1"}, "needs PostgreSQL"),
        ({"REDIS_URL": ""}, "needs REDIS_URL"),
    ],
    ids=["executor", "sqlite", "redis"],
)
def test_cluster_needs_its_services(wrong: dict[str, str], named: str, tmp_path: Path) -> None:
    cluster = {"TOOLGATE_EXECUTOR": "procrastinate", "DATABASE_URL": POSTGRES, **KEYS}
    changed = {name: value.format(folder=tmp_path) for name, value in wrong.items()}
    command = [sys.executable, "manage.py", "worker"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **cluster, **changed}, capture_output=True, text=True)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.django_db
def test_drifted_tools_are_named(stage) -> None:
    output = StringIO()
    say_in_the_catalog("another", tool="safe")
    Command(stderr=output)._warn_of_drift()
    assert "safe" in output.getvalue()


@pytest.mark.django_db
def test_executor_is_listed_while_it_runs() -> None:
    heartbeats.record_heartbeat("one", threads=4)
    heartbeats.record_heartbeat("two", threads=2)
    heartbeats.record_heartbeat("one", threads=4)
    assert {(row.owner, row.threads, row.pid) for row in heartbeats.live_executors()} == {
        ("one", 4, os.getpid()),
        ("two", 2, os.getpid()),
    }
    Executor.objects.filter(owner="two").update(seen_at="2020-01-01T00:00:00Z")
    assert [row.owner for row in heartbeats.live_executors()] == ["one"]
    heartbeats.remove_executor("one")
    assert not Executor.objects.exists()


def test_ticker_updates_heartbeat(executor) -> None:
    eventually(lambda: [row.owner for row in heartbeats.live_executors()] == [executor.owner], what="a sign of life")
