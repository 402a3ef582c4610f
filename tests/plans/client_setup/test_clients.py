"""The files that set a coding agent up: merged, shown, written at once, and taken back."""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from plans.client_setup import clients
from plans.client_setup.clients import CODING_AGENTS, CodingAgent, Setup
from plans.client_setup.configuration import NotChanged, apply_changes, read_bytes, removed_copies

SETUP = Setup("http://127.0.0.1:8000", "tg_of-the-agent", "/usr/bin/python3")
OTHER_HOOK = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo other"}]}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "claude-code": {".claude/settings.json": {"model": "opus", "hooks": {"PreToolUse": [OTHER_HOOK], "Stop": []}}},
    "codex": {".codex/hooks.json": {"hooks": {"PreToolUse": [OTHER_HOOK]}}},
    "gemini-cli": {".gemini/settings.json": {"theme": "Ä", "hooks": {"BeforeTool": [OTHER_HOOK]}}},
    "opencode": {".config/opencode/opencode.json": {"theme": "x"}},
}
TOML = '# mine\nmodel = "x"\n\n[features]\nmulti = true'


def agent_in(home: Path, slug: str) -> CodingAgent:
    return CODING_AGENTS[slug]({"HOME": str(home), "PATH": ""})


def write(home: Path, slug: str) -> None:
    for name, settings in SETTINGS[slug].items():
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(settings, indent=3, ensure_ascii=False))
    if slug == "codex":
        (home / ".codex/config.toml").write_text(TOML)


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def connect(home: Path, slug: str) -> None:
    apply_changes(agent_in(home, slug).changes(SETUP))


def undo(home: Path, slug: str) -> None:
    changes = agent_in(home, slug).removals()
    apply_changes([*changes, *removed_copies(changes)])


