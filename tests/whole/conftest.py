"""The example module of the guide for tool authors, installed and in the catalog."""

import pytest

from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.tools.registry import _TOOLS
from tests.whole.factories import CALLS, EXAMPLES


@pytest.fixture
def examples(monkeypatch, settings):
    """The module as an installation of it would name it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings.TOOLGATE_TOOLS = ["every_style"]


@pytest.fixture
def synced(db, examples, catalog):
    """Its tools in the catalog, and away again afterwards."""
    sync_tools()
    yield
    for name in CALLS:
        _TOOLS.pop(name)
    snapshot.drop_snapshot()
