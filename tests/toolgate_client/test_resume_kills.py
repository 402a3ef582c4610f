"""`kill -9` of server, runner and agents between deferral, decision and resumption: no approved call runs twice."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import socket
from time import sleep
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.errors import ToolgateError
from catalog.models import ClientRun
from catalog.states import CallStatus
from tests import counts
from tests.chaos.serving import ROOT, Serving
from tests.conftest import MakeServing
from tests.invariants import assert_invariants
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.db, pytest.mark.timeout(counts.seconds(7200, 600))]

KILLS = counts.count(500, 25)
AT_ONCE = 10
SCRIPT = Path(__file__).parent / "sleeping_agent.py"
VICTIMS = ("server", "runner", "agent", "agent")
OVER = (CallStatus.COMPLETED, CallStatus.FAILED, CallStatus.CANCELLED, CallStatus.OUTCOME_UNKNOWN)


class Scene:
    """A server, a runner and agents on this machine, to be killed and started again."""

    def __init__(self, serving: Serving, token: str, chance: random.Random) -> None:
        self.serving, self.chance = serving, chance
        self.folder = serving.effects
        self.killed: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{serving.command[-1]}"
        self.environment = {"TOOLGATE_TOKEN": token, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        (self.folder / "processes").mkdir()
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(token)
        self.config = self.folder / "resume.toml"
        self.config.write_text(
            f'enabled = true\nurl = "{self.url}"\ntoken_file = "token"\nparallel = {AT_ONCE}\n'
            f"[clients.claude-code]\ncommand = {self.command('{session}')!r}\n"
            f'directories = ["{self.folder}"]\nenvironment = ["TOOLGATE_TOKEN", "PATH"]\n'
        )
        self.config.chmod(0o600)
        self.runner = self._started_runner()

    def command(self, session: str) -> list[str]:
        """Return the command of an agent."""
        return [sys.executable, "-I", "-S", str(SCRIPT), str(self.folder), self.url, session]

    def _started_runner(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "toolgate_client", "resume", "--config", str(self.config)]
        with (self.folder / "runner.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)

    def start_agent(self, session: str) -> "subprocess.Popen[bytes]":
        """Start an agent, or resume it by hand."""
        with (self.folder / "agents.log").open("ab") as log:
            return subprocess.Popen(self.command(session), env=self.environment, stdout=log, stderr=log)

    def kill(self, victim: str) -> None:
        """Kill one of them; server and runner are started again."""
        if victim == "server":
            self.serving.kill()
            self.serving.start()
        elif victim == "runner":
            self.runner.kill()
            self.runner.wait()
            self.runner = self._started_runner()
        else:
            alive = list((self.folder / "processes").iterdir())
            if not alive:
                return
            life = self.chance.choice(alive)
            with suppress(ProcessLookupError):
                os.kill(int(life.name), signal.SIGKILL)
            life.unlink(missing_ok=True)
        self.killed[victim] += 1

    def decide(self, reviewer: User) -> None:
        """Approve, edit or reject each open request."""
        for request in ApprovalRequest.objects.filter(status=RequestStatus.PENDING).select_related("call__client_run"):
            edited = {"command": f"edited {request.call.client_run.session}"}
            verdicts: list[tuple[ReviewVerdict, dict[str, Any]]] = [
                (ReviewVerdict.APPROVE, {}),
                (ReviewVerdict.APPROVE, {"arguments": edited}),
                (ReviewVerdict.REJECT, {"comment": "Not today."}),
            ]
            verdict, options = self.chance.choice(verdicts)
            with suppress(ToolgateError):  # the server has just changed it
                decide(request, by=reviewer, decision=Decision(verdict, request.digest, **options))

    def settle(self, sessions: list[str], reviewer: User) -> None:
        """Let time pass and resume by hand where the runner gave up, until each call is over."""

        def is_over() -> bool:
            self.decide(reviewer)
            now = clock.now()
            runs = ClientRun.objects.filter(session__in=sessions, is_current=True)
            is_quiet = not any((self.folder / "processes").iterdir())
            for pk in runs.values_list("pk", flat=True):  # one row a statement: several would deadlock with the server
                run = ClientRun.objects.filter(pk=pk)
                run.exclude(resume_lease_until=None).update(resume_lease_until=now)
                run.exclude(resume_after=None).update(resume_after=now)
                if is_quiet:
                    run.filter(call__status=CallStatus.RUNNING).exclude(allowed_until=None).update(allowed_until=now)
            over = set(runs.filter(call__status__in=OVER).values_list("session", flat=True))
            waiting = set(runs.filter(resume_outcome="", resumed_at=None).exclude(deferred_at=None))
            left = set(sessions) - over - {run.session for run in waiting}
            for agent in [self.start_agent(session) for session in left]:
                agent.wait(timeout=60)
            sleep(0.2)
            return over == set(sessions)

        eventually(is_over, seconds=180, what="the end of each call")


@pytest.fixture
def scene(transactional_db: None, catalog: None, make_serving: MakeServing, ada: User) -> Iterator[Scene]:
    """A server on a port that it keeps, and a runner."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = make_serving(TOOLGATE_UNDO_SECONDS="0", TOOLGATE_TOOLS="", TOOLGATE_MAX_PENDING_PER_REQUESTER="0")
    serving.command = ("serve", "--port", str(port))
    serving.start()
    token = create_token(user=ada, kind="agent", scopes=["permissions:ask"])[1]
    made = Scene(serving, token, counts.dice(counts.seed()))
    yield made
    made.runner.kill()
    made.runner.wait()
    serving.kill()


def test_no_call_runs_twice_whatever_is_killed(scene: Scene, rosa: User, record_property: counts.Report) -> None:
    agents: list[subprocess.Popen[bytes]] = []
    sessions: list[str] = []
    while scene.killed.total() < KILLS:
        wave = [f"s{len(sessions) + number}" for number in range(AT_ONCE)]
        sessions += wave
        agents += [scene.start_agent(session) for session in wave]
        for _ in range(AT_ONCE):
            sleep(scene.chance.uniform(0.05, 0.4))
            scene.decide(rosa)
            sleep(scene.chance.uniform(0.0, 0.3))
            scene.kill(scene.chance.choice(VICTIMS))
        scene.settle(wave, rosa)
    for agent in agents:
        agent.wait(timeout=60)
    for agent in [scene.start_agent(session) for session in sessions[-AT_ONCE:]]:
        agent.wait(timeout=60)

    lines = (scene.folder / "runs").read_text().splitlines()
    ran = Counter(line.split()[0] for line in lines)
    runs = ClientRun.objects.filter(is_current=True).select_related("call")
    statuses = Counter(run.call.status for run in runs)
    counts.report(record_property, "kills of deferred agents", **scene.killed, calls=len(sessions), **statuses)
    assert {session: count for session, count in ran.items() if count > 1} == {}
    assert {run.session for run in runs} == set(sessions)
    approved = {f"{run.session} {run.call.arguments_json['command']}" for run in runs}
    assert set(lines) - approved == set()
    wrong = {
        run.session: (run.call.status, ran[run.session])
        for run in runs
        if (run.call.status == CallStatus.COMPLETED) != (ran[run.session] == 1)
        and run.call.status != CallStatus.OUTCOME_UNKNOWN
    }
    assert wrong == {}
    assert_invariants()