@pytest.fixture(params=list(CODING_AGENTS))
def slug(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_stands_there_stays(tmp_path: Path, slug: str) -> None:
    write(tmp_path, slug)
    connect(tmp_path, slug)
    for name, before in SETTINGS[slug].items():
        after = json.loads((tmp_path / name).read_text())
        assert before.keys() <= after.keys()
        if "hooks" in before:
            asks = agent_in(tmp_path, slug).asks  # type: ignore[attr-defined] # clients with hooks have it
            kept, own = after["hooks"][asks]
            assert kept == OTHER_HOOK
            assert own["hooks"][0]["command"].endswith("exit 2'")
    if slug == "codex":
        config = tomllib.loads((tmp_path / ".codex/config.toml").read_text())
        assert config["model"] == "x"
        assert config["mcp_servers"]["toolgate"]["url"] == "http://127.0.0.1:8000/mcp"


def test_undo_restores_every_byte(tmp_path: Path, slug: str) -> None:
    write(tmp_path, slug)
    before = contents(tmp_path)
    connect(tmp_path, slug)
    undo(tmp_path, slug)
    assert contents(tmp_path) == before


def test_undo_leaves_nothing_where_nothing_was(tmp_path: Path, slug: str) -> None:
    connect(tmp_path, slug)
    assert contents(tmp_path)
    undo(tmp_path, slug)
    assert contents(tmp_path) == {}


LATER = Setup("https://toolgate.example", "tg_another", "/usr/local/bin/python3")


@pytest.mark.parametrize("later", [SETUP, LATER], ids=["the same", "another server"])
@pytest.mark.parametrize("is_there", [False, True])
def test_undo_takes_back_a_second_set_up_too(tmp_path: Path, slug: str, later: Setup, is_there: bool) -> None:
    if is_there:
        write(tmp_path, slug)
    before = contents(tmp_path)
    connect(tmp_path, slug)
    apply_changes(agent_in(tmp_path, slug).changes(later))
    undo(tmp_path, slug)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("slug", ["claude-code", "codex", "gemini-cli"])
def test_no_copy_holds_entries_of_toolgate(tmp_path: Path, slug: str) -> None:
    """Neither a second set-up nor the undo makes one, where the file came only with the first set-up."""
    connect(tmp_path, slug)
    name = {"codex": ".codex/config.toml"}.get(slug) or next(iter(SETTINGS[slug]))
    path = tmp_path / name
    own = path.read_bytes()
    path.write_bytes(b'model = "x"\n' + own if slug == "codex" else own.replace(b"{", b'{"model": "x", ', 1))
    apply_changes(agent_in(tmp_path, slug).changes(LATER))
    assert list(tmp_path.rglob("*.before-toolgate")) == []
    undo(tmp_path, slug)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [name]
    assert b"toolgate" not in path.read_bytes().lower()


@pytest.mark.parametrize("slug", ["claude-code", "codex", "gemini-cli"])
def test_undo_takes_entries_of_toolgate_out_of_a_copy(tmp_path: Path, slug: str) -> None:
    """An earlier version kept such copies."""
    connect(tmp_path, slug)
    for path in [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "toolgate"]:
        path.with_name(f"{path.name}.before-toolgate").write_bytes(path.read_bytes())
    undo(tmp_path, slug)
    assert contents(tmp_path) == {}


def test_undo_keeps_later_changes(tmp_path: Path) -> None:
    write(tmp_path, "claude-code")
    connect(tmp_path, "claude-code")
    path = tmp_path / ".claude/settings.json"
    settings = json.loads(path.read_text()) | {"model": "sonnet"}
    settings["hooks"]["PreToolUse"].append(OTHER_HOOK)
    path.write_text(json.dumps(settings))
    undo(tmp_path, "claude-code")
    after = json.loads(path.read_text())
    assert after == {"model": "sonnet", "hooks": {"PreToolUse": [OTHER_HOOK, OTHER_HOOK], "Stop": []}}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_second_time_changes_nothing(tmp_path: Path, slug: str, is_there: bool) -> None:
    if is_there:
        write(tmp_path, slug)
    connect(tmp_path, slug)
    assert [change for change in agent_in(tmp_path, slug).changes(SETUP) if not change.is_none] == []


def test_a_named_proxy_stays(tmp_path: Path, slug: str) -> None:
    """It may be named before the first set-up, which could not reach the server without it."""
    agent, named = agent_in(tmp_path, slug), {"proxy": "http://proxy.example:3128", "certificates": "/etc/ours.pem"}
    agent.settings_file.parent.mkdir(parents=True)
    agent.settings_file.write_text(json.dumps(named))
    for _ in range(2):
        connect(tmp_path, slug)
        assert json.loads(agent.settings_file.read_text()) == {"url": SETUP.url, "token": SETUP.token, **named}


def test_the_token_is_in_private_files_alone_and_is_never_shown(tmp_path: Path, slug: str) -> None:
    write(tmp_path, slug)
    changes = agent_in(tmp_path, slug).changes(SETUP)
    shown = "".join(change.difference(hide=[SETUP.token]) for change in changes)
    assert SETUP.token not in shown
    apply_changes(changes)
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and SETUP.token.encode() in path.read_bytes()]
    assert holders
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}


@pytest.mark.parametrize("text", ['{"hooks": ', "// comment\n{}", "[]", '{"hooks": []}', '{"a": 1, "a": 2}', "\x00"])
@pytest.mark.parametrize("slug", ["claude-code", "codex", "gemini-cli"])
def test_a_broken_file_is_refused_and_nothing_changes(tmp_path: Path, slug: str, text: str) -> None:
    write(tmp_path, slug)
    (tmp_path / next(iter(SETTINGS[slug]))).write_text(text)
    before = contents(tmp_path)
    with pytest.raises(NotChanged):
        connect(tmp_path, slug)
    assert contents(tmp_path) == before


def test_broken_toml_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "codex")
    (tmp_path / ".codex/config.toml").write_text("[features\n")
    before = contents(tmp_path)
    with pytest.raises(NotChanged):
        connect(tmp_path, "codex")
    assert contents(tmp_path) == before


def test_a_read_only_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "claude-code")
    settings, access = tmp_path / ".claude/settings.json", os.access
    # Root, as which the tests may run, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: path != settings and access(path, mode))
    before = contents(tmp_path)
    with pytest.raises(NotChanged):
        connect(tmp_path, "claude-code")
    assert contents(tmp_path) == before


