"""Forms of the clients' hooks: bodies as released clients send them, and bodies of other versions."""

import json
from typing import Any

import pytest

from plans.coding_agents.hook_formats.events import (
    MAX_OUTPUT,
    Asked,
    HookFormat,
    Ignored,
    Inexpressible,
    NotRun,
    Reported,
    UnreadableEvent,
    kept_output,
)
from plans.coding_agents.permissions import PermissionAnswer
from tests.plans.coding_agents.recorded import (
    BODIES,
    CLAUDE,
    CODEX,
    GEMINI,
    HOOK_FORMATS,
    OPENCODE,
    decision_in,
    recorded,
)

ASKING = {"PreToolUse", "PermissionRequest", "BeforeTool", "tool.execute.before"}
FAILED = {
    "claude-code_PostToolUseFailure_Bash",
    "claude-code_PostToolUseFailure_WebFetch",
    "gemini-cli_AfterTool_web_fetch",
}


def asked(hook_format: HookFormat, name: str, **changes: Any) -> Asked:
    event = hook_format.read_event(recorded(name) | changes)
    assert isinstance(event, Asked)
    return event


@pytest.mark.parametrize("path", sorted(BODIES.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_body_is_read(path):
    client, event, tool = path.stem.split("_", 2)
    body = json.loads(path.read_text())
    found = HOOK_FORMATS[client].read_event(body | {"field_of_a_later_version": {"a": [1]}})
    if event in ASKING:
        assert isinstance(found, Asked)
        question = found.question
        assert (question.client, question.tool, question.cwd) == (client, tool, "/srv/ada/project")
        assert question.input == body.get("tool_input", body.get("output", {}).get("args"))
        assert (question.call_id == "") == (client == "gemini-cli" or event == "PermissionRequest")
    else:
        assert isinstance(found, Reported)
        assert (found.run.client, found.run.tool) == (client, tool)
        assert found.run.session == body.get("session_id", body.get("input", {}).get("sessionID"))
        assert found.report.succeeded is (path.stem not in FAILED)


def answer(decision: Any = "allow", given: Any = None, message: str = "") -> PermissionAnswer:
    return PermissionAnswer(decision, "call_1", given, message)


QUESTIONS = [
    (CLAUDE, "claude-code_PreToolUse_Bash"),
    (CLAUDE, "claude-code_PermissionRequest_Bash"),
    (CODEX, "codex_PreToolUse_Bash"),
    (GEMINI, "gemini-cli_BeforeTool_run_shell_command"),
    (OPENCODE, "opencode_tool.execute.before_bash"),
]


@pytest.mark.parametrize(("hook_format", "name"), QUESTIONS)
def test_allowance_has_the_input_that_is_to_run(hook_format, name):
    question = asked(hook_format, name)
    edited = {**question.question.input, "command": "echo safe"}
    assert decision_in(hook_format, hook_format.decision(question, answer("allow", edited)))[:2] == ("allow", edited)


@pytest.mark.parametrize("decision", ["deny", "wait"])
@pytest.mark.parametrize(("hook_format", "name"), QUESTIONS)
def test_all_else_is_a_refusal_with_a_reason(hook_format, name, decision):
    found = decision_in(hook_format, hook_format.decision(asked(hook_format, name), answer(decision)))
    assert (found[0], found[1]) == ("deny", None)
    assert found[2]


@pytest.mark.parametrize(("hook_format", "name"), QUESTIONS)
def test_allowance_without_an_input_is_a_refusal(hook_format, name):
    assert decision_in(hook_format, hook_format.decision(asked(hook_format, name), answer("allow", None)))[0] == "deny"


def test_claude_code_alone_defers_and_only_before_a_tool():
    expected = ["defer", "deny", "deny", "deny", "deny"]
    found = [
        decision_in(hook_format, hook_format.decision(asked(hook_format, name), answer("defer", None, "x")))[0]
        for hook_format, name in QUESTIONS
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("claude-code_PreToolUse_Bash", {}, True),
        ("claude-code_PreToolUse_Bash", {"permission_mode": "bypassPermissions"}, False),
        ("claude-code_PreToolUse_Bash", {"agent_id": "a1"}, False),
        ("claude-code_PreToolUse_Bash", {"tool_use_id": None}, False),
        ("claude-code_PermissionRequest_Bash", {}, False),
    ],
)
def test_question_that_may_be_deferred(name, changes, expected):
    assert asked(CLAUDE, name, **changes).can_defer is expected


def test_codex_gets_no_input_at_a_permission_request():
    question = asked(CODEX, "claude-code_PermissionRequest_Bash")
    document = CODEX.decision(question, answer("allow", dict(question.question.input)))
    assert document["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    with pytest.raises(Inexpressible):
        CODEX.decision(question, answer("allow", {"command": "echo safe"}))


def test_codex_commands_are_judged_in_the_directory_of_the_session():
    question = asked(CODEX, "codex_PreToolUse_Bash", cwd="/etc", session_directory="/srv/ada/project")
    command = question.question.input["command"]
    assert question.question.cwd == "/srv/ada/project"
    assert (question.question.tool, question.question.input["workdir"]) == ("exec_command", "/etc")
    allowance = CODEX.decision(question, answer("allow", dict(question.question.input)))
    assert decision_in(CODEX, allowance)[:2] == ("allow", {"command": command})
    with pytest.raises(Inexpressible):
        CODEX.decision(question, answer("allow", {"command": command, "workdir": "/srv/ada/project"}))


@pytest.mark.parametrize(
    ("given", "approved"),
    [({"command": "a", "timeout": 1}, {"command": "a"}), ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}})],
)
def test_gemini_cli_cannot_leave_fields_out(given, approved):
    question = asked(GEMINI, "gemini-cli_BeforeTool_run_shell_command", tool_input=given)
    with pytest.raises(Inexpressible):
        GEMINI.decision(question, answer("allow", approved))


