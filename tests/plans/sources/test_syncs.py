"""Synchronisation beside changes of the source, other processes and killed ones; settings of single tools."""

import asyncio
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict, ParameterError, SourceProblem, UpstreamUnavailable
from catalog.inventory import imported_tools, snapshot, source_preview, source_sync
from catalog.inventory.held_changes import accept_changes, held_digest
from catalog.inventory.imported_tools import take_up_definition
from catalog.inventory.source_preview import preview_source
from catalog.inventory.source_sync import sync_due_sources, sync_source
from catalog.inventory.sources import create_source, update_source
from catalog.models import Source, Tool
from catalog.sources import http_requests, mcp_client
from catalog.sources.definitions import Definition, Listing
from catalog.sources.loading import judge_definition
from catalog.sources.settings import UpstreamSettings, read_secrets, settings_of
from catalog.tools import registry
from tests.builders import call_of, make_plan, step, work_off
from tests.plans.sources.conftest import SHOP, VALUES
from tests.rest import Rest, wrong_paths
from tests.upstreams import DROP, READ
from tests.waiting import eventually


@pytest.fixture
def shop(db, admin):
    """Return a source that needs no network."""
    return create_source(VALUES, by=admin)


def at_reading(monkeypatch, *acts):
    """Do one act, each time that the upstream was read."""
    read, left = source_sync.read_upstream, list(acts)

    def read_and_act(source, **options):
        listing = read(source, **options)
        if left:
            left.pop(0)()
        return listing

    monkeypatch.setattr(source_sync, "read_upstream", read_and_act)


def test_request_during_a_synchronisation_stays(shop, monkeypatch):
    at_reading(monkeypatch, lambda: Source.objects.filter(pk=shop.pk).update(sync_requested_at=clock.now()))
    assert sync_due_sources() == 1
    assert sync_due_sources() == 1
    assert sync_due_sources() == 0


def test_source_that_changes_while_it_is_read_is_read_again(shop, admin, monkeypatch):
    other = json.dumps({**SHOP, "paths": {"/pets": {"get": {"operationId": "pets", "responses": {}}}}})
    at_reading(monkeypatch, lambda: update_source(shop, {"document": other}, by=admin))
    assert sync_source(shop).added == ["pets"]
    assert list(Tool.objects.filter(source=shop).values_list("name", flat=True)) == ["pets"]


def test_listing_older_than_that_of_another_process_is_dropped(shop, monkeypatch):
    at_reading(monkeypatch, lambda: sync_source(Source.objects.get()))
    assert sync_source(shop).as_dict() == {"added": [], "changed": [], "removed": [], "drifted": []}
    assert Tool.objects.filter(source=shop).count() == 2


def test_source_that_its_creator_synchronises_is_left_alone(db, admin):
    made = create_source(VALUES, by=admin, is_claimed=True)
    assert sync_due_sources() == 0
    assert sync_source(made).added == ["list_orders", "drop_orders"]
    assert sync_due_sources() == 0


def test_source_of_a_killed_process_is_due_again(shop, monkeypatch):
    """The claim of a process that never came back runs out."""
    monkeypatch.setattr(source_sync, "sync_source", lambda source: os.abort)
    assert (sync_due_sources(), sync_due_sources()) == (1, 0)
    monkeypatch.undo()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(minutes=5))
    assert sync_due_sources() == 1
    assert Tool.objects.filter(source=shop).count() == 2


def test_failure_of_an_upstream_is_tried_again_after_a_pause(shop, monkeypatch):
    def fail(source, **options):
        raise SourceProblem("It says nothing.")

    monkeypatch.setattr(source_sync, "read_upstream", fail)
    assert (sync_due_sources(), sync_due_sources()) == (1, 0)
    monkeypatch.undo()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(minutes=2))
    assert sync_due_sources() == 1
    shop.refresh_from_db()
    assert shop.status == "connected"


def test_source_and_python_module_never_share_a_row(db, admin, settings, monkeypatch):
    monkeypatch.setattr(registry, "_IMPORT_ERRORS", {})
    settings.TOOLGATE_TOOLS = ["shop"]
    imported = Source.objects.create(name="shop", kind="openapi", document="{}")
    with pytest.raises(CommandError, match="imported source called shop"):
        call_command("sync_tools")
    imported.delete()
    with pytest.raises(Conflict):
        create_source(VALUES, by=admin)


