"""Python environments of clients whose requirements do not fit Toolgate's, installed from their lock files."""

import subprocess
import venv
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parent / "clients"


def installed_python(cache: pytest.Cache, name: str) -> Path:
    """Return the interpreter of the client's environment, kept in pytest's cache until its lock changes.

    Skips the test where pip cannot install it.
    """
    lock = CLIENTS / f"{name}.lock"
    folder = cache.mkdir(f"mcp-{name}")
    python, installed = folder / "bin" / "python", folder / "installed.lock"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip cannot install {lock.name}: {done.stderr.strip()[-300:]}")
        installed.write_bytes(lock.read_bytes())
    return python
