"""The wheel: what it holds, and that it runs from an environment of its own, with this environment's dependencies."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.source import ROOT, files
from toolgate.places import PACKAGES

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

PACKAGED = ("docs", "static", "templates")
"""Folders that the wheel has inside `config`."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the repository alone."""
    folder = tmp_path_factory.mktemp("source")
    for path in files(ROOT):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; skips the test where pip cannot get setuptools."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True)
    if "setuptools" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip(f"pip cannot get setuptools: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = folder.glob("toolgate-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, cwd=folder, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of an installation's data."""
    return tmp_path / "home"


def toolgate(environment: Path, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command of an environment, with settings of nobody else."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    command = [str(environment / "bin" / "toolgate"), *arguments]
    settings = {**kept, "TOOLGATE_HOME": str(home)}
    return subprocess.run(command, cwd=environment, env=settings, capture_output=True, text=True)


def test_the_wheel_has_every_file_of_the_product(source: Path, wheel: Path) -> None:
    """And none besides."""

    def paths(folder: str) -> set[str]:
        return {path.relative_to(source).as_posix() for path in files(source / folder)}

    expected = set().union(*map(paths, PACKAGES))
    expected |= {f"config/packaged/{path}" for folder in PACKAGED for path in paths(folder)}
    with ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_demo_runs_from_the_wheel(environment: Path, home: Path) -> None:
    """In its own folder, and again on what is there."""
    for _ in range(2):
        done = toolgate(environment, home, "demo", "--no-serve")
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Run `toolgate serve --port 8000`" in done.stdout
    assert {path.name for path in home.iterdir()} >= {"keys.env", "toolgate.sqlite3", "workspace"}
    assert home.stat().st_mode & 0o777 == 0o700
    assert list(home.glob("*before-upgrade*")) == []


def test_a_newer_wheel_upgrades_the_database(environment: Path, home: Path) -> None:
    older = toolgate(environment, home, "migrate", "plans", "0001")
    assert older.returncode == 0, older.stderr[-2000:]
    done = toolgate(environment, home, "demo", "--no-serve")
    assert done.returncode == 0, done.stderr[-2000:]
    (copy,) = home.glob("*before-upgrade*")
    assert str(copy) in done.stderr


def test_an_environment_that_is_shared_is_refused(environment: Path, home: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    other = packages / "settings_of_others-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: settings-of-others\nVersion: 1\n")
    (other / "RECORD").write_text("config/__init__.py,,\n")
    try:
        done = toolgate(environment, home, "check")
        assert done.returncode == 1
        assert "config of settings-of-others" in done.stderr
    finally:
        shutil.rmtree(other)
