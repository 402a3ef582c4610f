"""Deferred calls: the session ends, people decide, one runner resumes it, and the approved call runs at most once."""

from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from approvals.requests import deadlines
from approvals.stops.services import lift_stop, parse_scope, set_stop
from catalog.core import clock
from catalog.models import Call, ClientRun
from plans.coding_agents import deferred, permissions
from plans.coding_agents.permissions import PermissionQuestion, ask
from plans.engine import client_runs
from plans.mcp.callers import Caller
from plans.mcp.permission_prompt import prompted_question
from tests.pages import Pages
from tests.plans.coding_agents.conftest import CodingAgent
from tests.plans.coding_agents.hook_client import AFTER, BEFORE, Hooks
from tests.rest import Rest

PERMISSION = {name: value for name, value in BEFORE.items() if name != "tool_use_id"} | {
    "hook_event_name": "PermissionRequest"
}
DEFER = "?wait_seconds=0&may_defer=true"


class Sleeper(Hooks):
    """Claude Code without a person at the terminal, and the runner that resumes its session."""

    def defer(self, **changes: Any) -> str:
        assert self.decision(query=DEFER, **changes)[0] == "defer"
        return self.last_run().call.public_id

    def listed(self, **query: Any) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = self.rest.get("permissions/deferred/", **query).json()["results"]
        return results

    def tell(self, call: str, state: str, status: int = 200, **fields: Any) -> Any:
        response = self.rest.post(f"permissions/{call}/resumed/", {"state": state, **fields})
        assert response.status_code == status, response.content
        return response.json()

    def claim(self, call: str) -> str:
        ref: str = self.tell(call, "starting", runner="host-1")["claim"]
        return ref

    def end(self, call: str, claim: str, exit_code: int = 0, **fields: Any) -> Any:
        return self.tell(call, "ended", claim=claim, exit_code=exit_code, **fields)["outcome"]


@pytest.fixture
def claude(agent: CodingAgent) -> Sleeper:
    return Sleeper(agent)


@pytest.fixture
def approved(claude: Sleeper, rosa: User) -> str:
    """The id of a call that was deferred and then approved."""
    call = claude.defer()
    claude.approve(rosa)
    return call


def change_run(call: str, **columns: Any) -> None:
    ClientRun.objects.filter(call__public_id=call).update(**columns)


def test_approved_call_of_a_resumed_session_runs_once(claude, rosa):
    call = claude.defer()
    assert claude.listed() == []
    claude.approve(rosa, arguments={"command": "echo edited", "description": "x"})
    (entry,) = claude.listed(client="claude-code")
    assert (entry["call"], entry["session"], entry["cwd"]) == (call, BEFORE["session_id"], "/srv/ada/project")
    assert (entry["decision"], entry["call_id"], entry["attempts"]) == ("allow", "toolu_1_0", 0)
    assert entry["expires_at"] > entry["decided_at"]
    claim = claude.claim(call)
    assert claude.listed() == []
    edited = {"command": "echo edited", "description": "x"}
    assert claude.decision(query=DEFER)[:2] == ("allow", edited)
    assert claude.decision(query=DEFER)[0] == "deny"
    claude.send(AFTER, tool_input=edited)
    assert claude.end(call, claim) == "ran"
    assert claude.end(call, claim) == "ran"
    assert (Call.objects.get().status, Call.objects.get().attempt) == ("completed", 1)


def test_session_that_a_person_resumes_gets_the_decision_too(claude, approved):
    assert claude.decision(query=DEFER)[0] == "allow"
    assert claude.listed() == []
    claude.tell(approved, "starting", 409, runner="host-1")


def ask_by_hook(claude: Sleeper) -> str:
    return claude.decision(query=DEFER)[0]


def ask_by_rest(claude: Sleeper) -> str:
    names = {"session": "session_id", "tool": "tool_name", "input": "tool_input", "call_id": "tool_use_id"}
    question = {"client": "claude-code", **{name: BEFORE[field] for name, field in names.items()}}
    decision: str = claude.rest.post("permissions/", question).json()["decision"]
    return decision


def ask_for_permission(claude: Sleeper) -> str:
    """Ask by the question of Claude Code itself, which has no id of the call."""
    return claude.decision(PERMISSION)[0]


def ask_by_prompt(claude: Sleeper) -> str:
    """Ask as the MCP tool for Claude Code's own question does."""
    given = {"tool_name": "Bash", "input": BEFORE["tool_input"], "tool_use_id": BEFORE["tool_use_id"]}
    caller = Caller(claude.agent.token, claude.agent.user)
    return ask(prompted_question(caller, "claude-code", "", given), by=caller.requester()).decision


