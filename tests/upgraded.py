"""A database as of 28 November 2026, with a row in every table, that is then upgraded: run as a program.

`python -m tests.upgraded` migrates the empty database of DATABASE_URL to the migrations of that day, writes a row of
each model, as it was then, applies all later migrations, reads the rows with the models of today, and prints as JSON
the columns whose values changed.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import django
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

BASE = {
    "catalog": "0013_totp_use",
    "connections": "0001_initial",
    "approvals": "0008_last_reminder",
    "plans": "0002_drafts_of_plans",
}
"""The last migration of each application on that day. Databases of users may be as old."""
MOMENT = datetime(2026, 11, 28, 12, tzinfo=UTC)
GROWING = {"audit_head", "audit_seq"}
"""Columns of the head of the audit log, which goes on."""
Row = dict[str, Any]


def main() -> int:
    """Upgrade the database; return 1 unless every row is as it was written."""
    django.setup()
    for app in MigrationExecutor(connection).loader.migrated_apps - BASE.keys():
        call_command("migrate", app, verbosity=0)
    for app, name in BASE.items():
        call_command("migrate", app, name, verbosity=0)
    before = {table: rows_of(table) for table in write_rows()}
    call_command("migrate", verbosity=0)
    for model in apps.get_models():
        list(model._default_manager.all())
    changed = {table: changes(rows, rows_of(table)) for table, rows in before.items()}
    found = {table: columns for table, columns in changed.items() if columns}
    print(json.dumps({"tables": len(before), "changed": found}))  # noqa: T201
    return 1 if found else 0


def write_rows() -> Iterator[str]:
    """Write a row of each model as of that day; yield the tables that have one."""
    loader = MigrationExecutor(connection).loader
    others = [node for node in loader.graph.leaf_nodes() if node[0] not in BASE]
    past = loader.project_state([*BASE.items(), *others]).apps
    made: dict[str, models.Model] = {}
    # An entry that the product did not write breaks the chain of the audit log.
    models_of_ours = [model for app in BASE for model in past.get_app_config(app).get_models()]
    waiting = [model for model in models_of_ours if model._meta.label != "approvals.AuditEntry"]
    outside = {label for model in waiting for label in references(model) if label.partition(".")[0] not in BASE}
    waiting += [past.get_model(label) for label in sorted(outside)]
    while waiting:
        ready = [model for model in waiting if all(needed in made for needed in references(model))]
        if not ready:
            raise RuntimeError(f"These models need each other: {[model._meta.label for model in waiting]}")
        for model in ready:
            waiting.remove(model)
            known = model.objects.order_by("-pk").first()  # type: ignore[attr-defined] # a model of the past
            made[model._meta.label] = known or model.objects.create(**values_of(model, made))  # type: ignore[attr-defined]
            yield model._meta.db_table


def references(model: type[models.Model]) -> Iterator[str]:
    """Yield the labels of the other models of which a row must exist first."""
    for field in model._meta.concrete_fields:
        if field.is_relation and not field.null and field.related_model is not model:
            yield field.related_model._meta.label  # type: ignore[union-attr]


def values_of(model: type[models.Model], made: dict[str, models.Model]) -> Row:
    """Return values for the columns that must have one."""
    found: Row = {}
    for field in model._meta.concrete_fields:
        if field.primary_key and isinstance(field, models.AutoField):
            continue
        if field.is_relation and not field.null:
            found[field.name] = made[field.related_model._meta.label]  # type: ignore[union-attr]
        elif not (field.null or field.has_default() or getattr(field, "auto_now_add", False)):
            found[field.name] = value_of(field)
    return found


def value_of(field: "models.Field[Any, Any]") -> Any:
    """Return a value of a column: a choice if it has choices, a text where it is blank otherwise."""
    if field.choices:
        return next(iter(field.flatchoices))[0]
    for kind, value in (
        (models.DateTimeField, MOMENT),
        (models.DateField, date(2026, 11, 28)),
        (models.DurationField, timedelta(1)),
        (models.BooleanField, True),
        (models.JSONField, {}),
        (models.BinaryField, b"kept"),
        ((models.IntegerField, models.FloatField, models.DecimalField), 1),
    ):
        if isinstance(field, kind):
            return value
    return "{}" if field.name in ("arguments", "definition") else "kept"


def rows_of(table: str) -> dict[str, Row]:
    """Return the rows of a table by key, their values as text."""
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - a name of ours
        names = [column[0] for column in cursor.description or ()]
        rows = [{name: repr(value) for name, value in zip(names, row, strict=True)} for row in cursor.fetchall()]
    key = "id" if "id" in names else names[0]
    return {row[key]: row for row in rows}


def changes(before: dict[str, Row], after: dict[str, Row]) -> list[str]:
    """Return the columns of which a row has another value now, or none."""
    return sorted(
        {name for key, row in before.items() for name, value in row.items() if after.get(key, {}).get(name) != value}
        - GROWING
    )


if __name__ == "__main__":
    sys.exit(main())
