"""Agents of five frameworks with gated tools, each with a scripted model, against a server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.tokens import create_token
from catalog.models import Call
from tests.chaos.serving import ROOT, Serving
from tests.conftest import MakeServing
from tests.python_environments import installed_python
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

FRAMEWORKS = Path(__file__).parent / "frameworks"
SECONDS = 300
"""Limit for an agent that hangs: the import of a framework alone takes up to a minute."""
DECISIONS: list[tuple[ReviewVerdict, dict[str, Any]]] = [
    (ReviewVerdict.APPROVE, {"arguments": {"path": "edited"}}),
    (ReviewVerdict.REJECT, {"comment": "Not on a Friday."}),
    (ReviewVerdict.APPROVE, {}),
]


@pytest.fixture
def serving(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[Serving]:
    """A server."""
    process = make_serving(TOOLGATE_UNDO_SECONDS="0", TOOLGATE_TOOLS="")
    process.start()
    yield process
    process.kill()


@pytest.fixture(params=["pydantic_ai", "langchain", "openai_agents", "google_adk", "crewai"])
def agent(request: pytest.FixtureRequest) -> list[str]:
    """The command of an agent; all frameworks but that of the product have environments of their own."""
    name = request.param
    lock = FRAMEWORKS / f"{name}.lock"
    python = installed_python(request.config.cache, lock) if lock.exists() else sys.executable
    return [str(python), str(FRAMEWORKS / f"{name}_agent.py")]


def test_tools_run_with_what_people_approved(
    agent: list[str], serving: Serving, ada: User, rosa: User, tmp_path: Path
) -> None:
    token = create_token(user=ada, kind="agent", scopes=["permissions:ask"])[1]
    url = eventually(serving.url, what="the server")
    (tmp_path / "toolgate_client").symlink_to(ROOT / "toolgate_client")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CREWAI_DISABLE_TELEMETRY": "true"}
    command = [*agent, url, token, json.dumps(["first", "second", "third"])]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            pending = ApprovalRequest.objects.filter(status=RequestStatus.PENDING)
            for verdict, options in DECISIONS:
                request = eventually(lambda: pending.first() or process.poll() is not None, SECONDS, "a request")
                assert isinstance(request, ApprovalRequest), process.communicate()[1][-2000:]
                decide(request, by=rosa, decision=Decision(verdict, request.digest, **options))
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, errors[-2000:]
    found = json.loads(output.splitlines()[-1])
    assert found["runs"] == ["edited", "third"]
    gone, refused, gone_too = found["read"]
    assert (gone, gone_too, "Not on a Friday." in refused) == ("edited is gone", "third is gone", True)
    statuses = Call.objects.order_by("pk").values_list("status", flat=True)
    assert list(statuses) == ["completed", "failed", "completed"]
