"""Tests of `manage.py serve` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from websockets.sync.client import connect

from tests.plans.commands import ROOT, SET_UP, SHIPPED_SETS, address_of, manage
from tests.waiting import eventually

PLAN = {"goal": "Say hello", "steps": [{"step_id": 1, "description": "Say it", "tool": "render_text"}]}
PLAN["steps"][0]["parameters"] = {"template": "hello", "values": {}}  # type: ignore[index]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a separate installation on SQLite."""
    home = tmp_path_factory.mktemp("installation")
    kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")}
    return {
        **kept,
        "DATABASE_URL": f"sqlite:///{home / 'db.sqlite3'}",
        "TOOLGATE_TOOLS": SHIPPED_SETS,
        "TOOLGATE_WORKSPACE": str(home / "workspace"),
    }


@pytest.fixture(scope="module")
def server(environment: dict[str, str], migrated: Path) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Address, token and process of a server."""
    copy(migrated, environment["DATABASE_URL"].removeprefix("sqlite:///"))
    token = manage(environment, "shell", "-v0", "-c", SET_UP).stdout.strip().splitlines()[-1]
    command = [sys.executable, "manage.py", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield address_of(process), token, process
        finally:
            process.kill()


def test_plan_is_submitted_and_followed(server: tuple[str, str, subprocess.Popen[str]]) -> None:
    url, token, _ = server
    headers = {"Authorization": f"Bearer {token}"}
    plan = httpx.post(f"{url}api/v1/plans/", json=PLAN, headers=headers, timeout=60).json()
    events: list[dict[str, Any]] = []
    with connect(f"{url.replace('http', 'ws')}ws/plans/{plan['id']}/?after=1", additional_headers=headers) as socket:
        while not events or events[-1]["type"] != "plan.completed":
            events.append(json.loads(socket.recv(timeout=60)))
    assert [event["seq"] for event in events] == list(range(2, len(events) + 2))


@pytest.mark.slow
def test_request_waits_for_its_call(server: tuple[str, str, subprocess.Popen[str]]) -> None:
    url, token, _ = server
    headers = {"Authorization": f"Bearer {token}"}
    body = {"tool": "render_text", "arguments": {"template": "hello", "values": {}}, "wait_seconds": 30}
    call = httpx.post(f"{url}api/v1/calls/", json=body, headers=headers, timeout=60).json()
    assert call["status"] == "completed"


def test_signal_ends_server_cleanly(server: tuple[str, str, subprocess.Popen[str]]) -> None:
    url, token, process = server
    headers = {"Authorization": f"Bearer {token}"}
    with connect(f"{url.replace('http', 'ws')}ws/approvals/", additional_headers=headers, open_timeout=60):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=25) == 0


@pytest.mark.service
def test_workers_end_with_their_supervisor(environment: dict[str, str], migrated: Path, settings: Any) -> None:
    copy(migrated, environment["DATABASE_URL"].removeprefix("sqlite:///"))
    command = [sys.executable, "manage.py", "serve", "--port", "0", "--workers", "2"]
    shared = {**environment, "REDIS_URL": settings.REDIS_URL}
    with subprocess.Popen(command, cwd=ROOT, env=shared, stdout=subprocess.PIPE, text=True) as process:
        url = address_of(process)

        def is_served() -> bool:
            try:
                return httpx.get(f"{url}healthz", timeout=60).is_success
            except httpx.TransportError:
                return False

        assert is_served()
        process.kill()
        eventually(lambda: not is_served(), what="the end of the workers")


@pytest.mark.parametrize(("workers", "named"), [(2, "REDIS_URL"), (0, "--workers"), (65, "--workers")])
def test_unusable_number_of_workers_is_refused(settings: Any, workers: int, named: str) -> None:
    settings.REDIS_URL = ""
    with pytest.raises(CommandError, match=named):
        call_command("serve", workers=workers)


def test_unmigrated_database_is_refused(db: None) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="plans").latest("pk").delete()
    with pytest.raises(CommandError, match=r"manage\.py migrate"):
        call_command("serve", port=0)


@pytest.mark.slow
def test_unreachable_database_ends_the_command(tmp_path: Path) -> None:
    keys = dict.fromkeys(("SECRET_KEY", "TOOLGATE_AUDIT_KEY"), "for-a-database-that-is-not-there")
    away = {"DATABASE_URL": f"sqlite:///{tmp_path}", **keys}
    refusal = manage({**os.environ, **away}, "serve", "--port", "0")
    assert refusal.returncode == 1
    assert refusal.stderr.startswith("CommandError: The database cannot be reached")
