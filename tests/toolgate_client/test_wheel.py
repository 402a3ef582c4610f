"""The wheel of the client: it needs httpx alone, brings its types, and works without the product."""

import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.chaos.serving import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command and return how it ended."""
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "toolgate_client", tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    built = run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, tmp_path / "source", cwd=tmp_path)
    if built.returncode:
        pytest.skip(f"pip cannot build it: {built.stderr.strip()[-300:]}")
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "toolgate_client").rglob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == modules | {"toolgate_client/py.typed"}
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx<1,>=0.27"
    ]
    installed = run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    started = run(python, "-I", "-m", "toolgate_client", "resume", "--config", tmp_path / "missing.toml", cwd=tmp_path)
    assert (started.returncode, "cannot be read" in started.stderr) == (2, True)
