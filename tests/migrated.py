"""Databases migrated once for all processes of a run, to be copied: to migrate one takes longer than most tests.

`python -m tests.migrated FOLDER` makes them ahead, while the processes that need them still look for their tests.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

ROOT = Path(__file__).parents[1]


def make_ahead(folder: Path) -> Callable[[], None]:
    """Begin to make what the processes that share this folder need; return what waits until it is made."""
    process = subprocess.Popen([sys.executable, "-m", "tests.migrated", str(folder)], cwd=ROOT)

    def wait() -> None:
        process.wait(timeout=180)

    return wait


def file_in(folder: Path) -> Path:
    """Return a migrated SQLite file: who comes first makes it, everyone else waits for it."""
    path = folder / "migrated.sqlite3"
    with alone(folder / "file.lock"):
        if not path.exists():
            making = path.with_suffix(".making")
            migrate(f"sqlite:///{making}")
            making.rename(path)
    return path


def template_in(folder: Path) -> str:
    """Return the name of a migrated database on the PostgreSQL server of DATABASE_URL, made like the file."""
    url, made = urlsplit(os.environ["DATABASE_URL"]), folder / "template"
    with alone(folder / "template.lock"):
        if not made.exists():
            drop(template_name())
            execute("CREATE DATABASE {}", template_name())
            migrate(url._replace(path=f"/{template_name()}").geturl())
            made.touch()
    return template_name()


def template_name() -> str:
    """Return a name beside those of the test databases."""
    name, run = urlsplit(os.environ["DATABASE_URL"]).path.strip("/"), os.environ.get("TOX_PARALLEL_ENV", "")
    return "_".join(filter(None, ("test", name, run, "migrated")))


def drop(name: str) -> None:
    """Drop a database of the server, if it is there."""
    execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def execute(sql: str, database: str) -> None:
    """Execute a statement about a database, from outside of it."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(SQL(sql).format(Identifier(database)))


def migrate(url: str) -> None:
    """Migrate a database."""
    command = [sys.executable, "manage.py", "migrate", "-v0"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, check=True, timeout=180)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Let one process at a time be here."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_for_postgresql() -> bool:
    """Say whether the suite runs on a PostgreSQL server."""
    return os.environ.get("DATABASE_URL", "").startswith("postgres")


if __name__ == "__main__":
    if is_for_postgresql():
        template_in(Path(sys.argv[1]))
    file_in(Path(sys.argv[1]))
