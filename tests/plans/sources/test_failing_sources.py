"""Sources whose upstream fails: what the source says, and what is tried again."""

from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from catalog.inventory.source_sync import sync_due_sources, sync_source
from catalog.inventory.sources import create_source
from catalog.models import Source
from catalog.sources import mcp_client
from plans.engine.progress import progress_of
from plans.mcp.calls import CallState
from tests.builders import call_of, make_plan, step, work_off
from tests.scripted_upstream import ANY_OBJECT, DONE, Reply, message, progress, scripted_upstream
from tests.upstreams import free_port
from tests.waiting import eventually

READ = {"name": "read_page", "inputSchema": ANY_OBJECT, "annotations": {"readOnlyHint": True}}


@pytest.fixture
def port(settings):
    """Return a port of this machine that upstreams may have."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    yield free_port()
    mcp_client.close_connections()


def wiki(port, admin, **values):
    """Return a source whose upstream has this port, not synchronised."""
    address = f"http://127.0.0.1:{port}/mcp"
    return create_source({"name": "wiki", "kind": "mcp", "url": address, "trusted": True, **values}, by=admin)


def test_call_that_cannot_reach_an_upstream_says_so_on_its_source(transactional_db, port, admin, ada):
    with scripted_upstream(port) as upstream:
        upstream.tools = [READ]
        source = wiki(port, admin)
        sync_source(source)
    plan = work_off(make_plan(ada, step(1, "read_page")))
    assert call_of(plan).status == "ready"  # it is tried again
    reason = "Toolgate could not connect to wiki: nothing answers at its address."
    eventually(lambda: Source.objects.get(name="wiki").error == reason, what="the reason on the source")
    Source.objects.update(last_sync_at="2026-01-01T00:00:00Z")
    assert sync_due_sources() == 1  # Toolgate connects again by itself
    assert Source.objects.get(name="wiki").error == reason
    with scripted_upstream(port) as upstream:
        upstream.tools = [READ]
        assert sync_source(source).problems == []  # at once, because a person asked
        assert Source.objects.get(name="wiki").error == ""
        assert call_of(work_off(make_plan(ada, step(1, "read_page")))).status == "completed"


def test_call_of_an_upstream_that_timed_out_is_not_repeated(transactional_db, port, admin, ada):
    with scripted_upstream(port) as upstream:
        upstream.tools = [READ]
        upstream.on("read_page", Reply(events=[3.0]))
        sync_source(wiki(port, admin, timeout=1))
        call = call_of(work_off(make_plan(ada, step(1, "read_page"))))
        assert (call.status, call.error_kind, upstream.calls()) == ("failed", "timeout", ["read_page"])
        assert "timeout of the source" in call.message


def test_call_may_take_longer_than_the_timeout_while_it_reports_progress(transactional_db, port, admin, ada):
    """Clients and the plan's history learn the numbers; the words of an upstream may be private."""
    with scripted_upstream(port) as upstream:
        upstream.tools = [READ]
        events: list[Any] = [0.6, progress(1, total=3, message="secret"), 0.6, progress(2), 0.6]
        upstream.on("read_page", Reply(events=[*events, message(id="?", result=DONE)]))
        sync_source(wiki(port, admin, timeout=1))
        plan = work_off(make_plan(ada, step(1, "read_page")))
        call = call_of(plan)
        assert (call.status, progress_of(call)) == ("completed", "1 of 3")
        (event,) = plan.events.filter(type="call.progress")
        assert event.data_json == {"call": call.public_id, "progress": 1.0, "total": 3.0}
        assert CallState(call, None, None, progress_of(call)).message == "read_page is running (1 of 3)."


@pytest.mark.parametrize("command", [["import_mcp", "wiki", "--url"], ["import_openapi", "wiki"]])
def test_source_that_cannot_be_read_is_stored_only_on_request(db, port, admin, command):
    address = [f"http://127.0.0.1:{port}/x"]
    with pytest.raises(CommandError, match="Nothing was stored"):
        call_command(*command, *address)
    assert not Source.objects.filter(name="wiki").exists()
    with pytest.raises(CommandError, match="is stored"):
        call_command(*command, *address, "--keep")
    assert Source.objects.get(name="wiki").error
