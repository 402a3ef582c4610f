"""The hook that runs beside Claude Code, Codex and Gemini CLI: only an explicit decision lets a tool run."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plans.client_setup import hook_wrapper
from plans.client_setup.clients import Codex, Setup
from plans.client_setup.configuration import apply_changes
from tests.certificates import Signer, server_context, write_authority
from tests.http_server import serving
from tests.plans.client_setup.answers import AnsweringServer, as_json, doubtful
from tests.waiting import eventually

EDITED = {"command": "echo edited"}


def question(client: str, **more: Any) -> bytes:
    tool = "run_shell_command" if client == "gemini-cli" else "Bash"
    body = {"hook_event_name": hook_wrapper.ASKING_EVENT[client], "tool_name": tool, "tool_input": {"command": "rm x"}}
    return json.dumps(body | more).encode()


def claude_form(verdict: str, **more: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": verdict, **more}}


ALLOW: dict[str, dict[str, Any]] = {
    "claude-code": claude_form("allow", updatedInput=EDITED),
    "codex": claude_form("allow", updatedInput=EDITED),
    "gemini-cli": {
        "decision": "allow",
        "hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": EDITED},
    },
}
CLIENTS = list(ALLOW)
WRONG_FORMS: dict[str, dict[str, Any]] = {
    "claude-code": {
        "ask": claude_form("ask"),
        "unknown decision": claude_form("maybe"),
        "decision that is a list": claude_form("allow") | {"hookSpecificOutput": ["allow"]},
        "other event": {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "allow"}},
        "without event": {"hookSpecificOutput": {"permissionDecision": "allow"}},
        "input that is a text": claude_form("allow", updatedInput="echo"),
        "form of Gemini CLI": ALLOW["gemini-cli"],
    },
    "codex": {"defer": claude_form("defer"), "form of Gemini CLI": ALLOW["gemini-cli"]},
    "gemini-cli": {
        "ask": {"decision": "ask"},
        "input that is a text": {"decision": "allow", "hookSpecificOutput": {"tool_input": "echo"}},
        "input without an argument": {"decision": "allow", "hookSpecificOutput": {"tool_input": {}}},
        "form of Claude Code": ALLOW["codex"],
    },
}


def all_answers() -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for client, allow in ALLOW.items():
        answers |= {f"{client} {name}": each for name, each in doubtful(allow).items()}
        answers |= {f"{client} {name}": as_json(each) for name, each in WRONG_FORMS[client].items()}
        answers[f"{client} allow"] = as_json(allow)
    answers["allow"] = as_json(ALLOW["codex"])
    answers["claude-code deny"] = answers["codex deny"] = as_json(claude_form("deny", permissionDecisionReason="No."))
    answers["claude-code defer"] = as_json(claude_form("defer"))
    answers["gemini-cli deny"] = as_json({"decision": "deny", "reason": "No."})
    return answers


ANSWERS = all_answers()
REFUSED = [
    pytest.param(client, name, id=f"{client} {name}")
    for client in CLIENTS
    for name in [*doubtful(ALLOW[client]), *WRONG_FORMS[client]]
]


@pytest.fixture(scope="module")
def server() -> Iterator[AnsweringServer]:
    with serving(AnsweringServer(ANSWERS)) as running:
        yield running


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The copy beside a client's configuration, with little patience."""
    path = shutil.copy(hook_wrapper.__file__, tmp_path / "toolgate_hook.py")
    specification = importlib.util.spec_from_file_location("toolgate_hook", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "SECONDS", 0.2)
    return module


def point_at(wrapper: ModuleType, url: str, **more: str) -> None:
    assert wrapper.__file__ is not None
    settings = Path(wrapper.__file__).with_name("toolgate.json")
    settings.write_text(json.dumps({"url": url, "token": "tg_of-the-agent", **more}))


