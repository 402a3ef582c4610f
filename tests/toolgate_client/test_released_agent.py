"""The released Claude Code ends at a held call, and the runner resumes it after the decision."""

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
from approvals.states import ReviewVerdict
from catalog.access.tokens import create_token
from catalog.models import ClientRun
from config.serving.handler import ThreadedHandler
from plans.client_setup.headless import headless_run
from plans.client_setup.scripted_model import scripted_model
from plans.live.long_polling import WaitForCall
from plans.live.waits import until_decided, until_settled
from tests.chaos.serving import ROOT
from tests.npm import installed_modules
from tests.plans.client_setup.released import PROGRAMS, Home, home_in
from tests.plans.mcp.conftest import serving_mcp

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

SLUG = "claude-code"
CLIENTS = ROOT / "tests/plans/client_setup/clients"


@pytest.fixture
def url(executor: object) -> Iterator[str]:
    """The address of a server with REST."""
    with serving_mcp(others=WaitForCall(ThreadedHandler(), until_settled, until_decided)) as mcp:
        yield mcp.removesuffix("/mcp")


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A home with Claude Code."""
    modules = installed_modules(request.config.cache, CLIENTS, "coding-agents-npm")
    if not (modules / PROGRAMS[SLUG]).exists():
        pytest.skip("There is no Claude Code for this machine.")
    return home_in(tmp_path / "home", SLUG, modules)


def write_hooks(home: Home, url: str) -> None:
    """Let Claude Code ask over HTTP, and end where it would wait."""
    hook = {"type": "http", "headers": {"Authorization": "Bearer $TOOLGATE_TOKEN"}, "timeout": 60}
    hook |= {"allowedEnvVars": ["TOOLGATE_TOKEN"], "onFailure": "block"}
    address = f"{url}/api/v1/hooks/{SLUG}/"
    addresses = {"PreToolUse": f"{address}?may_defer=true&wait_seconds=0"}
    addresses |= dict.fromkeys(("PostToolUse", "PostToolUseFailure"), address)
    hooks = {event: [{"matcher": "*", "hooks": [hook | {"url": each}]}] for event, each in addresses.items()}
    folder = home.folder / ".claude"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"hooks": hooks}))


def write_configuration(folder: Path, url: str, token: str, command: list[str], work: Path) -> Path:
    """Write the configuration of a runner."""
    (folder / "token").touch(0o600)
    (folder / "token").write_text(token)
    config = folder / "resume.toml"
    config.touch(0o600)
    config.write_text(
        f'enabled = true\nurl = "{url}"\ntoken_file = "token"\n[clients.{SLUG}]\ncommand = {json.dumps(command)}\n'
        f'directories = [{json.dumps(str(work))}]\nenvironment = ["HOME", "PATH", "TOOLGATE_TOKEN"]\n'
        f"output = {json.dumps(str(folder))}\n"
    )
    return config


CASES: dict[str, tuple[ReviewVerdict, dict[str, Any], list[str]]] = {
    "edited": (ReviewVerdict.APPROVE, {"arguments": {"command": "echo ran > edited"}}, ["edited"]),
    "approved": (ReviewVerdict.APPROVE, {}, ["asked"]),
    "rejected": (ReviewVerdict.REJECT, {"comment": "Not today."}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sleeping_agent_is_woken_by_the_decision(home: Home, url: str, ada: User, rosa: User, case: str) -> None:
    verdict, options, ran = CASES[case]
    token = create_token(user=ada, kind="agent", scopes=["permissions:ask"])[1]
    write_hooks(home, url)
    program = home.agent.find_program()
    assert program is not None
    with scripted_model(home.script("asked")) as model:
        run = headless_run(home.agent, program, model.url, home.folder)
        environment = run.environment | {"TOOLGATE_TOKEN": token, "PYTHONPATH": str(ROOT), "PWD": str(home.work)}
        slept = subprocess.run(
            run.command, cwd=home.work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert "tool_deferred" in slept.stdout, slept.stdout[-2000:] + slept.stderr[-2000:]
        assert home.ran == []
        request = ApprovalRequest.objects.get()
        decide(request, by=rosa, decision=Decision(verdict, request.digest, **options))
        prompt = run.command.index("-p") + 1
        command = [*run.command[:prompt], "--resume", "{session}", *run.command[prompt + 1 :]]
        config = write_configuration(home.folder, url, token, command, home.work)
        runner = [sys.executable, "-m", "toolgate_client", "resume", "--once", "--config", str(config)]
        for _ in range(2):  # the second one finds nothing to resume
            woken = subprocess.run(runner, cwd=home.folder, env=environment, capture_output=True, text=True)
            assert woken.returncode == 0, woken.stderr
    assert home.ran == ran, os.linesep.join(path.read_text()[-2000:] for path in home.folder.glob("*.log"))
    stored = ClientRun.objects.get()
    assert (stored.call.status, stored.reported_at is not None) == (("completed", True) if ran else ("failed", False))
