"""Conditions for starting a server or worker: migrations are applied, and the database was not set back."""

from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from approvals.audit.restore_guard import detect_restore


def refuse_without_migrations() -> None:
    """Raise CommandError when the database is not what the code expects, or cannot be reached."""
    try:
        executor = MigrationExecutor(connection)
    except OperationalError as error:
        reason = "The database cannot be reached: see that it runs, and that DATABASE_URL names it."
        raise CommandError(reason) from error
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    connection.close()
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:3])
        raise CommandError(f"The database lacks {len(missing)} migrations ({names}…): run `python manage.py migrate`.")


def refuse_a_restored_database() -> None:
    """Raise CommandError when the database was set back: what was approved then may have run since."""
    fault = detect_restore()
    connection.close()
    if fault:
        raise CommandError(fault)
