"""Tests of `manage.py connect`."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError

from approvals.policies.shipped import NAMES, policies_named
from catalog.access.tokens import authenticate_token
from catalog.models import ApiToken
from plans.client_setup import tokens
from plans.client_setup.clients import CODING_AGENTS
from tests.http_server import serving
from tests.plans.client_setup.answers import AnsweringServer, as_json


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, whose clients have no programs."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "TOOLGATE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def run(*arguments: str) -> str:
    output = StringIO()
    call_command("connect", *arguments, stdout=output)
    return output.getvalue()


def stored_token(home: Path, slug: str) -> str:
    agent = CODING_AGENTS[slug]({"HOME": str(home), "PATH": ""})
    return str(json.loads(agent.settings_file.read_text())["token"])


@pytest.mark.parametrize("slug", list(CODING_AGENTS))
def test_it_makes_a_token_that_may_ask_and_never_shows_it(home: Path, ada: User, slug: str) -> None:
    output = run(slug)
    text = stored_token(home, slug)
    token = authenticate_token(text)
    assert token is not None
    assert (token.user, token.kind) == (ada, ApiToken.Kind.AGENT)
    assert set(token.scopes) == {"tools:read", "calls:create", "plans:read", "permissions:ask"}
    assert text not in output


def test_print_changes_nothing_and_makes_no_token(home: Path, ada: User) -> None:
    assert "settings.json" in run("claude-code", "--print")
    assert list(home.rglob("*")) == []
    assert not ApiToken.objects.exists()


def test_an_earlier_token_is_never_shown(home: Path, ada: User, ben: User) -> None:
    run("gemini-cli", "--user", "ada")
    first = stored_token(home, "gemini-cli")
    for arguments in (["--print"], ["--user", "ben"]):
        output = run("gemini-cli", *arguments)
        assert "-    " in output and "Bearer tg_" in output
        assert first not in output
    second = stored_token(home, "gemini-cli")
    (home / ".gemini/toolgate/toolgate.json").unlink()
    assert second not in run("gemini-cli", "--undo")


def test_a_second_time_keeps_the_token(home: Path, ada: User) -> None:
    run("codex")
    before = stored_token(home, "codex")
    run("codex")
    assert stored_token(home, "codex") == before
    assert ApiToken.objects.count() == 1


def test_policies_are_added_by_an_administrator_when_asked_for(home: Path, ada: User, admin: User) -> None:
    assert "Adds the policies" not in run("claude-code", "--user", "ada")
    assert not policies_named(*NAMES)
    output = run("claude-code", "--user", "ada", "--policies")
    added = policies_named(*NAMES)
    assert {policy.revision.created_by for policy in added if policy.revision} == {admin}
    assert all(policy.name in output for policy in added)
    assert "there already" in run("claude-code", "--user", "ada", "--policies", "admin")


def test_undo_revokes_the_token_and_leaves_nothing(home: Path, ada: User) -> None:
    run("claude-code")
    text = stored_token(home, "claude-code")
    run("claude-code", "--undo")
    assert authenticate_token(text) is None
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_a_broken_file_makes_no_token(home: Path, ada: User) -> None:
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text("{")
    with pytest.raises(CommandError):
        run("claude-code")
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "https://elsewhere.example"],
        ["--url", "ftp://elsewhere.example"],
        ["--url", "http://[elsewhere.example"],
        ["--url", "https://ada:x@elsewhere.example"],
        ["--user", "vera"],
        ["--user", "nobody"],
        ["--check"],
        ["--policies", "ada"],
        ["--policies"],
        ["--check", "--policies"],
    ],
)
def test_it_is_refused_and_changes_nothing(home: Path, ada: User, vera: User, arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        run("claude-code", *arguments)
    assert list(home.rglob("*")) == []
    assert not ApiToken.objects.exists()


def test_with_two_operators_a_person_must_be_named(home: Path, ada: User, ben: User) -> None:
    with pytest.raises(CommandError, match="ada, ben"):
        run("claude-code")
    run("claude-code", "--user", "ben")
    assert ApiToken.objects.get().user == ben


def test_a_token_from_the_environment_is_tried_first(home: Path, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_TOKEN", "tg_of-another-server")
    with pytest.raises(CommandError):
        run("claude-code", "--url", "http://127.0.0.1:1")
    assert list(home.rglob("*")) == []


def test_a_proxy_is_asked_only_if_the_settings_name_it(home: Path, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(AnsweringServer({"": as_json({})})) as proxy:
        address = f"http://127.0.0.1:{proxy.server_port}"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
        monkeypatch.setenv("TOOLGATE_TOKEN", "tg_of-another-server")
        with pytest.raises(CommandError):
            run("claude-code", "--url", "http://toolgate.invalid")
        assert proxy.taken == []
        settings_file = CODING_AGENTS["claude-code"]({"HOME": str(home)}).settings_file
        settings_file.parent.mkdir(parents=True)
        settings_file.write_text(json.dumps({"proxy": address}))
        with pytest.raises(CommandError):
            run("claude-code", "--url", "http://toolgate.invalid")
        assert [path for path, *_ in proxy.taken] == ["http://toolgate.invalid/api/v1/tokens/current/"]


def test_undo_needs_no_database(home: Path, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run("claude-code")

    def no_table(text: str) -> None:
        raise OperationalError("no such table: catalog_apitoken")

    monkeypatch.setattr(tokens, "authenticate_token", no_table)
    assert "could not be revoked" in run("claude-code", "--undo")
    assert [path for path in home.rglob("*") if path.is_file()] == []
