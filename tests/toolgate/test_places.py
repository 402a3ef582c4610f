"""Folders of an installation, and its refusal of packages that are not its own."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path

import pytest

from toolgate import command, places
from toolgate.places import CODE_DIR


@pytest.mark.parametrize(
    ("is_installed", "environment", "home", "data"),
    [
        (False, {}, CODE_DIR, CODE_DIR / "var"),
        (False, {"TOOLGATE_HOME": "/srv/toolgate"}, Path("/srv/toolgate"), Path("/srv/toolgate")),
        (True, {"TOOLGATE_HOME": "/srv/toolgate"}, Path("/srv/toolgate"), Path("/srv/toolgate")),
        (True, {"TOOLGATE_HOME": "~/gate"}, Path("/srv/ada/gate"), Path("/srv/ada/gate")),
        (True, {"XDG_DATA_HOME": "/data"}, Path("/data/toolgate"), Path("/data/toolgate")),
        (True, {}, Path("/srv/ada/.local/share/toolgate"), Path("/srv/ada/.local/share/toolgate")),
    ],
    ids=["checkout", "checkout and home", "home", "of a person", "xdg", "default"],
)
def test_data_is_in_the_home(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool, environment: dict[str, str], home: Path, data: Path
) -> None:
    """In a checkout, nothing changes."""
    monkeypatch.setattr(places, "IS_INSTALLED", is_installed)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("TOOLGATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/srv/ada"} | environment).items():
        monkeypatch.setenv(name, value)
    assert (places.home_dir(), places.data_dir()) == (home, data)


@pytest.mark.parametrize(
    ("python", "is_installed", "start"),
    [
        ("/srv/gate/.venv/bin/python", False, ".venv/bin/python manage.py"),
        ("/srv/gate/my env/bin/python", False, "'my env/bin/python' manage.py"),
        ("/srv/gate-2/.venv/bin/python", False, "python manage.py"),
        ("/usr/bin/python3", False, "python manage.py"),
        ("", False, "python manage.py"),
        ("/srv/gate/bin/python", True, "toolgate"),
    ],
    ids=["own environment", "blank in the name", "beside the checkout", "another", "unknown", "wheel"],
)
def test_printed_commands_name_the_environment_of_the_checkout(python: str, is_installed: bool, start: str) -> None:
    assert places.command_start(python, Path("/srv/gate"), is_installed=is_installed) == start


@pytest.mark.parametrize("name", ["config", "plans"])
def test_packages_of_others_are_refused(tmp_path: Path, name: str) -> None:
    """Before any of their code runs."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('it ran')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(CODE_DIR)])}
    run = [sys.executable, "-m", "toolgate", "check"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{name} comes from {tmp_path / name}" in done.stderr


def test_a_distribution_with_the_same_packages_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its files may have replaced ours: pip says nothing."""
    files = {
        "toolgate": "config/settings.py,,\nplans/apps.py,,\n",
        "others": "configure/a.py,,\n",
        "mine": "my/config/a.py,,\n",
    }
    for name, record in files.items():
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (folder / "RECORD").write_text(record)
    monkeypatch.setattr(command, "distributions", lambda: distributions(path=[str(tmp_path)]))
    assert command.overwritten() == ""
    (tmp_path / "others-1.dist-info" / "RECORD").write_text("configure/a.py,,\nconfig/a.py,,\n")
    assert ": config of others." in command.overwritten()


def test_a_copy_has_what_the_write_ahead_log_holds(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.sqlite3"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE kept (value)")
        database.execute("INSERT INTO kept VALUES (7)")
        file.chmod(0o640)
        first, second = command.copy_of(file), command.copy_of(file)
    assert first != second
    for copy in (first, second):
        assert copy.stat().st_mode & 0o777 == 0o640
        with closing(sqlite3.connect(copy)) as database:
            assert database.execute("SELECT value FROM kept").fetchall() == [(7,)]