def test_lower_level_without_a_reason_is_not_taken(admin, db):
    lower = {"safety_level": "safe"}
    made = create_source({**VALUES, "tools": {"drop_orders": lower}}, by=admin)
    changes = sync_source(made)
    assert Tool.objects.get(name="drop_orders").level_override == "" and len(changes.problems) == 1

    made = create_source({**VALUES, "name": "shop2", "tools": {"drop_orders": {**lower, "reason": "Trash"}}}, by=admin)
    sync_source(made)
    assert Tool.objects.get(name="shop2__drop_orders").level_override == "safe"
    assert AuditEntry.objects.filter(action="tool.level_set").count() == 1


def test_lower_level_is_for_the_tool_that_was_previewed(admin, db):
    """An upstream can change between the preview and the import."""
    digests = {tool.name: tool.digest for tool in preview_source(VALUES, by=admin).tools}
    lower = {"safety_level": "safe", "reason": "Trash", "digest": digests["drop_orders"]}
    wipe = {**SHOP, "paths": {"/wipe": {"delete": SHOP["paths"]["/orders"]["delete"]}}}
    for name, document, level in (("as-shown", SHOP, "safe"), ("other", wipe, "")):
        values = {"name": name, "document": json.dumps(document), "tools": {"drop_orders": lower}}
        sync_source(create_source({**VALUES, **values}, by=admin))
        assert Tool.objects.get(source__name=name, name__endswith="drop_orders").level_override == level


def test_lower_level_ends_only_when_the_upstream_raises_its_own(admin, db):
    lower = {
        "drop_orders": {"safety_level": "cautious", "reason": "Trash"},
        "list_orders": {"safety_level": "dangerous"},
    }
    made = create_source({**VALUES, "tools": lower}, by=admin)
    sync_source(made)
    sync_source(update_source(made, {"timeout": 60}, by=admin))
    assert Tool.objects.get(name="drop_orders").level_override == "cautious"

    row = Tool.objects.get(name="list_orders")
    row.level_override = ""
    offered = replace(Definition.from_json(row.definition or {}), safety_level="cautious")
    assert take_up_definition(row, offered) == []
    row.level_override = "safe"
    ended = take_up_definition(row, replace(offered, safety_level="dangerous"))
    assert ([fact.kind for fact in ended], row.level_override) == (["tool.level_raised"], "")


def test_change_of_tools_happens_whole_or_not_at_all(shop, admin):
    sync_source(shop)
    tools = {"list_orders": {"enabled": False}, "drop_orders": {"safety_level": "safe"}}
    with pytest.raises(ParameterError) as refused:
        update_source(shop, {"trusted": True, "tools": tools}, by=admin)
    assert refused.value.details["errors"][0]["path"] == "tools.drop_orders.reason"
    shop.refresh_from_db()
    assert Tool.objects.get(name="list_orders").enabled and not shop.trusted


def test_preview_sends_stored_secrets_to_the_stored_address_only(shop, admin, monkeypatch):
    sent = []

    def read(source, **options):
        sent.append(read_secrets(source)["headers"])
        return Listing(())

    monkeypatch.setattr(source_preview, "read_upstream", read)
    plain = {name: VALUES[name] for name in ("name", "kind")}
    preview_source(plain, by=admin)
    preview_source({**plain, "base_url": "https://evil.example"}, by=admin)
    assert sent == [VALUES["headers"], {}]
    with pytest.raises(ParameterError):
        preview_source({**plain, "base_url": "https://evil.example", "headers": {"Authorization": "••••"}}, by=admin)


