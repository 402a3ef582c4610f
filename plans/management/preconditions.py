"""Conditions for starting a server or worker: migrations are applied and no backup was restored."""

from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from approvals.audit.restore_guard import detect_restore
from toolgate.places import COMMAND


def refuse_without_migrations() -> None:
    """Raise CommandError if migrations are missing or the database cannot be reached."""
    try:
        executor = MigrationExecutor(connection)
    except OperationalError as error:
        reason = "The database cannot be reached. Check that it is running and that DATABASE_URL is correct."
        raise CommandError(reason) from error
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    connection.close()
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:3])
        raise CommandError(f"{len(missing)} migrations are not applied ({names}…). Run `{COMMAND} migrate`.")


def refuse_a_restored_database() -> None:
    """Raise CommandError if a backup was restored: calls that are approved in the backup may have run since."""
    fault = detect_restore()
    connection.close()
    if fault:
        raise CommandError(fault)
