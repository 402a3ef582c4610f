"""A database for one measurement: a new SQLite file, or a new database on the PostgreSQL server in use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier


def kind_of(url: str) -> str:
    """Return the kind of database that a DATABASE_URL names; an empty URL means SQLite."""
    return "postgresql" if url.startswith("postgres") else "sqlite"


@contextmanager
def fresh_database(folder: Path) -> Iterator[str]:
    """Yield the URL of an empty database, deleted afterwards: in `folder`, or on the server of DATABASE_URL."""
    server = os.environ.get("DATABASE_URL", "")
    if kind_of(server) == "sqlite":
        yield f"sqlite:///{folder / 'bench.sqlite3'}"
        return
    with database_beside(server, f"toolgate_bench_{os.getpid()}") as url:
        yield url


@contextmanager
def database_beside(server: str, name: str) -> Iterator[str]:
    """Yield the URL of a new database of this name on the PostgreSQL server of a URL; drop it afterwards."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