def test_document_that_comes_to_name_another_server_gets_no_credential(admin, db, monkeypatch, ada):
    documents = [json.dumps(SHOP)]
    monkeypatch.setattr(source_sync, "fetch_document", lambda reached: documents[-1])
    url = "https://shop.example/openapi.json"
    made = create_source({**VALUES, "document": "", "url": url}, by=admin)
    sync_source(made)
    elsewhere = {**SHOP, "servers": [{"url": "https://evil.example"}]}
    elsewhere["paths"] = {"/new": {"get": {"operationId": "new", "responses": {"200": {"description": "OK"}}}}}
    documents.append(json.dumps(elsewhere))
    with pytest.raises(SourceProblem, match="now names the server https://evil"):
        sync_source(made)
    assert not Tool.objects.filter(name="new").exists()

    update_source(made, {"base_url": "https://evil.example", "headers": {"Authorization": "Bearer new"}}, by=admin)
    plan = work_off(make_plan(ada, step(1, "list_orders", parameters={})))
    assert call_of(plan).error_kind == "drifted"  # its request still goes to the former server
    assert sync_source(made).added == ["new"]


def test_document_names_the_server_once_its_base_url_is_gone(admin, db):
    made = create_source({**VALUES, "base_url": "https://staging.example"}, by=admin)
    sync_source(made)
    made = update_source(made, {"base_url": "", "headers": {"Authorization": "Bearer new"}}, by=admin)
    assert made.api_origin == "https://shop.example"


def test_changes_are_accepted_with_the_settings_of_now(shop, admin):
    sync_source(shop)
    sync_source(update_source(shop, {"base_url": "https://shop.example/v2"}, by=admin))
    held = {tool.name: held_digest(tool) for tool in shop.tools.exclude(held_version=None)}
    update_source(shop, {"headers": {"Authorization": "••••", "X-Key": "key"}}, by=admin)
    accept_changes(shop, held, by=admin, reason="New version")  # `shop` was read before the last change
    drifted = [tool.drifted for name, tool in snapshot.callable_tools().items() if name in held]
    assert drifted == [False, False]


@pytest.mark.parametrize(
    "values, path", [({"document": "\0"}, "document"), ({"tools": {"a\0": {"enabled": False}}}, "tools")]
)
def test_nul_is_refused(values, path, admin, db):
    """PostgreSQL cannot store it."""
    with pytest.raises(ParameterError) as refused:
        create_source({**VALUES, **values}, by=admin)
    assert [each["path"] for each in refused.value.details["errors"]] == [path]


def test_definition_with_nul_is_left_out():
    """PostgreSQL cannot store it."""
    settings = UpstreamSettings(pk=1, name="wiki", kind="mcp")
    for text, is_refused in (("a\0b", True), (r"a\u0000b", False), ("a\\\0", True)):
        schema = {"type": "object", "properties": {"a": {"enum": [text]}}}
        definition = Definition(kind="mcp", upstream="read", description="Read", input_schema=schema)
        assert bool(judge_definition("read", definition, settings)) == is_refused, canonical_text(text)


def test_sync_tools_reads_sources_too(shop):
    out, errors = StringIO(), StringIO()
    Source.objects.create(name="away", kind="openapi", document="{}")
    call_command("sync_tools", json=True, stdout=out, stderr=errors)
    assert {"list_orders", "drop_orders"} <= set(json.loads(out.getvalue())["added"])
    assert "failing away: " in errors.getvalue()


def test_program_that_is_not_listed_can_be_disabled_but_not_changed(db, admin, offer):
    """An operator imported it in a shell."""
    create_source({"name": "wiki", "kind": "mcp", "command": offer.command}, by=admin, any_command=True)
    rest = Rest(admin)
    for body in ({"command": [*offer.command, "8000"]}, {"env": {"PATH": "/srv"}}):
        answer = rest.patch("sources/wiki/", body)
        assert (answer.status_code, wrong_paths(answer)) == (422, ["command"])
    assert rest.patch("sources/wiki/", {"timeout": 20}).status_code == 200
    assert rest.delete("sources/wiki/").json()["status"] == "disabled"


