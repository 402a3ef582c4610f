"""The sets of tools that ship: disabled in a new installation until somebody asks for them."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from approvals.models import AuditEntry
from catalog.errors import Conflict, ParameterError
from catalog.inventory import snapshot
from catalog.inventory.sources import end_source, switchable_sources, update_source
from catalog.inventory.sync import sync_tools
from catalog.models import Call, Source, Tool
from catalog.tools.registry import initialize_tools
from tests.builders import make_plan, step, work_off
from tests.rest import Rest

pytestmark = pytest.mark.django_db

TEXT, FILES = "catalog.toolsets.text", "catalog.toolsets.workspace"


@pytest.fixture
def new_installation() -> Any:
    """The catalog of a new installation."""
    initialize_tools()
    sync_tools()
    yield
    snapshot.drop_snapshot()


def enabled_sets() -> set[str]:
    """Return the names of the enabled sets."""
    return set(switchable_sources().filter(kind="python", enabled=True).values_list("name", flat=True))


def test_a_new_installation_offers_planning_tools_only(new_installation: None) -> None:
    assert enabled_sets() == set() and switchable_sources().filter(kind="python").count() >= 6
    offered = {name for name, target in snapshot.callable_tools().items() if target.enabled}
    assert "planning_read_plan" in offered and not offered & {"render_text", "write_file", "send_registration_email"}


def test_a_set_is_enabled_and_disabled_over_rest(new_installation: None, admin: Any, ada: Any) -> None:
    rest = Rest(admin)
    answer = rest.patch(f"sources/{TEXT}/", {"enabled": True})
    assert (answer.status_code, answer.json()["status"], answer.json()["tools"]) == (200, "connected", ["render_text"])
    assert answer.json()["description"] and enabled_sets() == {TEXT}
    assert snapshot.callable_tools()["render_text"].enabled
    entry = AuditEntry.objects.filter(action="source.changed").latest("seq")
    assert (entry.actor_name, TEXT in entry.details) == ("admin", True)
    assert rest.patch(f"sources/{TEXT}/", {"trusted": False}).status_code == 422
    assert rest.post(f"sources/{TEXT}/sync/").status_code == 409
    assert rest.delete(f"sources/{TEXT}/").status_code == 200 and enabled_sets() == set()
    assert Rest(ada).patch(f"sources/{TEXT}/", {"enabled": True}).status_code == 403
    assert {FILES, TEXT} <= {each["name"] for each in rest.get("sources/").json()["results"]}


def test_the_setting_enables_a_set_unless_an_administrator_disabled_it(
    new_installation: None, admin: Any, settings: Any
) -> None:
    settings.TOOLGATE_TOOLS = [TEXT, FILES]
    end_source(Source.objects.get(name=FILES), by=admin)
    sync_tools()
    assert enabled_sets() == {TEXT} and snapshot.callable_tools()["render_text"].enabled


def test_a_set_that_is_named_before_the_first_start_is_enabled(settings: Any) -> None:
    settings.TOOLGATE_TOOLS = [TEXT]
    initialize_tools()
    sync_tools()
    assert enabled_sets() == {TEXT}


def test_an_upgrade_keeps_the_sets_that_were_called(catalog: None, ada: Any, workspace: Any) -> None:
    work_off(make_plan(ada, step(1, "render_text", parameters={"template": "a", "values": {}})))
    assert Call.objects.filter(tool_name="render_text").exists()
    import_module("catalog.migrations.0006_shipped_sets").disable_unused_sets(apps, None)
    assert enabled_sets() == {TEXT}
    Tool.objects.filter(name="render_text").update(source=Source.objects.get(name=FILES))
    Source.objects.filter(name=TEXT).delete()
    sync_tools()  # its module is new, as after a move
    assert TEXT in enabled_sets()


def test_other_modules_are_not_changed(catalog: None, admin: Any) -> None:
    other = Tool.objects.select_related("source").get(name="planning_read_plan").source
    with pytest.raises(Conflict):
        update_source(other, {"enabled": False}, by=admin)
    with pytest.raises(ParameterError):
        update_source(Source.objects.get(name=TEXT), {"timeout": 3}, by=admin)
    assert other.name not in set(switchable_sources().values_list("name", flat=True))
