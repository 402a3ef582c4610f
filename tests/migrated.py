"""A migrated SQLite file, made once for all processes of a run: to migrate one takes longer than most tests.

`python -m tests.migrated FOLDER` makes it ahead, while the processes that need it still look for their tests.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make_ahead(folder: Path) -> "subprocess.Popen[bytes]":
    """Begin to make the file of this folder."""
    return subprocess.Popen([sys.executable, "-m", "tests.migrated", str(folder)], cwd=ROOT)


def file_in(folder: Path) -> Path:
    """Return the file of this folder: who comes first makes it, everyone else waits for it."""
    path = folder / "migrated.sqlite3"
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(path.with_suffix(".making")).rename(path)
    return path


def make(path: Path) -> Path:
    """Migrate a new file."""
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{path}"}
    command = [sys.executable, "manage.py", "migrate", "-v0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=180)
    return path


if __name__ == "__main__":
    file_in(Path(sys.argv[1]))