def children() -> set[str]:
    """Return the upstreams over stdio that this process started, by their numbers."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            arguments = (process / "cmdline").read_text().split("\0")
            if parent == str(os.getpid()) and "tests.upstream" in arguments and "sessions" not in arguments:
                found.add(process.name)
    return found


def test_programs_end_with_their_source(program_source, admin, offer):
    running = children()
    assert len(running) == 1
    preview_source({"name": "other", "kind": "mcp", "command": offer.command}, by=admin, any_command=True)
    assert children() == running
    thread = source_sync.SyncThread()
    thread.look()
    assert children() == running
    update_source(program_source, {"enabled": False}, by=admin)
    thread.look()
    eventually(lambda: not children())


def test_program_is_started_again_when_its_source_was_switched_off_and_on(program_source, admin):
    """Also between two rounds of the thread, which would end it."""
    before = children()
    update_source(program_source, {"enabled": False}, by=admin)
    sync_source(update_source(program_source, {"enabled": True}, by=admin))
    eventually(lambda: len(children()) == 1 and children() != before)


def test_programs_end_with_the_process(program_source):
    assert children()
    source_sync.SyncThread().stop()
    assert not children()


def test_change_of_a_source_lets_its_calls_end(program_source, admin, offer, monkeypatch):
    """The next call uses a new connection; a running one keeps its own."""
    offer({**READ, "does": "pause"}, DROP)
    definition = Definition.from_json(Tool.objects.get(name="read_page").definition or {})

    async def both():
        settings = settings_of(program_source)
        running = asyncio.create_task(
            mcp_client.connection_to(settings).call(definition, {"text": "a"}, level=SafetyLevel.SAFE)
        )
        await asyncio.sleep(0.2)
        changed = replace(settings, env={"NEW": "1"})
        later = mcp_client.connection_to(changed).call(definition, {"text": "b"}, level=SafetyLevel.SAFE)
        return await later, await running

    results = mcp_client.run_on_loop(both(), 30)
    assert [result.value for result in results] == [{"text": "b"}, {"text": "a"}]
    eventually(lambda: len(children()) == 1)


def test_announced_change_makes_a_synchronisation_due(source, ada, offer, monkeypatch):
    monkeypatch.setattr(mcp_client, "NOTIFICATION_SECONDS", 0.1)
    offer({**READ, "does": "announce"}, DROP)
    Source.objects.filter(pk=source.pk).update(sync_requested_at=None)
    plan = work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"})))
    assert call_of(plan).status == "completed"
    eventually(lambda: Source.objects.get(pk=source.pk).sync_requested_at is not None)


def test_http_upstream_that_is_restarted_is_connected_to_again(web_source, ada):
    source, upstream = web_source
    for _ in range(2):
        plan = work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"})))
        assert call_of(plan).status == "completed", call_of(plan).message
        upstream.restart()
    assert sync_source(source).as_dict() == {"added": [], "changed": [], "removed": [], "drifted": []}


def test_server_that_accepts_no_connection_was_sent_nothing(db, admin, settings, ada):
    """A full backlog drops connections, as a firewall does."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with socket.socket() as listening, socket.socket() as filler, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for each in (filler, second):
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        request = http_requests.PreparedRequest("POST", f"http://127.0.0.1:{listening.getsockname()[1]}/", {}, b"x")
        began = time.monotonic()
        with pytest.raises(UpstreamUnavailable):
            mcp_client.run_on_loop(http_requests.send("shop", request, 1.0), 10)
        assert time.monotonic() - began < 1


def test_killed_import_is_continued(shop, monkeypatch):
    """Each part of the tools is a transaction of its own."""
    monkeypatch.setattr(source_sync, "TOOLS_AT_ONCE", 1)
    publish = imported_tools.publish_changes
    published = []

    def die_after_one(facts, *, is_changed):
        published.append(facts)
        if len(published) == 2:
            raise SystemExit
        publish(facts, is_changed=is_changed)

    monkeypatch.setattr(source_sync, "publish_changes", die_after_one)
    with pytest.raises(SystemExit):
        sync_source(shop)
    assert Tool.objects.filter(source=shop).count() == 1
    assert sync_source(shop).added == ["drop_orders"]


def test_new_tool_never_gets_the_name_of_one_that_is_gone(shop, admin):
    """The name stays with the tool's history."""
    sync_source(shop)
    Tool.objects.filter(name="list_orders").update(name="pets")
    other = json.dumps({**SHOP, "paths": {"/pets": {"get": {"operationId": "pets", "responses": {}}}}})
    update_source(shop, {"document": other}, by=admin)
    assert sync_source(shop).added == ["shop__pets"]
