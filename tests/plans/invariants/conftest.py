"""A small world of data, fresh for each test: built once, then its rows are restored."""

from collections.abc import Hashable
from dataclasses import fields
from pathlib import Path

import pytest
from django.apps import apps
from django.db import transaction

from catalog.models import Implementation
from tests.conftest import forget_what_was_read, person
from tests.plans.invariants.worlds import People, SmallWorld, small_world
from tests.rows import Kept, read
from tests.tools_for_tests import Stage

_kept: dict[Hashable, tuple[SmallWorld, Kept]] = {}


@pytest.fixture
def small(stage: Stage, workspace: Path) -> SmallWorld:
    """A world with every kind of event, and the tools as they were first added to the catalog."""
    tools = tuple(Implementation.objects.order_by("pk").values_list("tool_id", "tool__name", "updated_at"))
    if tools not in _kept:
        _kept[tools] = build()
    world, rows = _kept[tools]
    rows.write()
    forget_what_was_read()
    return anew(world)


def build() -> tuple[SmallWorld, Kept]:
    """Build the world and roll back; return its rows."""
    tables = apps.get_models(include_auto_created=True)
    before = read(tables)
    sid = transaction.savepoint()
    world = small_world(People(person("ada", "operator"), person("rosa", "reviewer"), person("admin", "administrator")))
    rows = Kept.between(before, read(tables))
    transaction.savepoint_rollback(sid)
    return world, rows


def anew(world: SmallWorld) -> SmallWorld:
    """Return the world's plans and call reloaded from the database."""
    there = {field.name: getattr(world, field.name) for field in fields(world)}
    return SmallWorld(**{name: type(each).objects.get(pk=each.pk) for name, each in there.items()})
