"""A coding agent that ends while people decide, and is resumed: killed at every point, no call runs twice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.models import ClientRun
from tests.rest import Rest
from tests.toolgate_client.served import ADDRESS, ViewTransport
from toolgate_client import Client, resume
from toolgate_client.resume import ClientCommand, Runner, RunnerConfig

SESSION, CALL_ID, COMMAND = "49309065-d0b1-4e9c", "toolu_01", "rm -r build"
EDITED = "rm -r build/cache"


class Killed(BaseException):
    """The end of a process at some point."""


class SleepingAgent:
    """An agent that behaves as `claude -p` does: it asks its hook, ends on `defer`, and asks again when resumed.

    `killed_at` is the point at which its process, or that of the runner, dies once.
    """

    def __init__(self, rest: Rest, killed_at: str, folder: Path) -> None:
        self.rest, self.killed_at, self.folder = rest, killed_at, folder
        self.runs: list[str] = []
        self.told: list[str] = []

    def reach(self, point: str) -> None:
        """Die here, if it is the point and the first time."""
        if self.killed_at == point:
            self.killed_at = "nowhere"
            raise Killed(point)

    def hook(self, event: str, command: str, **fields: Any) -> Any:
        """Send the body of a hook and return the answer."""
        body: dict[str, Any] = {
            "session_id": SESSION,
            "cwd": str(self.folder),
            "permission_mode": "default",
            "hook_event_name": event,
        }
        body |= {"tool_name": "Bash", "tool_use_id": CALL_ID, "tool_input": {"command": command}}
        answer = self.rest.post("hooks/claude-code/?may_defer=true&wait_seconds=0", {**body, **fields})
        assert answer.status_code == 200, answer.content
        return answer.json()

    def work(self) -> None:
        """Run the process to its end."""
        output = self.hook("PreToolUse", COMMAND)["hookSpecificOutput"]
        match output["permissionDecision"]:
            case "defer":
                self.reach("deferred")
            case "allow":
                self.reach("handed out")
                command = output["updatedInput"]["command"]
                self.runs.append(command)
                self.reach("ran")
                self.hook("PostToolUse", command, tool_response={"stdout": ""}, duration_ms=3)
                self.reach("reported")
            case _:
                self.told.append(output["permissionDecisionReason"])


class Process:
    """The process of an agent that the runner has started; it has ended when the runner looks."""

    pid, returncode = 0, 0

    def wait(self, timeout: float) -> int:
        """Return its exit code."""
        return self.returncode


@pytest.fixture
def rest(ada) -> Rest:
    """The agent's own token."""
    return Rest(ada, "permissions:ask", kind="agent")


@pytest.fixture
def run_runner(rest, tmp_path, monkeypatch) -> Callable[[SleepingAgent], None]:
    """Return what lets a runner resume whatever is listed, until it or the agent dies."""
    token = rest.headers["Authorization"].removeprefix("Bearer ")
    command = ClientCommand(("claude", "{session}"), (tmp_path,), (), 60, None, "")
    client = Client(ADDRESS, token, retry_seconds=0, transport=ViewTransport())

    def run(agent: SleepingAgent) -> None:
        def start(*_: Any) -> Process:
            agent.reach("claimed")
            agent.work()
            agent.reach("started")
            return Process()

        monkeypatch.setattr(resume, "_start", start)
        runner = Runner(RunnerConfig(ADDRESS, token, 1, {"claude-code": command}), client)
        try:
            for deferred in runner._listed(0):
                runner.resume(deferred)
        except Killed:
            return

    return run


def let_time_pass() -> None:
    """Let leases, pauses and the time for reports run out."""
    now = clock.now()
    ClientRun.objects.exclude(resume_lease_until=None).update(resume_lease_until=now)
    ClientRun.objects.exclude(resume_after=None).update(resume_after=now)


@pytest.fixture
def agent_of(rest, tmp_path) -> Callable[[str], SleepingAgent]:
    """Return a factory of agents, by the point at which they are killed."""
    return lambda killed_at: SleepingAgent(rest, killed_at, tmp_path)


APPROVED: tuple[str, ReviewVerdict, dict[str, Any]] = (COMMAND, ReviewVerdict.APPROVE, {})
EDITED_TOO = EDITED, ReviewVerdict.APPROVE, {"arguments": {"command": EDITED}}
REJECTED = "", ReviewVerdict.REJECT, {"comment": "Not today."}


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("review", "killed_at"),
    [
        *((APPROVED, point) for point in ("deferred", "claimed", "handed out", "ran", "reported", "started")),
        *((EDITED_TOO, point) for point in ("handed out", "reported", "nowhere")),
        *((REJECTED, point) for point in ("deferred", "claimed", "started")),
    ],
)
def test_an_approved_call_runs_at_most_once(agent_of, run_runner, rosa, review, killed_at):
    command, verdict, options = review
    agent = agent_of(killed_at)
    try:
        agent.work()
    except Killed:
        agent.work()
    run_runner(agent)  # nothing is listed before the decision
    request = ApprovalRequest.objects.get()
    decide(request, by=rosa, decision=Decision(verdict, request.digest, **options))
    for _ in range(3):
        run_runner(agent)
        let_time_pass()
    agent.work()  # somebody resumes the session by hand

    call = ClientRun.objects.get().call
    is_lost = killed_at == "handed out" and command
    assert agent.runs == ([] if is_lost or not command else [command])
    if not command:
        assert (call.status, "Not today." in agent.told[0]) == ("failed", True)
    elif killed_at in ("handed out", "ran"):
        assert call.status in ("running", "outcome_unknown")
    else:
        assert call.status == "completed"


@pytest.mark.usefixtures("catalog")
def test_a_runner_is_told_nothing_of_the_call(rest, agent_of, rosa):
    agent_of("nowhere").work()
    request = ApprovalRequest.objects.get()
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest))
    assert COMMAND not in json.dumps(rest.get("permissions/deferred/").json())
