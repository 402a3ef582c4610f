"""Level changes in code: raised levels apply at once, lowered ones wait for an administrator."""

import pytest

from approvals.models import AuditEntry
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.sync import sync_registered_tools
from catalog.inventory.versions import columns_fingerprint, version_columns
from catalog.models import Tool, ToolVersion
from catalog.testing import clean_registry
from catalog.tools import ToolExample, tool
from catalog.tools.registry import get_all_tools, initialize_tools, loaded_variants

pytestmark = pytest.mark.usefixtures("own_tools_only")


def code_says(level):
    """Declare a level for `greet` in code, and sync."""

    @tool(name="greet", safety_level=level, reversibility="reversible")
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello {name}"

    sync_registered_tools()


def now():
    """Return the level that holds, the one that the code declares, and whether the code has drifted."""
    found, row = snapshot.callable_tool("greet"), Tool.objects.get()
    assert found is not None and row.current_version is not None
    assert found.tool.safety_level == row.current_version.safety_level
    return str(found.tool.safety_level), row.declared_level, found.drifted


def noted():
    """Return what the audit log says of levels."""
    return list(AuditEntry.objects.filter(action__contains="level").order_by("seq").values_list("action", flat=True))


def test_a_level_that_code_raises_holds_at_once():
    code_says("safe")
    code_says("dangerous")

    assert now() == ("dangerous", "dangerous", False)
    assert ToolVersion.objects.count() == 2


def test_a_level_that_code_lowers_stays_until_an_administrator_agrees(admin):
    code_says("dangerous")
    code_says("safe")
    code_says("safe")

    assert now() == ("dangerous", "safe", False)
    assert (ToolVersion.objects.count(), noted()) == (1, ["tool.level_kept"])

    apply_overrides("greet", {"safety_level": "safe"}, by=admin, reason="It only greets.")
    sync_registered_tools()
    assert now() == ("safe", "safe", False)
    assert (Tool.objects.get().level_override, noted()) == ("", ["tool.level_kept", "tool.level_set"])


@pytest.mark.parametrize("path", [["dangerous", "cautious", "safe"], ["dangerous", "safe", "cautious", "safe"]])
def test_no_way_of_lowering_in_steps_gets_around_it(path):
    for level in path:
        code_says(level)

    assert now()[0] == "dangerous"


def test_leaving_and_coming_back_does_not_get_around_it_either():
    code_says("dangerous")
    with clean_registry():
        sync_registered_tools()
    code_says("safe")

    assert now() == ("dangerous", "safe", False)


def test_what_an_administrator_raised_stays_whatever_the_code_says(admin):
    code_says("safe")
    apply_overrides("greet", {"safety_level": "dangerous"}, by=admin)
    for level in ("cautious", "safe"):
        code_says(level)
        assert now()[0] == "dangerous"


def test_what_code_raises_ends_what_an_administrator_had_allowed(admin):
    code_says("cautious")
    apply_overrides("greet", {"safety_level": "safe"}, by=admin, reason="It only greets.")
    code_says("dangerous")

    assert now() == ("dangerous", "dangerous", False)
    assert noted() == ["tool.level_set", "tool.level_raised"]


def test_a_catalog_from_before_levels_were_noted_is_as_careful():
    code_says("dangerous")
    Tool.objects.update(declared_level="")
    code_says("safe")

    assert now() == ("dangerous", "safe", False)


def test_code_that_was_not_synced_yet_has_drifted_when_it_lowers_its_level():
    code_says("dangerous")

    @tool(name="greet")
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello {name}"

    snapshot.drop_snapshot()
    found = snapshot.callable_tool("greet")
    assert found is not None and found.drifted


def test_the_row_keeps_what_the_author_declares():
    @tool(returns_private_data=True, accepts_overrides=False, examples=[ToolExample("Ada", {"name": "Ada"}, "Hi")])
    def hail(name: str) -> str:
        """Hail someone."""
        return f"Hi {name}"

    sync_registered_tools()

    row = Tool.objects.get()
    assert (row.declared_description, row.declared_level) == ("Hail someone.", "safe")
    assert (row.returns_private_data, row.accepts_overrides) == (True, False)
    assert row.examples == [{"description": "Ada", "arguments": {"name": "Ada"}, "result": "Hi"}]


def test_the_fingerprint_is_the_same_from_code_from_columns_and_from_rows():
    initialize_tools()
    sync_registered_tools()

    for row in Tool.objects.select_related("current_version"):
        loaded, version = get_all_tools()[row.name], row.current_version
        assert version is not None
        stored = {name: getattr(version, name) for name in version_columns(loaded)}
        assert columns_fingerprint(row.name, version_columns(loaded)) == loaded.fingerprint == version.fingerprint
        assert columns_fingerprint(row.name, stored) == version.fingerprint
        assert {code.fingerprint for code in loaded_variants(loaded).values()} == {loaded.fingerprint}
