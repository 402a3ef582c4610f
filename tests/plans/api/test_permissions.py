"""REST endpoints of permissions."""

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.core.canonical_json import MAX_JSON_BYTES
from catalog.models import Call, UngatedRun
from plans.live.long_polling import WAIT_HEADER
from tests.rest import Rest, agent, wrong_paths

QUESTION = {
    "client": "claude-code",
    "session": "s1",
    "tool": "Bash",
    "input": {"command": "make"},
    "call_id": "toolu_1",
    "cwd": "/srv/project",
}


@pytest.fixture
def client(stage, ada) -> Rest:
    """The client of a coding agent."""
    return agent(ada, "permissions:ask", "plans:read")


def approve(answer, rosa):
    request = ApprovalRequest.objects.get(public_id=answer["approval"])
    decide(request, by=rosa, decision=Decision(ReviewVerdict.APPROVE, request.digest))


def test_question_waits_is_allowed_and_reported(client, rosa):
    response = client.post("permissions/", {**QUESTION, "wait_seconds": 240})
    first = response.json()
    assert (response.status_code, first["decision"], first["input"]) == (200, "wait", None)
    assert response[WAIT_HEADER] == f"{first['call']};240.0;question;token:{client.token.pk}"
    approve(first, rosa)
    answer = client.post("permissions/", QUESTION).json()
    assert (answer["decision"], answer["call"], answer["input"]) == ("allow", first["call"], {"command": "make"})
    report = {"succeeded": True, "output": {"stdout": "built"}, "duration_ms": 812}
    reported = client.post(f"permissions/{first['call']}/result/", report)
    assert (reported.status_code, reported.json()) == (200, {"call": first["call"], "effect": "ended"})
    assert client.post(f"permissions/{first['call']}/result/", report).json()["effect"] == "repeated"
    call = Call.objects.get(public_id=first["call"])
    session = client.get(f"sessions/{call.plan_ref}/").json()
    assert session["armed"]["how"] == "permissions"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"other": 1}, "other"),
        ({"input": "make"}, "input"),
        ({"session": "a b"}, "session"),
        ({"client": "Claude"}, "client"),
        ({"tool": ""}, "tool"),
        ({"wait_seconds": 601}, "wait_seconds"),
    ],
)
def test_invalid_question_is_refused(client, change, path):
    response = client.post("permissions/", {**QUESTION, **change})
    assert response.status_code == 422
    assert wrong_paths(response) == [path]


def test_oversized_question_is_refused(client):
    response = client.post("permissions/", {**QUESTION, "input": {"content": "x" * (MAX_JSON_BYTES + 1)}})
    assert response.status_code == 413


def test_large_input_is_denied_in_words(client):
    answer = client.post("permissions/", {**QUESTION, "input": {"content": "x" * 300_000}}).json()
    assert (answer["decision"], answer["call"]) == ("deny", None)
    assert "At most" in answer["message"]


def test_scope_is_needed(stage, ada):
    assert agent(ada).post("permissions/", QUESTION).status_code == 403


def test_call_of_another_token_cannot_be_reported(client, ben):
    first = client.post("permissions/", QUESTION).json()
    other = agent(ben, "permissions:ask")
    assert other.post(f"permissions/{first['call']}/result/", {"succeeded": True}).status_code == 404
    assert not UngatedRun.objects.exists()


def test_report_of_a_held_call_raises_an_alarm(client):
    first = client.post("permissions/", QUESTION).json()
    response = client.post(f"permissions/{first['call']}/result/", {"succeeded": True})
    assert response.status_code == 409
    assert UngatedRun.objects.get().client_call_id == "toolu_1"
    assert AuditEntry.objects.filter(action="run.ungated").exists()
    plan = Call.objects.get(public_id=first["call"]).plan_ref
    session = client.get(f"sessions/{plan}/").json()
    assert session["armed"] is None and session["why_not_armed"]
