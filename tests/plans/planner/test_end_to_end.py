"""End-to-end test of a request in words with a server process and a model server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import httpx
import pytest

from tests.plans.commands import ROOT, SET_UP, SHIPPED_SETS, address_of, manage
from tests.plans.factories import GREETING_PLAN
from tests.plans.model_server import ModelServer, model_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    """The model that the installation asks."""
    with model_server() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def installation(
    model: ModelServer, migrated: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of an installation with that model."""
    home = tmp_path_factory.mktemp("installation")
    kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")}
    environment = kept | {
        "DATABASE_URL": f"sqlite:///{home / 'db.sqlite3'}",
        "TOOLGATE_TOOLS": SHIPPED_SETS,
        "TOOLGATE_WORKSPACE": str(home / "workspace"),
        "TOOLGATE_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
    }
    copy(migrated, home / "db.sqlite3")
    token = manage(environment, "shell", "-v0", "-c", SET_UP).stdout.strip().splitlines()[-1]
    command = [sys.executable, "manage.py", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            base = f"{address_of(process)}api/v1/"
            with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=90) as client:
                yield client
        finally:
            process.kill()


def test_request_becomes_plan_that_runs_and_replies(installation: httpx.Client, model: ModelServer) -> None:
    model.says("Let me think.", json.dumps(GREETING_PLAN), "Hello has been said.")
    draft = installation.post("plans/draft/", json={"request": "Say hello", "strategy": "plan_act_reflect"})
    assert draft.status_code == 201
    assert (draft.json()["status"], draft.json()["problems"]) == ("completed", [])
    assert "not a JSON object" in model.read(1)

    plan = installation.post(f"plans/draft/{draft.json()['id']}/start/").json()
    ended = eventually(lambda: _ended(installation, plan["id"]))
    assert ended is not None
    assert (ended["status"], ended["reply"]) == ("completed", "Hello has been said.")
    assert installation.get("plans/").json()["results"][0]["id"] == plan["id"]


def test_error_of_provider_is_returned(installation: httpx.Client) -> None:
    answer = installation.post("plans/draft/", json={"request": "Say hello"})
    assert (answer.status_code, answer.headers["content-type"]) == (502, "application/problem+json")
    assert answer.json()["type"] == "urn:toolgate:model_refused"


def _ended(client: httpx.Client, plan: str) -> dict[str, str] | None:
    body: dict[str, str] = client.get(f"plans/{plan}/").json()
    return body if body["status"] in ("completed", "failed") else None
