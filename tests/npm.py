"""Packages of npm for tests, installed in the versions that a lock file pins."""

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = ("package.json", "package-lock.json")


def installed_modules(cache: pytest.Cache, pinned: Path, name: str) -> Path:
    """Return the `node_modules` with the packages that a folder pins, kept in pytest's cache until they change.

    Skips the test where npm is missing or cannot install them.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("There is no npm.")
    folder = cache.mkdir(name)
    wanted = b"".join((pinned / each).read_bytes() for each in PACKAGES)
    installed = folder / "installed"
    if not installed.exists() or installed.read_bytes() != wanted:
        installed.unlink(missing_ok=True)
        for each in PACKAGES:
            shutil.copy(pinned / each, folder)
        done = subprocess.run(["npm", "ci", "--silent"], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npm cannot install the packages: {done.stderr.strip()[-300:] or done.returncode}")
        installed.write_bytes(wanted)
    return folder / "node_modules"