@pytest.mark.parametrize(("client", "name"), REFUSED)
def test_a_doubtful_answer_refuses(wrapper: ModuleType, server: AnsweringServer, client: str, name: str) -> None:
    point_at(wrapper, server.url(f"{client} {name}"))
    before = len(server.taken)
    with pytest.raises(Exception) as refusal:
        wrapper.decision(client, question(client))
    assert str(refusal.value) or type(refusal.value).__name__
    assert len(server.taken) == before + 1  # it was asked, and a redirect was not followed


@pytest.mark.parametrize("client", CLIENTS)
def test_an_allowed_call_runs_with_the_approved_input(
    wrapper: ModuleType, server: AnsweringServer, client: str
) -> None:
    point_at(wrapper, server.url(f"{client} allow"))
    assert wrapper.decision(client, question(client)) == ALLOW[client]
    path, authorization, body = server.taken[-1]
    assert path.endswith(f"/api/v1/hooks/{client}/")
    added = {"session_directory": str(Path.cwd())} if client == "codex" else {}
    assert (authorization, json.loads(body)) == ("Bearer tg_of-the-agent", json.loads(question(client)) | added)


@pytest.mark.parametrize("action", ["ask", "report"])
def test_the_session_of_codex_is_where_its_hook_starts(
    wrapper: ModuleType, server: AnsweringServer, tmp_path: Path, action: str
) -> None:
    """PWD may be a name for it with links, but never of another directory. A report is as its question."""
    point_at(wrapper, server.url("codex allow"))
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    for named, directory in (("link", "link"), ("", "work"), ("../..", "work")):
        run_hook(
            tmp_path,
            *("codex", action),
            body=question("codex"),
            cwd=tmp_path / "work",
            env={"PWD": str(tmp_path / named)},
        )
        assert json.loads(server.taken[-1][2])["session_directory"] == str(tmp_path / directory)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_reaches_the_model(wrapper: ModuleType, server: AnsweringServer, client: str) -> None:
    point_at(wrapper, server.url(f"{client} deny"))
    assert "No." in json.dumps(wrapper.decision(client, question(client)))


def transcript(path: Path, *messages: tuple[str, list[str]]) -> str:
    """Write a transcript with messages: the id of each, and those of its tool calls."""
    lines = [
        json.dumps({"message": {"id": name, "content": [{"type": "tool_use", "id": call} for call in calls]}})
        for name, calls in messages
    ]
    path.write_text("\n".join(["half a line", *lines, json.dumps({"type": "attachment"})]))
    return str(path)


@pytest.mark.parametrize(
    ("session", "may_defer"),
    [
        (("sdk-cli", [("m1", ["toolu_0"]), ("m2", ["toolu_1"])]), True),
        (("cli", [("m1", ["toolu_1"])]), False),
        (("sdk-cli", [("m1", ["toolu_1"]), ("m1", ["toolu_2"])]), False),
        (("sdk-cli", [("m1", ["toolu_1", "toolu_2"])]), False),
        (("sdk-cli", [("m1", ["toolu_2"])]), False),
    ],
)
def test_claude_code_may_end_at_the_only_call_of_a_message_without_a_terminal(
    wrapper: ModuleType,
    server: AnsweringServer,
    monkeypatch: pytest.MonkeyPatch,
    session: tuple[str, list[tuple[str, list[str]]]],
    may_defer: bool,
) -> None:
    entry, messages = session
    monkeypatch.setenv("TOOLGATE_MAY_DEFER", "1")
    monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", entry)
    facts = {
        "tool_use_id": "toolu_1",
        "transcript_path": transcript(Path(str(wrapper.__file__)).parent / "t.jsonl", *messages),
    }
    body = json.dumps(json.loads(question("claude-code")) | facts).encode()
    point_at(wrapper, server.url("claude-code defer"))
    if may_defer:
        answer = wrapper.decision("claude-code", body)
        assert answer["hookSpecificOutput"]["permissionDecision"] == "defer"
    else:  # a deferral that was not asked for is no decision
        with pytest.raises(wrapper.Refused):
            wrapper.decision("claude-code", body)
    query = "?may_defer=true" if may_defer else ""
    assert server.taken[-1][0].endswith(f"/api/v1/hooks/claude-code/{query}")


