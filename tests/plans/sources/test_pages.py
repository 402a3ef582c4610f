"""Pages of sources: lines of text, what a preview binds, and the acceptance of held changes."""

import json
import re
from copy import deepcopy
from html import unescape
from unittest.mock import ANY

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict

from catalog.calls.argument_notes import notes_on_missing
from catalog.definitions.levels import SafetyLevel
from catalog.inventory.snapshot import drop_snapshot, loaded_tool
from catalog.inventory.source_preview import OfferedTool
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source, update_source
from catalog.models import Source, Tool
from catalog.sources.definitions import MAX_TOOLS
from catalog.sources.settings import read_secrets
from catalog.tools.registry import get_tool, set_imported_tools
from catalog.web.new_source import ChoicesForm, NewSourceForm
from catalog.web.sources import address_limit, program_limit
from tests.catalogs import imported_tool
from tests.plans.sources.conftest import SHOP, VALUES


@pytest.fixture
def shop(db, admin, client):
    """Return an imported source; the administrator is signed in."""
    client.force_login(admin)
    made = create_source(VALUES, by=admin)
    sync_source(made)
    return made


def test_notes_on_arguments_know_imported_tools_after_a_start(shop):
    """A process that has called nothing yet shows requests, too."""
    drop_snapshot()
    set_imported_tools({})
    assert get_tool("list_orders") is None
    schema = {"type": "object", "properties": {"limit": {"type": "integer", "default": 20}}}
    (note,) = notes_on_missing(loaded_tool("list_orders"), schema, {}, [])
    assert note.kind == "server"


def test_headers_are_lines_of_names_and_values(shop, client):
    form = {"headers": "Authorization: ••••\r\n\r\n X-Key : a:b ", "timeout": "30"}
    assert client.post("/sources/shop/change/", form).status_code == 302
    shop.refresh_from_db()
    assert read_secrets(shop)["headers"] == {**VALUES["headers"], "X-Key": "a:b"}
    refused = client.post("/sources/shop/change/", {**form, "headers": "Authorization"})
    assert refused.status_code == 422 and "Write one" in refused.content.decode()


def test_form_may_have_three_fields_for_each_tool(shop, client):
    form = {f"level:{number}-{field}": "safe" for number in range(MAX_TOOLS) for field in range(3)}
    assert client.post("/sources/new/", {**form, "do": "add"}).status_code == 422  # a name is missing


def test_held_changes_are_accepted_as_the_page_showed_them(shop, admin, client):
    def go_elsewhere(base_url):
        update_source(shop, {"base_url": base_url, "headers": {}}, by=admin)
        sync_source(shop)

    def shown():
        text = client.get("/sources/shop/").content.decode()
        assert "GET https://shop.example/orders → GET https://" in text
        return {"held": re.findall(r'name="held" value="([^"]+)"', text), "reason": "New address"}

    go_elsewhere("https://shop.example/v2")
    form = shown()
    go_elsewhere("https://other.example")
    single = {"what": "version", "held": form["held"][0].partition(":")[2], "reason": "New address"}
    assert client.post("/sources/shop/accept/", form).status_code == 422
    assert client.post("/tools/drop_orders/change/", single).status_code == 422
    assert Tool.objects.exclude(held_version=None).count() == 2
    single["held"] = shown()["held"][0].partition(":")[2]
    assert client.post("/tools/drop_orders/change/", single).status_code == 302
    form = shown()
    assert client.post("/sources/shop/accept/", form).status_code == 302
    assert not Tool.objects.exclude(held_version=None).exists()
    assert 'role="alert"' in client.post("/sources/shop/accept/", form).content.decode()


def test_held_changes_are_described(shop, admin, client):
    document = deepcopy(SHOP)
    document["paths"]["/orders"]["get"]["parameters"] = [{"name": "limit", "in": "query"}]
    update_source(shop, {"document": json.dumps(document)}, by=admin)
    sync_source(shop)
    assert "<code>limit</code>" in client.get("/sources/shop/").content.decode()