def test_a_failure_in_the_middle_leaves_everything_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "claude-code")
    changes = agent_in(tmp_path, "claude-code").changes(SETUP)
    before = contents(tmp_path)
    (tmp_path / ".claude.json").mkdir()
    with pytest.raises(NotChanged):
        apply_changes(changes)
    assert contents(tmp_path) == before


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "claude-code")
    changes = agent_in(tmp_path, "claude-code").changes(SETUP)
    (tmp_path / ".claude/settings.json").write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(NotChanged):
        apply_changes(changes)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("slug", "name", "text"),
    [
        ("claude-code", ".claude/settings.json", '{"disableAllHooks": true}'),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("gemini-cli", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
        ("gemini-cli", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["toolgate"]}}'),
    ],
)
def test_hooks_that_would_not_run_are_an_obstacle(tmp_path: Path, slug: str, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(NotChanged):
        agent_in(tmp_path, slug).check_obstacles()


@pytest.mark.parametrize(
    ("slug", "managed", "text"),
    [
        ("claude-code", "/etc/claude-code/managed-settings.json", '{"allowManagedHooksOnly": true}'),
        ("codex", "/etc/codex/requirements.toml", "allow_managed_hooks_only = true\n"),
        ("gemini-cli", "/etc/gemini-cli/settings.json", '{"hooksConfig": {"enabled": false}}'),
    ],
)
def test_a_managed_file_that_leaves_hooks_out_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slug: str, managed: str, text: str
) -> None:
    monkeypatch.setattr(clients, "read_bytes", lambda path: text.encode() if str(path) == managed else read_bytes(path))
    with pytest.raises(NotChanged, match=managed):
        agent_in(tmp_path, slug).check_obstacles()


def test_a_link_stays_a_link_and_hides_the_token(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / ".gemini").mkdir()
    target = tmp_path / "dotfiles/settings.json"
    target.write_text("{}")
    (tmp_path / ".gemini/settings.json").symlink_to(target)
    connect(tmp_path, "gemini-cli")
    assert (tmp_path / ".gemini/settings.json").is_symlink()
    assert SETUP.token not in target.read_text()


@pytest.mark.parametrize("linked", [".gemini", ".gemini/settings.json", "home"])
def test_a_linked_place_hides_the_token(tmp_path: Path, linked: str) -> None:
    """The target of a link may stand in a repository, whichever part of the path is the link."""
    home, dotfiles = tmp_path / "home", tmp_path / "dotfiles"
    (dotfiles / "gemini").mkdir(parents=True)
    if linked == "home":
        home.symlink_to(dotfiles)
    elif linked == ".gemini":
        home.mkdir()
        (home / ".gemini").symlink_to(dotfiles / "gemini")
    else:
        (home / ".gemini").mkdir(parents=True)
        (dotfiles / "settings.json").write_text("{}")
        (home / ".gemini/settings.json").symlink_to(dotfiles / "settings.json")
    try:
        connect(home, "gemini-cli")
    except NotChanged:
        assert linked != ".gemini/settings.json"
    holders = [path for path in dotfiles.rglob("*") if path.is_file() and SETUP.token.encode() in path.read_bytes()]
    assert (holders == []) == (linked != "home")


def test_a_linked_folder_gets_the_token_only_where_a_person_has_put_it(tmp_path: Path, slug: str) -> None:
    home, dotfiles, apart = tmp_path / "home", tmp_path / "dotfiles", tmp_path / "apart"
    folder = agent_in(home, slug).folder
    for each in (folder.parent, dotfiles, apart):
        each.mkdir(parents=True)
    folder.symlink_to(dotfiles)
    (dotfiles / "toolgate").symlink_to(dotfiles / "elsewhere")
    with pytest.raises(NotChanged, match="repository"):
        connect(home, slug)
    (dotfiles / "toolgate").unlink()
    with pytest.raises(NotChanged, match="repository"):
        connect(home, slug)
    assert contents(tmp_path) == {}
    (dotfiles / "toolgate").symlink_to(apart)
    connect(home, slug)
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and SETUP.token.encode() in path.read_bytes()]
    assert [path.resolve() for path in holders] == [apart / "toolgate.json"]
    undo(home, slug)
    assert contents(tmp_path) == {}


def test_an_own_entry_of_the_mcp_server_stays(tmp_path: Path) -> None:
    own = {"mcpServers": {"toolgate": {"type": "http", "url": "https://elsewhere.example/mcp"}}}
    (tmp_path / ".claude.json").write_text(json.dumps(own))
    connect(tmp_path, "claude-code")
    assert json.loads((tmp_path / ".claude.json").read_text()) == own
