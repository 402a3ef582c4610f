"""The runner: it starts what its owner's configuration allows, once a claim, and nothing else."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.toolgate_client.conftest import problem, unread
from toolgate_client import Client, ConfigurationError, resume
from toolgate_client.__main__ import main
from toolgate_client.resume import Runner, RunnerConfig

SESSION = "49309065-d0b1-4e9c"
RECORD = 'pwd > record; echo "$0 $TOOLGATE_KEPT$TOOLGATE_DROPPED" >> record; exit 3'


class Server:
    """Toolgate, as a runner sees it: `listed` is deferred, `claim` and `renewal` answer the posts."""

    def __init__(self, **deferred: Any) -> None:
        entry = {"call": "call_1", "client": "claude-code", "session": SESSION, "cwd": "/", "decision": "allow"}
        self.deferred = entry | {"attempts": 0} | deferred
        self.claim = httpx.Response(200, json={"claim": "clm_1", "deferred": self.deferred})
        self.renewal: httpx.Response | None = None
        self.states: list[dict[str, Any]] = []
        self.renewed = threading.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return unread(self.answer(request))

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Return what is listed, or the answer to a post."""
        if request.method == "GET":
            return httpx.Response(200, json={"results": [] if self.states else [self.deferred]})
        body = json.loads(request.content)
        self.states.append(body)
        if body["state"] == "starting":
            return self.claim
        if body["state"] == "running" and self.renewal is not None:
            self.renewed.set()
            return self.renewal
        return httpx.Response(200, json={"outcome": "ran"})

    def ends(self) -> list[int]:
        """Return the exit codes that were reported."""
        return [body["exit_code"] for body in self.states if body["state"] == "ended"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The directory in which sessions may be resumed."""
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def config(tmp_path: Path, work: Path) -> Any:
    """Return what writes a configuration, with changes, and reads it."""

    def write(**changes: Any) -> RunnerConfig:
        token = tmp_path / "token"
        token.write_text("tg_a\n")
        token.chmod(changes.pop("token_mode", 0o600))
        command = changes.pop("command", ["/bin/sh", "-c", RECORD, "{session}"])
        client = {"command": command, "directories": [str(work)], "environment": ["PATH", "TOOLGATE_KEPT"]}
        client |= changes.pop("client", {})
        fields = {"enabled": True, "url": "https://toolgate.example", "token_file": "token"} | changes
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        lines += ["[clients.claude-code]", *(f"{name} = {json.dumps(value)}" for name, value in client.items())]
        path = tmp_path / "resume.toml"
        path.write_text("\n".join(lines))
        return RunnerConfig.read(path)

    return write


@pytest.fixture
def resumed(config: Any) -> Any:
    """Return what lets a runner resume once what a server lists."""

    def run(server: Server, *, seconds: int = 600, **changes: Any) -> None:
        client = Client("https://toolgate.example", "tg_a", retry_seconds=0, transport=httpx.MockTransport(server))
        found = config(**changes)
        commands = {name: replace(command, seconds=seconds) for name, command in found.clients.items()}
        Runner(replace(found, clients=commands), client).run(once=True)

    return run


def test_a_session_is_resumed_where_and_how_the_owner_says(resumed, work, monkeypatch):
    monkeypatch.setenv("TOOLGATE_KEPT", "kept")
    monkeypatch.setenv("TOOLGATE_DROPPED", "dropped")
    (work / "project").mkdir()
    server = Server(cwd=str(work / "project" / ".." / "project"))
    resumed(server)
    assert (work / "project" / "record").read_text().split() == [str(work / "project"), SESSION, "kept"]
    assert [body["state"] for body in server.states] == ["starting", "ended"]
    assert (server.ends(), server.states[1]["claim"]) == ([3], "clm_1")


@pytest.mark.parametrize(
    "deferred",
    [
        {"client": "codex"},
        {"session": "--dangerously-skip-permissions"},
        {"session": "a b"},
        {"session": ""},
        {"cwd": "/"},
        {"cwd": ""},
        {"cwd": "work"},
        {"cwd": "{work}/.."},
        {"cwd": "{work}/link"},
        {"cwd": "{work}/missing"},
        {"cwd": "{work}-2"},
        {"cwd": "{work}/\0"},
    ],
)
def test_a_session_that_the_owner_did_not_allow_is_not_claimed(resumed, work, deferred):
    (work / "link").symlink_to("/")
    Path(f"{work}-2").mkdir()
    deferred = {"cwd": "{work}"} | deferred
    server = Server(**deferred | {"cwd": deferred["cwd"].replace("{work}", str(work))})
    resumed(server)
    assert server.states == []


def test_a_session_is_checked_again_after_its_claim(resumed, work):
    server = Server(cwd=str(work))
    server.claim = httpx.Response(200, json={"claim": "clm_1", "deferred": server.deferred | {"cwd": "/"}})
    resumed(server)
    assert (server.ends(), list(work.iterdir())) == ([127], [])


@pytest.mark.parametrize("claim", [problem(409), problem(404), problem(500), httpx.Response(200, json={})])
def test_without_a_claim_nothing_is_started(resumed, work, claim):
    server = Server(cwd=str(work))
    server.claim = claim
    resumed(server)
    assert ([body["state"] for body in server.states], list(work.iterdir())) == (["starting"], [])


def test_a_process_whose_lease_is_lost_is_ended(resumed, work, monkeypatch):
    monkeypatch.setattr(resume, "LEASE_SECONDS", 0)
    monkeypatch.setattr(resume, "LOOK_SECONDS", 0.01)
    server = Server(cwd=str(work))
    server.renewal = problem(409)
    resumed(server, command=["/bin/sh", "-c", "sleep 250", "{session}"])
    assert (server.ends(), server.renewed.is_set()) == ([], True)


def test_a_process_that_runs_too_long_is_ended(resumed, work, monkeypatch):
    monkeypatch.setattr(resume, "LOOK_SECONDS", 0.01)
    server = Server(cwd=str(work))
    resumed(server, command=["/bin/sh", "-c", "sleep 250", "{session}"], seconds=0)
    assert server.ends() == [-15]


def test_a_missing_program_is_reported(resumed, work):
    server = Server(cwd=str(work))
    resumed(server, command=["no-such-program-here", "{session}"])
    assert server.ends() == [127]


def test_output_is_kept_for_the_owner_alone(resumed, work, tmp_path):
    resumed(
        Server(cwd=str(work)), command=["/bin/sh", "-c", "echo hello", "{session}"], client={"output": str(tmp_path)}
    )
    log = tmp_path / f"claude-code-{SESSION}.log"
    assert (log.read_text(), log.stat().st_mode & 0o777) == ("hello\n", 0o600)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("script", "is_gone"),
    [("echo No conversation found >&2; exit 1", True), ("exit 1", False), ("echo No conversation found", False)],
)
def test_a_session_that_the_client_forgot_is_given_up(resumed, work, kept, script, is_gone):
    folder = work.parent
    (folder / f"claude-code-{SESSION}.log").write_text("No conversation found, the last time\n")
    server = Server(cwd=str(work))
    client = {"gone": "No conversation found"} | ({"output": str(folder)} if kept else {})
    resumed(server, command=["/bin/sh", "-c", script, "{session}"], client=client)
    assert server.states[-1].get("session_gone", False) is is_gone


def test_the_runner_stops_when_told(config, work, monkeypatch):
    monkeypatch.setattr(resume, "LEASE_SECONDS", 0)
    monkeypatch.setattr(resume, "LOOK_SECONDS", 0.01)
    server = Server(cwd=str(work))
    server.renewal = httpx.Response(200, json={})
    client = Client("https://toolgate.example", "tg_a", transport=httpx.MockTransport(server))
    runner = Runner(config(command=["/bin/sh", "-c", "sleep 250", "{session}"]), client)
    running = threading.Thread(target=runner.run)
    running.start()
    assert server.renewed.wait(60)
    runner.stop()
    runner.stop()
    running.join()
    assert server.ends() == [-15]


def test_a_runner_that_is_told_to_stop_while_a_session_starts_waits_for_it(config, work, monkeypatch):
    server = Server(cwd=str(work))
    client = Client("https://toolgate.example", "tg_a", transport=httpx.MockTransport(server))
    runner = Runner(config(), client)
    joined = threading.Event()

    class Starting(threading.Thread):
        def start(self) -> None:
            if self._args:  # type: ignore[attr-defined] # the thread of a session, not that which polls
                runner.stop()
                joined.wait(0.5)
            super().start()

        def join(self, timeout: float | None = None) -> None:
            joined.set()
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Starting)
    runner.run()
    assert server.ends() == [3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"enabled": False}, "enabled"),
        ({"enabled": "true"}, "enabled"),
        ({"token_mode": 0o640}, "mode 0600"),
        ({"token_file": "missing"}, "cannot be read"),
        ({"token_file": "."}, "cannot be read"),
        ({"parallel": 0}, "parallel"),
        ({"colour": "red"}, "colour"),
        ({"url": 3}, "url"),
        ({"command": []}, "command"),
        ({"command": "claude {session}"}, "command"),
        ({"command": ["claude"]}, "session"),
        ({"command": ["{session}", "x"]}, "session"),
        ({"command": ["claude", "--resume={session}"]}, "session"),
        ({"command": ["sh", "-c", "claude --resume {session}", "{session}"]}, "session"),
        ({"command": ["claude", ""]}, "command"),
        ({"client": {"directories": []}}, "directories"),
        ({"client": {"directories": ["work"]}}, "directories"),
        ({"client": {"environment": ["A=B"]}}, "environment"),
        ({"client": {"output": "log"}}, "output"),
        ({"client": {"seconds": 0}}, "seconds"),
        ({"client": {"shell": True}}, "shell"),
        ({"client": {"gone": 1}}, "gone"),
    ],
)
def test_a_wrong_configuration_is_refused(config, changes, words):
    with pytest.raises(ConfigurationError, match=words) as raised:
        config(**changes)
    assert "tg_a" not in str(raised.value)


@pytest.mark.parametrize("content", ["", "enabled = ", "\0", "enabled = true\n" * 2, "x" * 70_000])
def test_a_broken_configuration_is_refused(tmp_path, content, capsys):
    path = tmp_path / "resume.toml"
    path.write_text(content)
    assert main(["resume", "--config", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_configuration_that_others_may_write_is_refused(config, tmp_path):
    config()
    (tmp_path / "resume.toml").chmod(0o662)
    with pytest.raises(ConfigurationError, match="mode"):
        RunnerConfig.read(tmp_path / "resume.toml")
