"""Environment of the test processes. pytest loads this plugin before Django reads its settings."""

import os
import shutil
import sys
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of pytest's own is made in it)
ENOUGH_BYTES = 2 * 1024**3

os.environ.setdefault("TOOLGATE_SECRET_KEYS", "Zm9yLXRoZS10ZXN0cy1vbmx5LWZvci10aGUtdGVzdHM=")
# Its application is installed only with a provider; tests of it serve one.
os.environ.setdefault("TOOLGATE_SSO_ISSUER", "https://sso.invalid")
os.environ.setdefault("TOOLGATE_SSO_CLIENT_ID", "toolgate")
# Tests kill processes, never the machine, so a commit need not reach the disk.
os.environ.setdefault("TOOLGATE_SQLITE_SYNCHRONOUS", "NORMAL")
# Containers often set this. Without compiled files every process that a test starts would compile the product again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def keep_files_in_memory() -> None:
    """Put the test databases and temporary folders into memory if there is room; otherwise they stay on disk."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


keep_files_in_memory()
