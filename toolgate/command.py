"""The command `toolgate`: every command of `manage.py`, for an installation from a wheel."""

import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path

from toolgate.places import IS_INSTALLED, PACKAGES, refusal

SERVING = ("demo", "serve")
"""Commands before which the database of an installation is created or upgraded."""


def main() -> None:
    """Run a command. Exits with 1 if packages of others have the names of ours."""
    reason = refusal() or (overwritten() if IS_INSTALLED else "")
    if reason:
        sys.exit(reason)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    # Imported after the check: Django imports the settings.
    from django.core.management import execute_from_command_line  # noqa: PLC0415

    arguments = [Path(sys.argv[0]).name, *sys.argv[1:]]
    if IS_INSTALLED and arguments[1:2] and arguments[1] in SERVING and not {"-h", "--help"} & {*arguments}:
        upgrade()
    execute_from_command_line(arguments)


def overwritten() -> str:
    """Return why the installation must not start if other distributions installed files into our packages."""
    inside = re.compile(rf"^({'|'.join(PACKAGES)})/", re.MULTILINE)
    records = ((each, each.read_text("RECORD") or "") for each in distributions())
    owned = {each.name: sorted({*inside.findall(text)}) for each, text in records if inside.search(text)}
    found = "; ".join(f"{', '.join(names)} of {owner}" for owner, names in owned.items() if owner != "toolgate")
    if not found:
        return ""
    return (
        f"Toolgate does not start, because other distributions have packages of the same names, and their files may "
        f"have replaced those of Toolgate: {found}. Install Toolgate into an environment of its own: with uvx, "
        "pipx, or pip in a new virtual environment."
    )


def upgrade() -> None:
    """Apply the migrations of this version to the SQLite database of an installation, after copying the file.

    A database server may have other clients, so there a person decides: `serve` refuses and says so.
    """
    import django  # noqa: PLC0415
    from django.conf import settings  # noqa: PLC0415

    django.setup()
    if not settings.ON_SQLITE:
        return
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connection  # noqa: PLC0415
    from django.db.migrations.executor import MigrationExecutor  # noqa: PLC0415

    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    connection.close()
    if not missing:
        return
    file = Path(settings.DATABASES["default"]["NAME"])
    if executor.loader.applied_migrations:
        copy = copy_of(file)
        print(f"Upgrading the database; a copy of it is {copy}.", file=sys.stderr)  # noqa: T201
    call_command("migrate", verbosity=0)


def copy_of(file: Path) -> Path:
    """Copy a SQLite database, with what its write-ahead log holds, beside it; return the copy."""
    number = 1
    while (copy := file.with_name(f"{file.stem}.before-upgrade-{number}{file.suffix}")).exists():
        number += 1
    copy.touch(mode=0o600)  # before there is anything to read
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    shutil.copymode(file, copy)
    return copy