def test_only_claude_code_may_defer(
    wrapper: ModuleType, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_MAY_DEFER", "1")
    point_at(wrapper, server.url("codex allow"))
    wrapper.decision("codex", question("codex"))
    assert server.taken[-1][0].endswith("/api/v1/hooks/codex/")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:{port}/codex-allow", "gopher://127.0.0.1"])
def test_a_server_that_cannot_be_reached_refuses(wrapper: ModuleType, server: AnsweringServer, url: str) -> None:
    point_at(wrapper, url.format(port=server.server_port))
    with pytest.raises(wrapper.Refused):
        wrapper.decision("codex", question("codex"))


@pytest.mark.parametrize("settings", [None, "", "[]", '{"url": "http://127.0.0.1:1"}', "\x00"])
def test_unreadable_settings_refuse(wrapper: ModuleType, tmp_path: Path, settings: str | None) -> None:
    if settings is not None:
        (tmp_path / "toolgate.json").write_text(settings)
    with pytest.raises(wrapper.Refused):
        wrapper.decision("codex", question("codex"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        question("codex", hook_event_name="PostToolUse"),
        question("codex", tool_name=""),
        question("codex", tool_name=None),
        question("codex", tool_input={"command": "x" * hook_wrapper.MAX_BYTES}),
    ],
    ids=["empty", "list", "object", "other event", "no tool", "null tool", "too large"],
)
def test_a_body_that_is_no_question_refuses_unasked(wrapper: ModuleType, server: AnsweringServer, body: bytes) -> None:
    point_at(wrapper, server.url("codex allow"))
    before = len(server.taken)
    with pytest.raises(wrapper.Refused):
        wrapper.decision("codex", body)
    assert len(server.taken) == before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("tool", ["mcp__toolgate__x", "mcp_toolgate_x", "toolgate_x"])
def test_no_tool_runs_unasked_for_its_name(
    wrapper: ModuleType, server: AnsweringServer, client: str, tool: str
) -> None:
    """Another MCP server may have the name toolgate; the server knows the tools of its own."""
    point_at(wrapper, server.url(f"{client} deny"))
    before = len(server.taken)
    assert "allow" not in json.dumps(wrapper.decision(client, question(client, tool_name=tool)))
    wrapper.report(client, question(client, tool_name=tool, hook_event_name="PostToolUse"))
    assert len(server.taken) == before + 2


def run_hook(folder: Path, *arguments: str, body: bytes, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-I", "-S", str(folder / "toolgate_hook.py"), *arguments]
    return subprocess.run(command, input=body, capture_output=True, timeout=30, **options)


@pytest.mark.parametrize("arguments", [["codex", "ask"], ["cursor", "ask"], ["codex"], ["codex", "run"], []])
def test_a_refusal_ends_with_2_and_a_reason(wrapper: ModuleType, tmp_path: Path, arguments: list[str]) -> None:
    point_at(wrapper, "http://127.0.0.1:1")
    done = run_hook(tmp_path, *arguments, body=question("codex"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr  # Codex runs a tool whose hook ends with 2 and says nothing


def test_a_decision_ends_with_0(wrapper: ModuleType, tmp_path: Path, server: AnsweringServer) -> None:
    point_at(wrapper, server.url("codex allow"))
    done = run_hook(tmp_path, "codex", "ask", body=question("codex"))
    assert (done.returncode, json.loads(done.stdout)) == (0, ALLOW["codex"])


@pytest.mark.parametrize(
    ("certificate", "code"),
    [
        ("trusted", 0),
        ("trusted by the environment", 2),
        ("signed by itself", 2),
        ("of an unknown authority", 2),
        ("of another host", 2),
        ("ended", 2),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_certificate_in_doubt_refuses_unasked(
    wrapper: ModuleType, tmp_path: Path, client: str, certificate: str, code: int
) -> None:
    trusted = tmp_path / "authority.pem"
    authority: Signer | None = write_authority(trusted)
    if certificate == "signed by itself":
        authority = None
    elif certificate == "of an unknown authority":
        authority = write_authority(tmp_path / "other.pem")
    context = server_context(
        tmp_path,
        authority,
        host="elsewhere.example" if certificate == "of another host" else "localhost",
        days=-1 if certificate == "ended" else 1,
    )
    server = AnsweringServer({"allow": as_json(ALLOW[client])})
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        named = {} if certificate == "trusted by the environment" else {"certificates": str(trusted)}
        point_at(wrapper, f"https://localhost:{server.server_port}/allow", **named)
        environment = {**os.environ, "SSL_CERT_FILE": str(trusted), "SSL_CERT_DIR": str(tmp_path)}
        done = run_hook(tmp_path, client, "ask", body=question(client), env=environment)
    assert (done.returncode, bool(done.stdout), len(server.taken)) == (code, code == 0, 1 - code // 2)
    assert code == 0 or b"certificate" in done.stderr.lower()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_answers_only_if_the_settings_name_it(
    wrapper: ModuleType, tmp_path: Path, server: AnsweringServer, client: str, scheme: str
) -> None:
    """A proxy gets the token and can answer in Toolgate's place; over https it is only asked for a tunnel."""
    proxy = f"http://127.0.0.1:{server.server_port}"
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    environment = {**os.environ, **dict.fromkeys(names, proxy), "NO_PROXY": "", "no_proxy": ""}
    address, before = f"{scheme}://toolgate.invalid:8000/{client}-allow", len(server.taken)
    point_at(wrapper, address)
    assert run_hook(tmp_path, client, "ask", body=question(client), env=environment).returncode == 2
    assert len(server.taken) == before
    if scheme == "http":
        server.answers[""] = server.answers[f"{client}-allow"]
        point_at(wrapper, address, proxy=proxy)
        done = run_hook(tmp_path, client, "ask", body=question(client))
        assert (done.returncode, json.loads(done.stdout)) == (0, ALLOW[client])
        assert server.taken[-1][0].startswith(f"{address}/api/")


@pytest.mark.parametrize("end", ["killed", "no program", "no Python", "too slow", "body without end"])
def test_the_entry_refuses_however_the_program_ends(tmp_path: Path, server: AnsweringServer, end: str) -> None:
    """The whole entry runs as a client runs it, by its shell, beside a server that allows."""
    agent = Codex({"HOME": str(tmp_path), "PATH": ""})
    apply_changes(agent.own_changes(Setup(server.url("codex slow"), "tg_of-the-agent", "")))
    if end == "no program":
        agent.wrapper.unlink()
    if end in ("too slow", "body without end"):
        agent.wrapper.write_text(agent.wrapper.read_text().replace("\nSECONDS = 590\n", "\nSECONDS = 0.3\n"))
    python = "/nonexistent/python3" if end == "no Python" else sys.executable
    before = len(server.taken)
    with subprocess.Popen(
        ["sh", "-c", agent.asking_command(python)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if end != "body without end":
            process.stdin.write(question("codex"))
            process.stdin.close()
        if end == "killed":
            eventually(lambda: len(server.taken) > before, what="The question")
            [program] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(program), signal.SIGKILL)
        assert process.wait(30) == 2
        assert process.stdout.read() == b""
        assert process.stderr.read()


@pytest.mark.parametrize(
    ("name", "requests"),
    [("codex allow", 1), ("codex 401", 1), ("codex 503", 3), ("codex no status", 3), ("codex cut chunk", 3)],
)
def test_a_report_is_repeated_while_the_server_fails(
    wrapper: ModuleType, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch, name: str, requests: int
) -> None:
    monkeypatch.setattr(wrapper.time, "sleep", lambda seconds: None)
    point_at(wrapper, server.url(name))
    before = len(server.taken)
    wrapper.report("codex", question("codex", hook_event_name="PostToolUse"))
    assert len(server.taken) == before + requests
