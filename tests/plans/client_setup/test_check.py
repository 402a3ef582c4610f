"""The check of a set-up, with a stand-in for the client, and the hook and a server that are real."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from approvals.policies.services import create_policy
from approvals.policies.shipped import add_coding_agent_policies
from approvals.policy_language.derived import COMMAND_EFFECTS
from catalog.models import ApiToken, Call
from catalog.states import CallStatus
from plans.client_setup import check as checks
from plans.client_setup.check import CheckFailed, check
from plans.client_setup.clients import ClaudeCode, Setup, find_python
from plans.client_setup.configuration import apply_changes
from plans.models import ClientSession

pytestmark = pytest.mark.django_db(transaction=True)


def block_commands(*, by: User) -> None:
    row = {"path": COMMAND_EFFECTS, "operator": "exists"}
    create_policy({"name": "No commands", "effect": "deny", "match": {"arguments": [row]}}, by=by)


POLICIES: dict[str, Callable[..., object]] = {
    "": lambda by: None,
    "set": add_coding_agent_policies,
    "deny": block_commands,
}


@pytest.fixture
def client(tmp_path: Path, url: str, token: tuple[ApiToken, str], monkeypatch: pytest.MonkeyPatch) -> ClaudeCode:
    """A client that is set up, in a home of its own."""
    monkeypatch.setattr(checks, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(checks, "REPORT_SECONDS", 0)
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n" + (Path(__file__).parent / "stand_in.py").read_text())
    program.chmod(0o755)
    agent = ClaudeCode({"HOME": str(tmp_path), "PATH": f"{program.parent}:/usr/bin:/bin", "STAND_IN": "gated"})
    apply_changes(agent.changes(Setup(url, token[1], find_python())))
    return agent


def as_kind(client: ClaudeCode, kind: str) -> ClaudeCode:
    return ClaudeCode({**client.environment, "STAND_IN": kind})


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("is_allowed", [False, True])
def test_it_reads_over_rest_what_became_of_the_canary(
    client: ClaudeCode, admin: User, monkeypatch: pytest.MonkeyPatch, is_here: bool, is_allowed: bool
) -> None:
    if not is_here:
        monkeypatch.setattr(checks, "token_if_here", lambda text: None)
    POLICIES["set" if is_allowed else ""](by=admin)
    checked = check(client)
    assert (checked.held, checked.refused, checked.noted) == (not is_allowed, False, is_here)
    assert Call.objects.get().status == (CallStatus.COMPLETED if is_allowed else CallStatus.CANCELLED)
    session = ClientSession.objects.get()
    assert (checked.name, session.checked_at is not None) == (session.session, is_here)


@pytest.mark.parametrize(
    ("kind", "policies", "reason"),
    [
        ("ungated", "", "without asking"),
        ("ungated", "set", "without asking"),
        ("silent", "set", "did not report"),
        ("refusing", "", "no call of it"),
        ("idle", "", "did not run"),
    ],
)
def test_it_fails_and_says_why(client: ClaudeCode, admin: User, kind: str, policies: str, reason: str) -> None:
    POLICIES[policies](by=admin)
    with pytest.raises(CheckFailed, match=reason):
        check(as_kind(client, kind))


def test_a_refusal_by_a_policy_is_seen_beside_the_database_alone(
    client: ClaudeCode, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    POLICIES["deny"](by=admin)
    assert check(client).refused
    monkeypatch.setattr(checks, "token_if_here", lambda text: None)
    with pytest.raises(CheckFailed, match="cannot see"):
        check(client)


def test_it_names_what_is_wrong_before_it_starts_the_client(client: ClaudeCode, token: tuple[ApiToken, str]) -> None:
    with pytest.raises(CheckFailed, match=r"not for https://elsewhere\.example"):
        check(client, "https://elsewhere.example")
    token[0].scopes = ["permissions:ask"]
    token[0].save()
    with pytest.raises(CheckFailed, match="lacks the scope tools:read"):
        check(client)
