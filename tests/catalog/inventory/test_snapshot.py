"""Snapshot of callable tools: fresh within a second, without further queries."""

import pytest
from django.db.models import F

from catalog.inventory import snapshot
from catalog.inventory.sync import sync_registered_tools
from catalog.models import CatalogState, Tool
from catalog.testing import clean_registry
from catalog.tools import tool

pytestmark = pytest.mark.db


@pytest.fixture(autouse=True)
def shout(db):
    """One tool, registered and synced."""
    with clean_registry():

        @tool(categories=["words"])
        def shout(text: str) -> str:
            """Say it louder."""
            return text.upper()

        sync_registered_tools()
        yield shout
    snapshot.drop_snapshot()


def seen(name):
    """Return what may be called under this name: there must be something."""
    found = snapshot.callable_tool(name)
    assert found is not None
    return found


def test_it_joins_the_code_with_its_rows(shout):
    found = seen("shout")
    row = Tool.objects.get()

    assert found.tool is shout
    assert (found.tool_pk, found.version_pk) == (row.pk, row.current_version_id)
    assert found.fingerprint == shout.fingerprint
    assert found.implementation_pk == row.implementations.get().pk
    assert (found.enabled, found.drifted, found.categories) == (True, False, frozenset({"words"}))
    assert snapshot.callable_tools() == {"shout": found}


def test_what_is_not_known_here_cannot_be_called():
    assert snapshot.callable_tool("whisper") is None


def test_a_look_costs_no_query_and_an_old_one_costs_one(django_assert_num_queries, trust_for):
    assert snapshot.SNAPSHOT_SECONDS == 1
    trust_for(3600.0)
    snapshot.callable_tool("shout")
    with django_assert_num_queries(0):
        snapshot.callable_tool("shout")

    trust_for(0.0)
    with django_assert_num_queries(1):
        snapshot.callable_tool("shout")


def test_it_takes_up_what_another_process_wrote(trust_for):
    trust_for(3600.0)
    snapshot.callable_tool("shout")
    Tool.objects.update(enabled=False)
    CatalogState.objects.update(revision=F("revision") + 1)
    assert seen("shout").enabled

    trust_for(0.0)
    assert not seen("shout").enabled


def test_code_that_is_not_what_the_catalog_says_has_drifted(shout):
    Tool.objects.get().versions.update(fingerprint="f" * 64)
    snapshot.drop_snapshot()

    assert seen("shout").drifted


def test_a_tool_that_no_source_offers_cannot_be_called():
    Tool.objects.update(registered=False)
    snapshot.drop_snapshot()

    assert snapshot.callable_tool("shout") is None
