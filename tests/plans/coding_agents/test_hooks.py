"""Hooks over REST: every question gets a decision in the client's format, and reports end their calls."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from approvals.stops.services import parse_scope, set_stop
from catalog.inventory import snapshot
from catalog.inventory.client_tools import find_or_add_client_tool
from catalog.inventory.overrides import apply_overrides
from catalog.models import Call, UngatedRun
from plans.coding_agents import hooks
from plans.coding_agents.hook_formats.events import Asked
from plans.coding_agents.permissions import PROMPT_SESSION
from plans.models import ClientSession
from tests.approvals.factories import add_policy
from tests.plans.coding_agents.conftest import CodingAgent, answer_request
from tests.plans.coding_agents.hook_client import AFTER, BEFORE, Hooks
from tests.plans.coding_agents.recorded import BODIES, CLAUDE, HOOK_FORMATS, decision_in, recorded
from tests.rest import Rest


@pytest.fixture
def claude(agent: CodingAgent) -> Hooks:
    return Hooks(agent)


@pytest.fixture
def bash_is_safe(agent: CodingAgent, admin: User) -> None:
    """Let calls of Bash run without a person."""
    find_or_add_client_tool("claude-code", "Bash", by=agent.user, owner="user:0")
    apply_overrides("Bash", {"safety_level": "safe"}, by=admin, reason="A sandbox.")
    snapshot.drop_snapshot()


def test_held_call_is_refused_at_the_end_of_the_wait_and_allowed_when_it_is_made_again(claude, rosa):
    decision, _, message = claude.decision()
    assert (decision, "same input" in (message or "")) == ("deny", True)
    claude.approve(rosa)
    again = claude.decision(tool_use_id="toolu_9")
    assert again[:2] == ("allow", BEFORE["tool_input"])
    assert claude.send(AFTER, tool_use_id="toolu_9").json() == {}
    call = Call.objects.get()
    assert (call.status, call.response_json["results"]) == ("completed", [AFTER["tool_response"]])
    assert not UngatedRun.objects.exists()


def test_rejection_reaches_the_call_that_is_made_again(claude, rosa):
    claude.decision()
    claude.approve(rosa, verdict="reject", comment="Not on a Friday.")
    again = claude.decision(tool_use_id="toolu_9")
    assert (again[0], "Not on a Friday." in (again[2] or "")) == ("deny", True)
    assert Call.objects.count() == 1


def test_equal_call_of_the_same_turn_is_a_call_of_its_own(claude, rosa):
    claude.send(query="?wait_seconds=5")
    claude.send(query="?wait_seconds=5", tool_use_id="toolu_b")
    assert Call.objects.count() == 2


def test_one_of_two_equal_calls_adopts_the_earlier_one(claude):
    claude.decision()
    claude.send(query="?wait_seconds=5", tool_use_id="toolu_b")
    claude.send(query="?wait_seconds=5", tool_use_id="toolu_c")
    assert Call.objects.count() == 2


def test_edited_input_is_returned_and_is_what_is_reported(claude, rosa):
    claude.decision()
    edited = {**BEFORE["tool_input"], "command": "echo edited"}
    claude.approve(rosa, arguments=edited)
    assert claude.decision()[:2] == ("allow", edited)
    claude.send(AFTER, tool_input=edited)
    assert Call.objects.get().status == "completed"


def test_wait_is_requested_for_as_long_as_the_client_stands(claude):
    response = claude.send(query="")
    call = Call.objects.get().public_id
    assert response["Toolgate-Wait"] == f"{call};570.0;question;token:{claude.rest.token.pk}"
    assert decision_in(CLAUDE, response.json())[0] == "deny"
    assert claude.send(query="?may_defer=true")["Toolgate-Wait"] == f"{call};10.0;question;token:{claude.rest.token.pk}"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("codex", "codex_PreToolUse_apply_patch"),
        ("gemini-cli", "gemini-cli_BeforeTool_replace"),
        ("opencode", "opencode_tool.execute.before_write"),
    ],
)
def test_calls_of_other_clients_run_when_they_are_approved(claude, rosa, client, name):
    body = recorded(name)
    claude.decision(body, client)
    run = claude.last_run()
    request_body = {"client": client, "session": run.session}
    claude.agent.client, claude.agent.session = request_body["client"], request_body["session"]
    event = HOOK_FORMATS[client].read_event(body)
    assert isinstance(event, Asked)
    question = event.question
    asked = claude.agent.ask(run.client_tool, run.client_call_id, input=question.input, cwd=run.cwd)
    answer_request(asked, rosa)
    assert claude.decision(body, client)[:2] == ("allow", question.input)
    after = recorded(name.replace("PreTool", "PostTool").replace("Before", "After").replace("before", "after"))
    claude.send(after, client)
    assert Call.objects.get().status == "completed"
    assert not UngatedRun.objects.exists()


def test_allowance_that_gemini_cli_would_misread_is_refused_and_ends_the_call(claude, rosa):
    body = recorded("gemini-cli_BeforeTool_run_shell_command") | {"tool_input": {"command": "a", "timeout": 9}}
    claude.decision(body, "gemini-cli")
    claude.agent.client, claude.agent.session = "gemini-cli", body["session_id"]
    asked = claude.agent.ask("run_shell_command", "", input=body["tool_input"], cwd=body["cwd"])
    answer_request(asked, rosa, arguments={"command": "a"})
    decision, _, message = claude.decision(body, "gemini-cli")
    assert (decision, '{"command": "a"}' in (message or "")) == ("deny", True)
    assert Call.objects.get().status == "failed"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude-code", "claude-code_PreToolUse_Bash"),
        ("codex", "codex_PreToolUse_apply_patch"),
        ("gemini-cli", "gemini-cli_BeforeTool_replace"),
        ("opencode", "opencode_tool.execute.before_write"),
    ],
)
def test_stop_is_a_denial_with_its_reason_for_every_client(claude, admin, client, name):
    set_stop(parse_scope({"requester": "ada"}), "Too many mails.", by=admin)
    decision, _, message = claude.decision(recorded(name), client)
    assert (decision, message) == ("deny", "Stopped: Too many mails. Do not retry.")
    assert not Call.objects.exists()


def test_run_that_nobody_asked_about_raises_an_alarm(claude):
    assert claude.send(AFTER).json() == {}
    assert UngatedRun.objects.get().client_call_id == AFTER["tool_use_id"]


def test_report_of_a_call_that_a_prompt_asked_about_ends_it(claude, bash_is_safe):
    claude.agent.session = PROMPT_SESSION
    assert claude.agent.ask(call_id=AFTER["tool_use_id"], input=AFTER["tool_input"]).decision == "allow"
    claude.send(AFTER)
    assert Call.objects.get().status == "completed"
    assert not UngatedRun.objects.exists()


def test_report_that_comes_twice_counts_once(claude, bash_is_safe):
    assert claude.decision()[0] == "allow"
    for _ in range(2):
        assert claude.send(AFTER).status_code == 200
    assert Call.objects.get().status == "completed"
    assert not UngatedRun.objects.exists()


def test_call_that_the_client_refused_itself_has_failed(claude, bash_is_safe):
    denied = {**BEFORE, "hook_event_name": "PermissionDenied", "reason": "auto mode"}
    claude.send(denied)
    assert not UngatedRun.objects.exists()
    claude.decision()
    claude.send(denied)
    assert Call.objects.get().status == "failed"


def test_large_report_ends_its_call(claude, bash_is_safe):
    claude.decision()
    body = {**AFTER, "tool_response": {"stdout": "x" * 5_000_000}}
    assert claude.send(body).json() == {}
    assert Call.objects.get().status == "completed"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(BEFORE).replace('"Bash"', '"Bash", "tool_name": "Read"').encode(),
        json.dumps(BEFORE).replace("echo hi", "\\ud800").encode(),
        json.dumps(BEFORE).replace('"echo hi > ran.txt"', "1" * 30).encode(),
        json.dumps({**BEFORE, "tool_input": {"command": "x" * 5_000_000}}).encode(),
        json.dumps({**BEFORE, "tool_input": json.loads("[" * 70 + "]" * 70)}).encode(),
        json.dumps({**BEFORE, "tool_input": []}).encode(),
        json.dumps({**BEFORE, "session_id": "a b"}).encode(),
        json.dumps({**BEFORE, "tool_name": "Bash\n"}).encode(),
        json.dumps({**BEFORE, "tool_use_id": "x" * 999}).encode(),
        json.dumps({**BEFORE, "hook_event_name": "BeforeEverything"}).encode(),
    ],
)
def test_question_that_cannot_be_asked_is_refused_in_words(claude, body):
    decision, _, message = claude.decision(body)
    assert decision == "deny"
    assert message
    assert not Call.objects.exists()


@pytest.mark.parametrize("query", ["?wait_seconds=9999", "?x=1"])
def test_unknown_wait_is_refused_in_words(claude, query):
    assert claude.decision(query=query)[0] == "deny"


def test_command_with_nul_is_decided_or_refused(claude):
    assert claude.decision(tool_input={"command": "echo \0"})[0] == "deny"


@pytest.mark.parametrize(
    ("client", "body", "status"),
    [
        ("claude-code", b"", 400),
        ("claude-code", b"<html>", 400),
        ("claude-code", b"[]", 400),
        ("claude-code", b"\xff", 400),
        ("claude-code", b"{}", 422),
        ("claude-code", json.dumps({"hook_event_name": "PostToolUse"}).encode(), 422),
        ("cursor", json.dumps(BEFORE).encode(), 404),
    ],
)
def test_body_of_no_client_is_an_error(claude, client, body, status):
    assert claude.send(body, client).status_code == status


def test_no_body_is_allowed_without_the_right(agent):
    sender = Hooks(agent, "calls:create")
    for path in sorted(BODIES.glob("*.json")):
        client, body = path.stem.split("_")[0], json.loads(path.read_text())
        response = sender.send(body, client)
        asks = isinstance(HOOK_FORMATS[client].read_event(body), Asked)
        assert response.status_code == (200 if asks else 403)
        assert not asks or decision_in(HOOK_FORMATS[client], response.json())[0] == "deny"


def test_request_without_a_token_is_401(db):
    response = Rest(None).post("hooks/claude-code/", BEFORE)
    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")


def test_policy_refuses_in_words(claude):
    add_policy(0, effect="deny", tool="Bash", message="Not here.")
    decision, _, message = claude.decision()
    assert (decision, "Not here." in (message or "")) == ("deny", True)


@pytest.mark.parametrize("error", [OperationalError("the database is away"), RuntimeError("a fault")])
def test_failure_is_a_refusal(claude, monkeypatch, error):
    def fail(*arguments: Any, **names: Any) -> None:
        raise error

    monkeypatch.setattr(hooks, "ask", fail)
    assert claude.decision()[0] == "deny"


def test_events_that_need_no_answer(claude):
    assert claude.send({"session_id": "s1", "hook_event_name": "SessionStart"}).json() == {}


def test_permission_request_joins_the_call_that_its_hook_was_allowed(claude, bash_is_safe):
    assert claude.decision()[0] == "allow"
    assert (
        claude.decision(recorded("claude-code_PermissionRequest_Bash"), session_id=BEFORE["session_id"])[0] == "allow"
    )
    assert Call.objects.count() == 1


OWN = [
    ("claude-code_PreToolUse_Bash", "claude-code", {"tool_name": "mcp__toolgate__{}"}),
    ("codex_PreToolUse_Bash", "codex", {"tool_name": "mcp__toolgate__{}"}),
    ("gemini-cli_BeforeTool_run_shell_command", "gemini-cli", {"tool_name": "mcp_toolgate_{}"}),
    ("opencode_tool.execute.before_bash", "opencode", {"tool": "toolgate_{}"}),
]


def own_question(body: str, changes: dict[str, str], name: str) -> dict[str, Any]:
    """Return a recorded question about a tool of an MCP server named toolgate."""
    question: dict[str, Any] = json.loads(json.dumps(recorded(body)))
    fields = question["input"] if "tool" in changes else question
    fields |= {field: text.format(name) for field, text in changes.items()}
    return question


@pytest.mark.parametrize("own", OWN, ids=[client for _, client, _ in OWN])
def test_listed_tools_of_the_mcp_server_are_not_gated_twice(agent, own):
    body, client, changes = own
    claude = Hooks(agent, "permissions:ask", "calls:create")
    for name in ("dangerous", "approval_result", "permission_prompt"):
        question = own_question(body, changes, name)
        given = question["output"]["args"] if client == "opencode" else question["tool_input"]
        assert claude.decision(question, client)[:2] == ("allow", given)
    assert not Call.objects.exists()
    assert ClientSession.objects.get().armed_since is not None


@pytest.mark.parametrize("own", OWN, ids=[client for _, client, _ in OWN])
@pytest.mark.parametrize(("name", "scope"), [("steal", "calls:create"), ("Bash", "calls:create"), ("dangerous", "")])
def test_unlisted_tools_of_a_server_named_toolgate_are_gated(agent, bash_is_safe, own, name, scope):
    body, client, changes = own
    claude = Hooks(agent, *filter(None, ("permissions:ask", scope)))
    assert claude.decision(own_question(body, changes, name), client)[0] == "deny"
    assert Call.objects.get().status == "held"


@pytest.mark.parametrize(("name", "alarms"), [("dangerous", 0), ("approval_result", 0), ("steal", 1), ("Bash", 1)])
def test_report_about_a_tool_of_the_mcp_server_is_no_alarm(claude, bash_is_safe, name, alarms):
    claude.send(AFTER, tool_name=f"mcp__toolgate__{name}")
    assert UngatedRun.objects.count() == alarms


def test_names_that_are_none_are_refused_before_anything_is_stored(claude):
    assert claude.decision(session_id="a\0b")[0] == "deny"
    assert claude.send(AFTER, session_id="a\0b").status_code == 422
    denied = {**BEFORE, "hook_event_name": "PermissionDenied", "reason": "auto mode"}
    assert claude.send(denied, session_id="a\0b").status_code == 422
    assert not ClientSession.objects.exists()


@pytest.mark.parametrize("call_id", ["a\0b", "x" * 201, "é"])
def test_run_under_an_id_that_nobody_can_have_asked_with_raises_an_alarm(claude, call_id):
    assert claude.send(AFTER, tool_use_id=call_id).json() == {}
    assert UngatedRun.objects.get().client_call_id == ""
