"""Refusal of invalid settings, with their names."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.core.exceptions import ImproperlyConfigured
from environs import EnvError

from config.environment import read_tool_limits
from tests.corpus import faults
from toolgate import places

REFUSED = [
    {"TOOLGATE_LEASE_SECONDS": "nan"},
    {"TOOLGATE_UNDO_SECONDS": "-1"},
    {"TOOLGATE_UNDO_SECONDS": "inf"},
    {"TOOLGATE_THREADS": "0"},
    {"TOOLGATE_MAX_RUNNING_PER_PLAN": "-1"},
    {"TOOLGATE_MAX_RUNNING_PER_TOOL": "send_mail"},
    {"TOOLGATE_RUN_WINDOW_SECONDS": "1e3"},
    {"TOOLGATE_APPROVAL_TTL_SECONDS": "999999999999"},
    {"ALLOWED_HOSTS": "*"},
    {"SECRET_KEY": "short"},
    {"TOOLGATE_LOG_FORMAT": "xml"},
    {"TOOLGATE_LOG_LEVEL": "loud"},
    {"TOOLGATE_METRICS_TOKEN": "short"},
    {"TOOLGATE_SECRET_KEYS": "too-short"},
    {"TOOLGATE_URL": "toolgate.example"},
    {"TOOLGATE_URL": "https://host.example/toolgate"},
    {"TOOLGATE_WORKSPACE": str(settings.VAR_DIR)},
    {"TOOLGATE_THREAD": "4"},
]
ON_POSTGRESQL = {
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
    "SECRET_KEY": "made-up-" * 5,
    "TOOLGATE_AUDIT_KEY": "made-up-" * 5,
    "TOOLGATE_SECRET_KEYS": Fernet.generate_key().decode(),
}


def load(**environment: str) -> dict[str, Any]:
    """Run the settings module in a changed environment; return its settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"DEBUG": "0", **environment}.items():
            patch.setenv(name, value)
        return runpy.run_path(str(settings.BASE_DIR / "config" / "settings.py"))


def test_a_wrong_setting_is_refused_by_its_name() -> None:
    def check(wrong: dict[str, str]) -> None:
        with pytest.raises((ImproperlyConfigured, EnvError)) as refusal:
            load(**wrong)
        assert all(name in str(refusal.value) for name in wrong)

    assert faults(check, REFUSED) == {}


def test_settings_refuse_packages_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts the process: a server of ASGI applications imports no command."""
    assert places.refusal() == ""
    monkeypatch.setattr(places, "foreign_packages", lambda: {"plans": "/elsewhere/plans", "catalog": ""})
    with pytest.raises(ImproperlyConfigured, match="plans comes from /elsewhere/plans; catalog is missing"):
        load()


@pytest.mark.parametrize("name", ["TOOLGATE_URL", "OPENAI_API_KEY"])
def test_a_file_sets_variables_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Libraries read theirs there, and `serve` sees which settings were given."""
    monkeypatch.setenv(name, "")  # undone after the test
    monkeypatch.delenv(name)
    (tmp_path / ".env").write_text(f"{name}=https://made-up.example\nTOOLGATE_THREADS=3\n")
    found = load(TOOLGATE_HOME=str(tmp_path), TOOLGATE_THREADS="5")
    assert os.environ[name] == "https://made-up.example"
    assert {key: found["SETTING_ORIGINS"][key] for key in (name, "TOOLGATE_THREADS")} == {
        name: ".env",
        "TOOLGATE_THREADS": "environment",
    }
    assert found["TOOLGATE_THREADS"] == 5


def test_a_file_does_not_name_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path))
    monkeypatch.delenv("TOOLGATE_HOME")
    monkeypatch.setattr(places, "home_dir", lambda: tmp_path)
    (tmp_path / ".env").write_text("TOOLGATE_HOME=/elsewhere\n")
    with pytest.raises(ImproperlyConfigured, match="TOOLGATE_HOME"):
        load()


def test_a_process_with_a_wrong_setting_does_not_start() -> None:
    environment = {**os.environ, "TOOLGATE_THREADS": "0"}
    command = [sys.executable, "manage.py", "check"]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "TOOLGATE_THREADS" in done.stderr


@pytest.mark.parametrize("missing", ["SECRET_KEY", "TOOLGATE_AUDIT_KEY", "TOOLGATE_SECRET_KEYS"])
def test_no_key_is_made_up_on_postgresql(missing: str) -> None:
    """Several machines would generate different keys."""
    load(**ON_POSTGRESQL)
    with pytest.raises(ImproperlyConfigured, match=missing):
        load(**ON_POSTGRESQL | {missing: ""})


def test_passwords_are_hashed_with_argon2() -> None:
    """The tests themselves use a faster hasher."""
    assert load()["PASSWORD_HASHERS"][0] == "django.contrib.auth.hashers.Argon2PasswordHasher"
    encoded = make_password("correct horse", hasher="argon2")
    assert encoded.startswith("argon2$argon2id$")
    assert check_password("correct horse", encoded)
    assert not check_password("correct house", encoded)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        ("0", {}),
        ("4", {"*": 4}),
        (" 4, send_mail=1,", {"*": 4, "send_mail": 1}),
        ("2,free=0", {"*": 2, "free": 0}),
    ],
)
def test_limits_of_tools_are_a_number_for_all_and_for_each(text: str, limits: dict[str, int]) -> None:
    assert read_tool_limits(text) == limits


@pytest.mark.parametrize("text", ["-1", "1.5", "a=", "=1", "a=1,a=2", "1,2", "a b=1", "a=1;b=2"])
def test_other_limits_of_tools_are_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="4,send_mail=1"):
        read_tool_limits(text)


def test_origins_are_those_of_the_start() -> None:
    origins = load(TOOLGATE_THREADS="3", TOOLGATE_MODEL="")["SETTING_ORIGINS"]
    assert (origins["TOOLGATE_THREADS"], "TOOLGATE_MODEL" in origins) == ("environment", False)
