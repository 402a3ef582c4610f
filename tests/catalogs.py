"""The catalog as `sync_tools` leaves it, without the time that takes: its rows are kept and put into the next test.

Most tests need the shipped tools in the database, and each begins without them.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from django.apps import apps
from django.db import models

from approvals.models import Instance
from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.models import Source, Tool
from catalog.tools.registry import get_all_tools, set_imported_tools
from tests.rows import Kept, read

_kept: dict[Hashable, tuple[Kept, snapshot._Snapshot]] = {}
"""The rows that a sync made, and what a process holds of them in memory, by what the sync found."""


def fill_catalog() -> None:
    """Bring the registered tools into the catalog: as `sync_tools` does, or did when it was first asked for these."""
    key = _situation()
    if key in _kept:
        rows, view = _kept[key]
        rows.write()
        set_imported_tools({})
        snapshot._snapshot = view
        return
    before = read(_models())
    sync_tools()
    Source.objects.update(enabled=True)  # the sets that ship, which are disabled at first
    snapshot.drop_snapshot()
    snapshot.callable_tools()
    # Its revision is compared with the database's when it is first used, as after a second.
    view = replace(snapshot._snapshot, checked_at=float("-inf"))
    _kept[key] = Kept.between(before, read(_models())), view


def _situation() -> Hashable:
    """Return what a sync depends on: the tools that are registered, and what the database holds of them."""
    registered = tuple((name, id(tool)) for name, tool in get_all_tools().items())
    rows = tuple(Tool.objects.order_by("pk").values_list("pk", "name"))
    head = Instance.objects.values_list("name", "audit_seq", "audit_head").get(pk=1)
    return registered, rows, head


def _models() -> Iterator[type[models.Model]]:
    for label in ("catalog", "approvals"):
        yield from apps.get_app_config(label).get_models(include_auto_created=True)


def imported_tool(upstream: str, source: Source | None = None) -> Tool:
    """Return the row of the tool that its upstream calls so."""
    rows = Tool.objects.filter(definition__isnull=False)
    rows = rows.filter(source=source) if source else rows
    (row,) = [each for each in rows if each.definition and each.definition["upstream"] == upstream]
    return row
