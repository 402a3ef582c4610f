"""Synchronisation: immutable versions, unregistered tools, reported changes."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.sync import sync_registered_tools
from catalog.models import Call, CatalogState, Tool, ToolVersion
from catalog.testing import clean_registry
from catalog.tools import tool
from catalog.tools.registry import register_tool

pytestmark = [pytest.mark.db, pytest.mark.usefixtures("own_tools_only")]


def greet(level="safe", description="Greet someone.", categories=("words",)):
    """Register the tool `greet` with these attributes."""

    @tool(name="greet", description=description, safety_level=level, categories=categories)
    def function(name: str) -> str:
        return f"Hello {name}"

    return function


def test_a_new_tool_gets_its_rows_and_a_second_sync_changes_nothing():
    loaded = greet()

    assert sync_registered_tools().lines() == ["added greet"]
    assert sync_registered_tools().lines() == []

    row = Tool.objects.get(name="greet")
    version = ToolVersion.objects.get(pk=row.current_version_id or 0)
    assert (row.source.name, row.source.kind) == (__name__, "python")
    assert [category.name for category in row.categories.all()] == ["words"]
    assert (version.fingerprint, version.number, version.safety_level) == (loaded.fingerprint, 1, "safe")
    assert row.implementations.get().digest == loaded.digest


def test_a_changed_contract_is_a_new_version_and_the_old_one_stays_as_it_was():
    greet()
    sync_registered_tools()
    greet(description="Greet someone kindly.")

    assert sync_registered_tools().lines() == ["changed greet"]
    assert list(ToolVersion.objects.order_by("number").values_list("number", "description")) == [
        (1, "Greet someone."),
        (2, "Greet someone kindly."),
    ]


def test_going_back_to_an_old_contract_points_at_the_old_version():
    for description in ("One.", "Two.", "One."):
        greet(description=description)
        sync_registered_tools()

    assert Tool.objects.filter(current_version__number=1).exists()
    assert ToolVersion.objects.count() == 2


def test_a_vanished_tool_is_kept_unregistered_and_comes_back_as_it_was():
    loaded = greet()
    sync_registered_tools()
    Tool.objects.update(enabled=False)
    with clean_registry():
        assert sync_registered_tools().lines() == ["removed greet"]
        assert not Tool.objects.get().registered

    register_tool(loaded)
    assert sync_registered_tools().lines() == ["changed greet"]
    row = Tool.objects.get()
    assert (row.registered, row.enabled, row.versions.count()) == (True, False, 1)


def test_changed_code_behind_the_same_contract_is_a_change(monkeypatch):
    loaded = greet()
    sync_registered_tools()
    loaded.__dict__["digest"] = "d" * 64

    assert sync_registered_tools().lines() == ["changed greet"]
    assert Tool.objects.get().implementations.get().digest == "d" * 64
    assert ToolVersion.objects.count() == 1


def test_other_categories_are_a_change():
    greet()
    sync_registered_tools()
    greet(categories=("words", "people"))

    assert sync_registered_tools().lines() == ["changed greet"]
    assert {category.name for category in Tool.objects.get().categories.all()} == {"words", "people"}


def hold_a_call(ada, version):
    """Store a call of this version that waits for people."""
    Call.objects.create(
        tool_name="greet", version=version, arguments="{}", status="held", requested_by=ada, created_at=clock.now()
    )


def test_a_definition_that_differs_from_a_version_with_open_requests_has_drifted(ada):
    greet("dangerous")
    sync_registered_tools()
    hold_a_call(ada, ToolVersion.objects.get())
    greet("dangerous", description="Greet someone else.")

    assert sync_registered_tools().as_dict() == {"added": [], "changed": ["greet"], "removed": [], "drifted": ["greet"]}


def test_only_a_change_moves_the_revision():
    greet()
    revisions = []
    for _ in range(2):
        sync_registered_tools()
        revisions.append(CatalogState.objects.get().revision)

    assert revisions == [1, 1]


def test_every_change_is_in_the_audit_log():
    greet()
    sync_registered_tools()
    greet(description="Other.")
    sync_registered_tools()
    with clean_registry():
        sync_registered_tools()

    actions = AuditEntry.objects.order_by("seq").values_list("action", "tool_name")
    kept = [("source.created", ""), ("tool.added", "greet"), ("tool.changed", "greet"), ("tool.removed", "greet")]
    assert list(actions) == kept


def audit_is_last(statements):
    """Return whether the catalog is written first, then the audit log, and not the catalog again."""
    writes = [sql for sql in statements if sql.startswith(("INSERT", "UPDATE"))]
    catalog = [at for at, sql in enumerate(writes) if '"catalog_' in sql]
    audit = [at for at, sql in enumerate(writes) if "approvals_" in sql]
    return bool(catalog and audit) and max(catalog) < min(audit)


def test_the_audit_log_is_written_last_so_that_calls_do_not_wait_for_a_change(ada, admin):
    greet("dangerous")
    sync_registered_tools()
    hold_a_call(ada, ToolVersion.objects.get())
    greet("dangerous", description="Greet someone else.")
    with CaptureQueriesContext(connection) as synced:
        assert sync_registered_tools().drifted == ["greet"]
    with CaptureQueriesContext(connection) as changed:
        apply_overrides("greet", {"description_override": "Say hello."}, by=admin)

    assert AuditEntry.objects.filter(action="tool.drifted").count() == 2
    assert [audit_is_last(each["sql"] for each in made) for made in (synced, changed)] == [True, True]


def test_the_command_prints_lines_or_one_object():
    greet()
    out = StringIO()
    call_command("sync_tools", stdout=out)
    call_command("sync_tools", json=True, stdout=out)

    *lines, document = out.getvalue().splitlines()
    assert "added greet" in lines
    assert json.loads(document) == {"added": [], "changed": [], "removed": [], "drifted": []}