@pytest.mark.parametrize("first", [ask_by_hook, ask_by_rest])
@pytest.mark.parametrize("own_question", [ask_for_permission, ask_by_prompt])
def test_decision_is_handed_out_once_whoever_asks(claude, approved, first, own_question):
    assert first(claude) == "allow"
    assert [door(claude) for door in (ask_by_hook, ask_by_rest)] == ["deny", "deny"]
    assert own_question(claude) == "allow"
    others = (ask_by_hook, ask_by_rest, ask_for_permission, ask_by_prompt)
    assert [door(claude) for door in others] == ["deny"] * 4
    assert Call.objects.get().attempt == 1


def test_decision_given_to_the_clients_own_question_is_not_given_to_a_hook(claude, approved):
    claude.claim(approved)
    doors = (ask_by_prompt, ask_by_hook, ask_by_rest, ask_for_permission, ask_by_prompt)
    assert [door(claude) for door in doors] == ["allow", *["deny"] * 4]
    assert claude.listed() == []


def test_refusal_told_over_rest_is_delivered(claude, rosa):
    call = claude.defer()
    claude.approve(rosa, verdict="reject", comment="Not on a Friday.")
    assert ask_by_rest(claude) == "deny"
    assert claude.listed() == []
    claude.tell(call, "starting", 409, runner="host-1")


def test_call_handed_out_while_it_was_to_be_deferred_is_not_deferred(claude, rosa, monkeypatch):
    claude.decision()

    def approve_and_hand_out(question: PermissionQuestion) -> bool:
        monkeypatch.undo()
        claude.approve(rosa)
        assert claude.decision()[0] == "allow"
        return True

    monkeypatch.setattr(permissions, "is_resumable", approve_and_hand_out)
    assert claude.decision(query=DEFER)[0] != "defer"
    assert ClientRun.objects.get().deferred_at is None


def test_refusal_is_delivered_to_the_resumed_session(claude, rosa):
    call = claude.defer()
    claude.approve(rosa, verdict="reject", comment="Not on a Friday.")
    (entry,) = claude.listed()
    assert (entry["decision"], "Friday" in entry["message"], entry["expires_at"]) == ("deny", True, None)
    claim = claude.claim(call)
    assert claude.decision(query=DEFER)[0] == "deny"
    assert claude.end(call, claim) == "told"
    assert claude.listed() == []


def test_two_runners_never_have_one_session(claude, approved):
    first = claude.claim(approved)
    claude.tell(approved, "starting", 409, runner="host-2")
    change_run(approved, resume_lease_until=clock.now() - timedelta(seconds=1))
    (entry,) = claude.listed()
    assert entry["attempts"] == 1
    second = claude.claim(approved)
    claude.tell(approved, "running", 409, claim=first)
    claude.tell(approved, "ended", 409, claim=first, exit_code=0)
    assert claude.tell(approved, "running", claim=second, lease_seconds=300)["claim"] == second


def test_claim_that_is_given_back_is_no_attempt(claude, approved):
    claim = claude.claim(approved)
    claude.tell(approved, "given_back", claim=claim)
    assert claude.listed()[0]["attempts"] == 0


@pytest.mark.parametrize(
    ("exit_code", "fields", "outcome"),
    [(0, {}, "not_asked"), (1, {"session_gone": True}, "session_gone")],
)
def test_session_that_does_not_ask_is_not_resumed_again(claude, approved, exit_code, fields, outcome):
    claim = claude.claim(approved)
    assert claude.end(approved, claim, exit_code, **fields) == outcome
    assert claude.listed() == []
    claude.tell(approved, "starting", 409, runner="host-1")
    request = claude.last_run().call.approval
    deadlines.expire_due(request.not_after + timedelta(seconds=1))
    assert Call.objects.get().status == "failed"


def test_failed_resumption_is_repeated_after_a_pause_and_then_given_up(claude, approved):
    for attempt in range(1, deferred.MAX_ATTEMPTS + 1):
        is_last = attempt == deferred.MAX_ATTEMPTS
        assert claude.end(approved, claude.claim(approved), 1) == ("given_up" if is_last else "failed")
        assert claude.listed() == []
        change_run(approved, resume_after=clock.now() - timedelta(seconds=1))
    assert claude.listed() == []


def test_call_whose_report_is_missing_is_unknown_and_settled_by_a_late_report(claude, approved):
    claim = claude.claim(approved)
    assert claude.decision(query=DEFER)[0] == "allow"
    assert claude.end(approved, claim, -9) == "unknown"
    assert claude.listed() == []
    client_runs.expire_unreported(clock.now())
    assert Call.objects.get().status == "outcome_unknown"
    assert claude.decision(query=DEFER)[0] == "deny"
    claude.send(AFTER)
    assert Call.objects.get().status == "completed"


def test_runner_that_dies_after_the_hand_out_is_not_replaced(claude, approved):
    claude.claim(approved)
    claude.decision(query=DEFER)
    change_run(approved, resume_lease_until=clock.now() - timedelta(seconds=1))
    assert claude.listed() == []


