"""Migrated databases that tests copy: to migrate one takes longer than most tests.

The SQLite file is kept between runs, until migrations, models or dependencies change. `python -m tests.migrated FOLDER`
makes both databases ahead, while the processes of a run still collect their tests.
"""

import fcntl
import hashlib
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
CACHE = ROOT / ".pytest_cache"


def make_ahead(folder: Path) -> Callable[[], None]:
    """Begin to make what the processes that share this folder need; return what waits until it is made."""
    process = subprocess.Popen([sys.executable, "-m", "tests.migrated", str(folder)], cwd=ROOT)

    def wait() -> None:
        process.wait(timeout=180)

    return wait


def file() -> Path:
    """Return a migrated SQLite file. The first caller makes it, all others wait for it."""
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"migrated-{digest()}.sqlite3"
    with alone(CACHE / "migrated.lock"):
        if not path.exists():
            for outdated in CACHE.glob("migrated-*"):
                outdated.unlink()
            making = path.with_suffix(".making")
            migrate(f"sqlite:///{making}")
            making.rename(path)
    return path


def digest() -> str:
    """Return a digest of everything that decides what a migrated database holds."""
    patterns = ("*/migrations/*.py", "*/models.py", "*/models/*.py", "requirements.lock")
    found = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


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
    file()
