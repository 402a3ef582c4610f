"""End-to-end test of an agent with server processes and a model server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any

import httpx
import pytest

from tests.plans.commands import ROOT, SHIPPED_SETS, address_of, manage
from tests.plans.model_server import ModelServer, Reply, model_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Ask = Callable[..., httpx.Response]
"""Asks as somebody of a role: `ask(role, method, path)`."""
PEOPLE = """
import json
from django.contrib.auth.models import Group, User
from catalog.access.tokens import create_token
SCOPES = {
    "operator": ["plans:read", "plans:write", "calls:create", "approvals:read"],
    "reviewer": ["approvals:read", "approvals:decide", "plans:read"],
    "administrator": ["catalog:write", "tools:read"],
}
tokens = {}
for role, scopes in SCOPES.items():
    user = User.objects.create_user(role)
    user.groups.add(Group.objects.get(name=role))
    tokens[role] = create_token(user=user, kind="personal", scopes=scopes)[1]
print(json.dumps(tokens))
"""
AGENT = {
    "name": "clerk",
    "instructions": "You keep notes.",
    "tools": {"names": ["write_file", "read_file"], "categories": [], "max_level": "dangerous"},
    "budget": {"rounds": 5},
}
PLAN = {
    "goal": "Keep two notes",
    "steps": [
        {
            "step_id": 1,
            "description": "Write the notes a.txt and b.txt.",
            "agent": "clerk",
            "expected_key": "told",
            "output_path": ["results", "0"],
        }
    ],
}


@dataclass(frozen=True)
class Installation:
    """Settings, files and tokens of an installation."""

    environment: dict[str, str]
    home: Path
    tokens: dict[str, str]

    @contextmanager
    def served(self) -> Iterator["Ask"]:
        """Serve, and return a client for each role; kill the server at the end."""
        command = [sys.executable, "manage.py", "serve", "--port", "0"]
        with subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                with httpx.Client(base_url=f"{address_of(process)}api/v1/", timeout=60) as client:
                    yield lambda role, method, path, **more: client.request(
                        method, path, headers={"Authorization": f"Bearer {self.tokens[role]}"}, **more
                    )
            finally:
                process.kill()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """The model that the installation asks."""
    with model_server() as scripted:
        yield scripted


@pytest.fixture
def installation(model: ModelServer, migrated: Path, tmp_path: Path) -> Installation:
    """An installation with that model and short leases."""
    kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")}
    environment = kept | {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "TOOLGATE_TOOLS": SHIPPED_SETS,
        "TOOLGATE_WORKSPACE": str(tmp_path / "workspace"),
        "TOOLGATE_UNDO_SECONDS": "0",
        "TOOLGATE_LEASE_SECONDS": "3",
        "TOOLGATE_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
    }
    copy(migrated, tmp_path / "db.sqlite3")
    said = manage(environment, "shell", "-v0", "-c", PEOPLE).stdout.strip().splitlines()[-1]
    return Installation(environment, tmp_path, json.loads(said))


def wants(*paths: str) -> Reply:
    """Return a response that requests writing these files."""
    written = (
        (f"call-{number}", "write_file", json.dumps({"path": path, "content": f"Note {path}"}))
        for number, path in enumerate(paths, 1)
    )
    return Reply("I write them.", tool_calls=tuple(written), finish="tool_calls")


def test_held_calls_survive_killed_server(installation: Installation, model: ModelServer) -> None:
    model.says(wants("a.txt", "b.txt"))
    with installation.served() as ask:
        assert ask("administrator", "POST", "agents/", json=AGENT).status_code == 201
        plan = ask("operator", "POST", "plans/", json=PLAN).json()["id"]
        eventually(lambda: len(held(ask, plan)) == 2, what="two held calls")
    model.says("a.txt is written; b.txt was refused.")
    with installation.served() as ask:
        first, second = held(ask, plan)
        review(ask, first, verdict="approve")
        review(ask, second, verdict="reject", comment="Not that one.")
        ended = end_of(ask, plan)
        memory = ask("operator", "GET", f"plans/{plan}/memory/").json()
    assert ended["status"] == "completed"
    assert memory["values"]["told"] == "a.txt is written; b.txt was refused."
    assert [(installation.home / "workspace" / name).exists() for name in ("a.txt", "b.txt")] == [True, False]
    assert "Not that one." in model.read()
    assert (len(model.asked), model.left) == (2, 0)


def test_model_is_offered_only_allowed_tools(installation: Installation, model: ModelServer) -> None:
    model.says("There is nothing to do.")
    with installation.served() as ask:
        ask("administrator", "POST", "agents/", json=AGENT)
        plan = ask("operator", "POST", "plans/", json=PLAN).json()["id"]
        assert end_of(ask, plan)["status"] == "completed"
    (asked,) = model.asked
    assert sorted(each["function"]["name"] for each in asked["tools"]) == ["read_file", "write_file"]
    assert "You keep notes." in model.read()
    assert asked["stream"] is True


def held(ask: Ask, plan: str) -> list[dict[str, Any]]:
    """Return the pending requests of a plan in step order."""
    found = ask("reviewer", "GET", "approvals/", params={"plan": plan, "status": "pending"}).json()["results"]
    return sorted(found, key=lambda each: int(each["step_id"]))


def review(ask: Ask, request: dict[str, Any], **body: str) -> None:
    """Decide a request."""
    answer = ask(
        "reviewer", "POST", f"approvals/{request['id']}/reviews/", json={"seen_digest": request["digest"], **body}
    )
    assert answer.status_code == 201


def end_of(ask: Ask, plan: str) -> dict[str, Any]:
    """Wait until a plan has ended, and return it."""
    ended = eventually(lambda: ended_of(ask, plan), what="the plan's end")
    assert ended is not None
    return ended


def ended_of(ask: Ask, plan: str) -> dict[str, Any] | None:
    """Return a plan that has ended, or None."""
    body: dict[str, Any] = ask("operator", "GET", f"plans/{plan}/").json()
    return body if body["status"] in ("completed", "failed") else None