def test_answer_that_dies_before_it_takes_the_decision_is_given_again(claude, approved, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(permissions, "take_decision", Mock(side_effect=RuntimeError))
        assert claude.decision(query=DEFER)[0] == "deny"
    assert Call.objects.get().status == "running"
    assert [claude.decision(query=DEFER)[0] for _ in range(2)] == ["allow", "deny"]
    assert Call.objects.get().attempt == 1


def test_other_call_of_the_same_turn_is_refused_at_once(claude):
    claude.defer()
    decision, _, message = claude.decision(
        query="?may_defer=true", tool_use_id="toolu_1_1", tool_input={"command": "b"}
    )
    assert (decision, "only call of a turn" in (message or "")) == ("deny", True)


def test_session_resumes_only_its_last_deferred_call(claude, rosa):
    first = claude.defer()
    claude.approve(rosa)
    change_run(first, deferred_at=clock.now() - timedelta(hours=1))
    claude.defer(tool_use_id="toolu_2", tool_input={"command": "b"})
    assert claude.listed() == []
    detail = claude.tell(first, "starting", 409, runner="host-1")["detail"]
    assert "later call of this session" in detail


def test_runner_is_told_that_its_session_deferred_another_call_instead(claude, approved):
    change_run(approved, deferred_at=clock.now() - timedelta(hours=1))
    claim = claude.claim(approved)
    claude.defer(tool_use_id="toolu_2", tool_input={"command": "b"})
    assert [claude.end(approved, claim) for _ in range(2)] == ["superseded"] * 2
    assert ClientRun.objects.get(call__public_id=approved).resume_outcome == "superseded"


def test_only_the_same_token_sees_and_claims(claude, agent, approved):
    other = Rest(agent.user, "permissions:ask", kind="agent")
    assert other.get("permissions/deferred/").json() == {"results": []}
    body = {"state": "starting", "runner": "host-1"}
    assert other.post(f"permissions/{approved}/resumed/", body).status_code == 404
    assert Rest(agent.user, "calls:create").get("permissions/deferred/").status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"state": "starting"},
        {"state": "starting", "runner": "a b"},
        {"state": "ended", "claim": "clm_x", "exit_code": 1, "message": "x" * 501},
        {"state": "ended", "claim": "clm_x"},
        {"state": "running"},
        {"state": "sleeping", "claim": "clm_x"},
        {"state": "starting", "runner": "a", "lease_seconds": 9999},
    ],
)
def test_bodies_of_runners_are_strict(claude, body):
    assert claude.rest.post("permissions/call_x/resumed/", body).status_code == 422


def test_list_waits_for_something_to_resume(claude):
    response = claude.rest.get("permissions/deferred/", wait_seconds=20)
    assert response["Toolgate-Wait"] == ";20.0;deferred"


def test_claims_and_their_ends_are_audited_and_shown(claude, approved, admin):
    pages = Pages(admin)
    address = f"/plans/{Call.objects.get().plan_ref}/"
    claude.claim(approved)
    change_run(approved, resume_lease_until=clock.now() - timedelta(seconds=1))
    pages.open(address)
    assert "lease ran out" in pages.html
    claim = claude.claim(approved)
    claude.tell(approved, "given_back", claim=claim)
    claim = claude.claim(approved)
    claude.end(approved, claim, -9, message="It was killed.")
    claude.end(approved, claim, -9)
    claims = [entry for entry in AuditEntry.objects.order_by("seq") if entry.action.startswith("resumption.")]
    told = [(entry.action.partition(".")[2], entry.details_json.get("outcome")) for entry in claims]
    started = [("claimed", None)]
    assert told == [*started, ("lost", None), *started, ("given_back", None), *started, ("ended", "failed")]
    assert {entry.details_json["runner"] for entry in claims} == {"host-1"}
    for page in (address, f"/sessions/{Call.objects.get().plan_ref}/"):
        pages.open(page)
        assert "host-1" in pages.html and "It was killed." in pages.html


@pytest.mark.parametrize("changes", [{"session_id": "-c"}, {"cwd": ""}, {"cwd": "work"}], ids=str)
def test_session_that_no_runner_can_resume_waits_instead(claude, changes):
    assert claude.decision(query=DEFER, **changes)[0] == "deny"
    assert ClientRun.objects.get().deferred_at is None
    waits = claude.send(query="?may_defer=true", **{**changes, "tool_use_id": "toolu_2"})
    assert waits["Toolgate-Wait"].split(";")[1] == "570.0"


def test_no_session_is_resumed_under_a_stop(claude, approved, admin):
    stop = set_stop(parse_scope({"source": "claude-code"}), "A bad day.", by=admin)
    assert claude.listed() == []
    assert claude.tell(approved, "starting", 409, runner="host-1")["detail"].startswith("This is stopped.")
    assert claude.decision()[0] == "deny"
    lift_stop(stop, "Over.", by=admin)
    assert [each["call"] for each in claude.listed()] == [approved]
    claude.claim(approved)
    assert claude.decision()[0] == "allow"