@pytest.mark.parametrize(
    ("hook_format", "body"),
    [
        (CLAUDE, {"hook_event_name": "PreToolUse"}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"tool_input": "rm"}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"tool_name": ["Bash"]}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"tool_use_id": 7}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"session_id": ""}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"hook_event_name": 1}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"hook_event_name": "BeforeToolUse"}),
        (CLAUDE, recorded("claude-code_PreToolUse_Bash") | {"hook_event_name": "PreSkillShellCommand"}),
        (CODEX, recorded("codex_PreToolUse_Bash") | {"cwd": {}}),
        (
            CODEX,
            recorded("codex_PreToolUse_Bash")
            | {"session_directory": "/a", "tool_input": {"command": "", "workdir": ""}},
        ),
        (GEMINI, recorded("gemini-cli_BeforeTool_replace") | {"hook_event_name": "BeforeToolCall"}),
        (OPENCODE, recorded("opencode_tool.execute.before_bash") | {"output": {}}),
        (OPENCODE, recorded("opencode_tool.execute.before_bash") | {"hook_event_name": "permission.ask"}),
    ],
)
def test_question_that_is_not_understood_is_refused(hook_format, body):
    with pytest.raises(UnreadableEvent) as caught:
        hook_format.read_event(body)
    assert caught.value.asks
    assert decision_in(hook_format, hook_format.refusal(caught.value.event, caught.value.message))[0] == "deny"


@pytest.mark.parametrize(
    ("hook_format", "event"),
    [
        (CLAUDE, "Stop"),
        (CLAUDE, "EventOfALaterVersion"),
        (CODEX, "SessionStart"),
        (GEMINI, "BeforeModel"),
        (OPENCODE, "x"),
    ],
)
def test_event_about_no_tool_needs_no_answer(hook_format, event):
    assert hook_format.read_event({"session_id": "s1", "hook_event_name": event}) == Ignored(event)


def test_call_that_the_client_refused_itself():
    body = recorded("claude-code_PreToolUse_Bash") | {"hook_event_name": "PermissionDenied", "reason": "Not now."}
    found = CLAUDE.read_event(body)
    assert isinstance(found, NotRun)
    assert (found.run.call_id, found.reason) == ("toolu_1_0", "Not now.")


def test_report_of_opencode_fails_with_its_exit_code():
    body = recorded("opencode_tool.execute.after_bash")
    body["output"]["metadata"]["exit"] = 3
    found = OPENCODE.read_event(body)
    assert isinstance(found, Reported)
    assert not found.report.succeeded


def test_large_output_is_kept_in_part():
    assert kept_output({"stdout": "a"}) == {"stdout": "a"}
    kept = kept_output({"stdout": "ä" * MAX_OUTPUT})
    assert isinstance(kept, str)
    assert 0 < len(kept.encode()) <= MAX_OUTPUT