def test_held_change_of_the_request_hides_no_version(shop, admin, client):
    update_source(shop, {"base_url": "https://shop.example/v2"}, by=admin)
    sync_source(shop)
    page = client.get("/tools/list_orders/")
    assert not page.context["held"].is_new_version and page.context["latest"]


def test_page_of_an_imported_tool_shows_its_request_and_leads_administrators_to_its_source(shop, ada, client):
    def links():
        text = client.get("/tools/drop_orders/").content.decode()
        assert "DELETE https://shop.example/orders" in text and "/sources/http/" not in text
        return text.count('href="/sources/shop/"')

    seen_by_administrator = links()
    client.force_login(ada)
    assert (seen_by_administrator, links()) == (1, 0)


@pytest.fixture
def add(db, admin, client):
    """Return a function that sends the page of a new source, filled in as it was shown last."""
    client.force_login(admin)
    form = {"name": "shop", "kind": "openapi", "kept_document": VALUES["document"], "timeout": "30"}

    def send(do, **changed):
        response = client.post("/sources/new/", {**form, **changed, "do": do})
        form.update(changed)
        if response.status_code != 302:
            found = re.findall(r'name="(previewed|tool)" value="([^"]+)"', unescape(response.content.decode()))
            form.update({name: [value for each, value in found if each == name] for name, _ in found})
        return response

    return send


def test_only_what_was_previewed_is_added(add):
    assert add("add").status_code == 422
    assert add("add", base_url="https://elsewhere.example").status_code == 422
    assert not Source.objects.filter(name="shop").exists()
    chosen = {"level:0": "safe", "on:0": "on", "level:1": "dangerous"}
    assert add("add", **chosen).status_code == 302
    assert set(Tool.objects.filter(source__name="shop", enabled=True).values_list("name", flat=True)) == {"list_orders"}


def test_lower_level_needs_a_reason_before_the_source_is_added(add):
    add("preview")
    chosen = {"level:0": "safe", "level:1": "cautious"}
    refused = add("add", **chosen)
    assert refused.status_code == 422 and 'id="id_reason_error"' in refused.content.decode()
    assert not Source.objects.filter(name="shop").exists()
    assert add("add", **chosen, reason="A test shop").status_code == 302
    assert Tool.objects.get(name="drop_orders").level_override == "cautious"
    settings = Source.objects.get(name="shop").tool_settings
    assert len(settings["drop_orders"]["digest"]) == 64 and "digest" not in settings["list_orders"]


def test_choices_for_a_name_with_a_quote_are_kept_and_stored(add):
    document = deepcopy(SHOP)
    document["paths"]["/orders"]["delete"]["operationId"] = name = 'drop "all"\norders'
    chosen = {"level:0": "cautious", "level:1": "cautious", "on:1": "on", "reason": "A test shop"}
    add("preview", kept_document=json.dumps(document))
    kept = add("preview", **chosen, timeout="0").context["kept_choices"]
    assert {**chosen, "tool": ANY}.items() <= dict(kept).items()
    add("preview", timeout="30")
    assert add("add").status_code == 302
    tool = imported_tool(name)
    assert (tool.enabled, tool.level_override) == (True, "cautious")
    tool = Tool.objects.get(name="list_orders")
    assert (tool.enabled, tool.level_override) == (False, "cautious")


def test_taken_name_is_refused_beside_the_preview(shop, add):
    page = add("preview").content.decode()
    assert 'id="id_name_error"' in page and "2 tools" in page


