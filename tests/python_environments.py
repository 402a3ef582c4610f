"""Python environments of programs whose requirements do not fit Toolgate's, installed from their lock files."""

import subprocess
import venv
from pathlib import Path

import pytest


def installed_python(cache: pytest.Cache, lock: Path) -> Path:
    """Return the interpreter of an environment with the packages of a lock file, kept in pytest's cache.

    Skips the test where pip cannot install them.
    """
    folder = cache.mkdir(f"{lock.parent.name}-{lock.stem}")
    python, installed = folder / "bin" / "python", folder / "installed.lock"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip cannot install {lock.name}: {done.stderr.strip()[-300:]}")
        installed.write_bytes(lock.read_bytes())
    return python
