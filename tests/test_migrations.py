"""The initial migrations build the tables that the models describe, the triggers and the first rows."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from approvals.models import Instance, Policy
from catalog.models import CatalogState
from tests import migrated

APPS = ("catalog", "connections", "approvals", "plans")
SEARCH_INDEX = "catalog_toolsearch"
TRIGGERS = {
    "audit_is_append_only", "audit_entries_are_kept", "audit_entries_stay",
    "catalog_tooltext_added", "catalog_tooltext_removed", "catalog_tooltext_changed",
}  # fmt: skip


def schema_of(path: Path) -> Iterator[tuple[object, ...]]:
    """Yield columns, foreign keys and indexes of our tables in a SQLite file, whatever their order in the tables."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table.partition("_")[0] in APPS and not table.startswith(SEARCH_INDEX):
                columns = f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{table}')"  # noqa: S608
                yield from ((table, *row) for row in database.execute(columns))
                keys = f'SELECT "from", "table", "to" FROM pragma_foreign_key_list(\'{table}\')'  # noqa: S608
                yield from ((table, *row) for row in database.execute(keys))
                indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
                yield from ((table, *row) for row in database.execute(indexes, [table]) if row[1])


def build_from_models(path: Path) -> None:
    """Create the tables of our models in a SQLite file without any migration."""
    options = settings.DATABASES["default"] | {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {}}
    connections.databases["built"] = connections.configure_settings({"default": options})["default"]
    try:
        connection = connections["built"]
        connection.disable_constraint_checking()
        with connection.schema_editor() as editor:
            for app in APPS:
                for model in apps.get_app_config(app).get_models():
                    editor.create_model(model)
        connection.close()
    finally:
        del connections.databases["built"]
        del connections["built"]


def test_migrations_build_what_the_models_describe(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        build_from_models(tmp_path / "built.sqlite3")
    assert sorted(map(repr, schema_of(migrated.file()))) == sorted(map(repr, schema_of(tmp_path / "built.sqlite3")))


def test_migrations_create_the_triggers() -> None:
    with closing(sqlite3.connect(migrated.file())) as database:
        found = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    assert found == TRIGGERS


@pytest.mark.db
@pytest.mark.django_db
def test_migrations_write_the_first_rows() -> None:
    assert set(Group.objects.values_list("name", flat=True)) == {"viewer", "operator", "reviewer", "administrator"}
    assert CatalogState.objects.count() == Instance.objects.filter(name__startswith="inst_").count() == 1
    policies = Policy.objects.order_by("order").values_list("revision__safety_level", "revision__effect")
    assert list(policies) == [("dangerous", "hold"), ("cautious", "allow"), ("safe", "allow")]