@pytest.mark.parametrize(
    ("digest", "level", "chosen", "kept"),
    [
        ("a" * 16, "dangerous", "safe", "safe"),
        ("b" * 16, "dangerous", "safe", "cautious"),
        ("b" * 16, "safe", "dangerous", "dangerous"),
        ("a" * 16, "dangerous", "dangerous", "cautious"),
    ],
    ids=["lowered", "lowered for another tool", "raised for another tool", "not chosen"],
)
def test_chosen_level_is_kept(digest, level, chosen, kept):
    tool = OfferedTool("drop", "Drops.", "cautious", "", "new", "drop", "a" * 64)
    sent = QueryDict(mutable=True)
    sent.update({"tool": f"{digest}:{level}:drop", "level:0": chosen})
    [choice] = ChoicesForm([tool], "", sent).choices
    assert (choice.level, choice.enabled) == (kept, False)


def test_disabled_source_cannot_be_synchronised_from_the_list(shop, admin, client):
    assert "/sources/shop/sync/" in client.get("/sources/").content.decode()
    update_source(shop, {"enabled": False}, by=admin)
    assert "/sources/shop/sync/" not in client.get("/sources/").content.decode()


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, "a\nb\n"),
        ({"document_url": "https://shop.example/openapi.json"}, None),
        ({"kind": "mcp", "url": "https://wiki.example/mcp"}, None),
        ({"drop_document": "on"}, None),
    ],
    ids=["kept", "replaced by a URL", "of another kind", "removed"],
)
def test_uploaded_document_is_kept(changed, kept):
    form = NewSourceForm({"name": "shop", "kind": "openapi", "timeout": "30", "kept_document": "a\r\nb\r\n", **changed})
    assert form.is_valid() and form.values().get("document") == kept


def test_fields_of_other_types_are_ignored(settings):
    settings.TOOLGATE_STDIO_COMMANDS = ["uvx"]
    sent = {"url": "https://wiki.example/mcp", "headers": "no pair", "command": "uvx\nwiki", "env": "A=b"}
    form = NewSourceForm({"name": "wiki", "kind": "program", "timeout": "30", "kept_document": "{}", **sent})
    assert form.is_valid()
    common = {"name": "wiki", "timeout": 30, "trusted": False}
    assert form.values() == {**common, "kind": "mcp", "command": ["uvx", "wiki"], "env": {"A": "b"}}
    missing = NewSourceForm({"name": "wiki", "kind": "mcp", "timeout": "30", "command": "uvx"})
    assert set(missing.errors) == {"url"}


@pytest.mark.parametrize("programs", [[], ["uvx"]])
def test_form_says_first_what_the_installation_allows(programs, settings):
    settings.TOOLGATE_STDIO_COMMANDS, settings.TOOLGATE_EGRESS_ALLOW = programs, ["wiki.internal"]
    disabled = [each.data["value"] for each in NewSourceForm()["kind"].subwidgets if "disabled" in each.data["attrs"]]
    assert disabled == ([] if programs else ["program"])
    assert "wiki.internal" in address_limit() and ("uvx" in program_limit()) == bool(programs)


def test_settings_page_has_the_fields_of_the_type(shop, client):
    page = client.get("/sources/shop/")
    assert set(page.context["form"].fields) == {
        *("document_url", "document", "base_url", "only", "headers", "query", "timeout", "trusted")
    }


def test_preview_counts_tools_that_run_unasked(add):
    document = deepcopy(SHOP)
    document["paths"]["/orders"]["post"] = document["paths"]["/orders"]["get"] | {"operationId": "add_order"}
    shown = add("preview", kept_document=json.dumps(document)).context["choices"]
    assert dict(shown.enabled_by_level)[SafetyLevel.CAUTIOUS] == ["add_order"]


def test_new_document_replaces_the_stored_one(shop, client):
    form = {"timeout": "30", "headers": "Authorization: ••••"}
    assert client.post("/sources/shop/change/", form).status_code == 302
    shop.refresh_from_db()
    assert shop.document == VALUES["document"]
    upload = SimpleUploadedFile("shop.json", json.dumps({**SHOP, "paths": {}}).encode())
    assert client.post("/sources/shop/change/", {**form, "document": upload}).status_code == 302
    shop.refresh_from_db()
    assert json.loads(shop.document)["paths"] == {}
