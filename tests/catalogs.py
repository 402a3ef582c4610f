"""The catalog as `sync_tools` leaves it, without the time that takes: its rows are kept and put into the next test.

Most tests need the shipped tools in the database, and each begins without them.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import models, transaction

from approvals.models import Instance
from catalog import snapshot
from catalog.models import Tool
from catalog.registry import get_all_tools
from catalog.sync import sync_tools

Rows = dict[type[models.Model], dict[Any, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What one sync wrote: rows that were not there, and rows that were otherwise."""

    new: Rows
    changed: Rows


_kept: dict[Hashable, Kept] = {}


def fill_catalog() -> None:
    """Bring the registered tools into the catalog: as `sync_tools` does, or did when it was first asked for these."""
    key = _situation()
    if key in _kept:
        _write(_kept[key])
        return
    before = _read()
    sync_tools()
    _kept[key] = _compared(before, _read())


def _situation() -> Hashable:
    """Return what a sync depends on: the tools that are registered, and what the database holds of them."""
    registered = tuple((name, id(tool)) for name, tool in get_all_tools().items())
    rows = tuple(Tool.objects.order_by("pk").values_list("pk", "name"))
    head = Instance.objects.values_list("name", "audit_seq", "audit_head").get(pk=1)
    return registered, rows, head


def _models() -> Iterator[type[models.Model]]:
    for label in ("catalog", "approvals"):
        yield from apps.get_app_config(label).get_models(include_auto_created=True)


def _read() -> Rows:
    return {model: {row["pk"]: row for row in model._base_manager.values("pk", *_names(model))} for model in _models()}


def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _compared(before: Rows, after: Rows) -> Kept:
    kept = Kept({}, {})
    for model, rows in after.items():
        there = before[model]
        kept.new[model] = {pk: row for pk, row in rows.items() if pk not in there}
        kept.changed[model] = {pk: row for pk, row in rows.items() if pk in there and there[pk] != row}
    return kept


def _write(kept: Kept) -> None:
    """Write rows as they were; whether what they refer to is there is looked at when the transaction ends."""
    with transaction.atomic():
        for model, rows in kept.changed.items():
            for pk, row in rows.items():
                model._base_manager.filter(pk=pk).update(**{name: row[name] for name in _names(model)})
        for model, rows in kept.new.items():
            names = _names(model)
            model._base_manager.bulk_create(model(**{name: row[name] for name in names}) for row in rows.values())
    snapshot.forget()
