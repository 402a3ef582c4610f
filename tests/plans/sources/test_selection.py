"""Chosen operations and API keys of the query: over REST, on the page, by the command, and in calls."""

import json
from copy import deepcopy
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from approvals.models import AuditEntry
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source, update_source
from catalog.models import Source, Tool
from catalog.sources.settings import read_secrets, settings_of
from tests.plans.sources.conftest import SHOP, VALUES
from tests.rest import Rest, wrong_paths

KEY = "s3cret key&1"
KEYED = deepcopy(SHOP)
KEYED["security"] = [{"key": []}]
KEYED["components"] = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}}
KEYED["paths"]["/items"] = {"get": {"operationId": "list_items", "tags": ["items"]}}
WITH_KEY = {"name": "shop", "kind": "openapi", "document": json.dumps(KEYED), "query": {"api_key": KEY}}


def offered(source):
    """Return the names of the tools that a source offers now."""
    return set(Tool.objects.filter(source=source, registered=True).values_list("name", flat=True))


def test_choice_is_kept_for_later_synchronisations(db, admin):
    rest = Rest(admin)
    chosen = {**WITH_KEY, "only": {"tags": ["items"], "operations": ["nothing"]}}
    preview = rest.post("sources/preview/", chosen).json()
    assert [each["name"] for each in preview["tools"]] == ["list_items"] and len(preview["problems"]) == 1
    made = rest.post("sources/", {**chosen, "only": {"tags": ["items"], "paths": []}})
    assert (made.status_code, made.json()["only"]) == (201, {"tags": ["items"]})
    assert rest.post("sources/shop/sync/").json()["added"] == ["list_items"]
    assert rest.patch("sources/shop/", {"timeout": 20}).json()["only"] == {"tags": ["items"]}
    assert rest.post("sources/shop/sync/").json()["removed"] == []
    assert rest.patch("sources/shop/", {"only": {"paths": ["/orders"]}}).status_code == 200
    assert rest.post("sources/shop/sync/").json()["removed"] == ["list_items"]
    assert offered(Source.objects.get()) == {"list_orders", "drop_orders"}
    details = json.loads(AuditEntry.objects.filter(action="source.changed").latest("seq").details)
    assert details["changes"] == {"only": [{"tags": ["items"]}, {"paths": ["/orders"]}]}


@pytest.mark.parametrize(
    ("only", "path"),
    [
        ({"tags": "items"}, "only.tags"),
        ({"paths": ["orders"]}, "only.paths"),
        ({"names": ["x"]}, "only.names"),
        ({"operations": [""]}, "only.operations.0"),
        ([], "only"),
    ],
)
def test_choice_that_cannot_be_read_is_refused(db, admin, only, path):
    refused = Rest(admin).post("sources/", {**WITH_KEY, "only": only})
    assert (refused.status_code, wrong_paths(refused)) == (422, [path])
    if isinstance(only, dict):
        mcp = {"name": "wiki", "kind": "mcp", "url": "https://wiki.example/mcp", "only": {"tags": ["a"]}}
        assert wrong_paths(Rest(admin).post("sources/", mcp)) == ["only"]


def test_page_takes_choices_as_lines(client, admin, db):
    client.force_login(admin)
    create_source(VALUES, by=admin)
    form = {"only": "tag=a\r\npath=/b\noperation=GET /c", "query": f"api_key={KEY}", "timeout": "30"}
    assert client.post("/sources/shop/change/", form).status_code == 302
    source = Source.objects.get()
    assert source.only == {"tags": ["a"], "paths": ["/b"], "operations": ["GET /c"]}
    page = client.get("/sources/shop/").content.decode()
    assert "tag=a\npath=/b\noperation=GET /c" in page and "api_key=••••" in page and KEY not in page
    assert client.post("/sources/shop/change/", {**form, "only": "a"}).status_code == 422


def test_command_keeps_its_choice(db, admin, tmp_path):
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(KEYED))

    def imported(*options):
        out = StringIO()
        with pytest.raises(SystemExit):
            call_command("import_openapi", "shop", str(path), *options, stdout=out)
        return out.getvalue()

    assert "'api_key'" in imported("--only", "tag=items", "--only", "operation=list_orders")
    assert offered(Source.objects.get()) == {"list_items", "list_orders"}
    assert "'api_key'" not in imported("--query", f"api_key={KEY}")
    assert offered(Source.objects.get()) == {"list_items", "list_orders"}
    imported("--only", '{"paths": ["/orders"]}')
    assert offered(Source.objects.get()) == {"list_orders", "drop_orders"}
    with pytest.raises(CommandError, match=r"tag 'itmes'\.\nNothing was stored"):
        imported("--only", "tag=itmes")
    assert offered(Source.objects.get()) == {"list_orders", "drop_orders"}
    imported("--only", "{}")
    assert len(offered(Source.objects.get())) == 3
    with pytest.raises(CommandError, match="tag=NAME"):
        call_command("import_openapi", "shop", str(path), "--only", "items")


def test_key_of_the_query_is_masked_and_bound_to_its_server(db, admin):
    rest = Rest(admin)
    body = rest.post("sources/", WITH_KEY).json()
    source = Source.objects.get()
    assert body["query"] == {"api_key": "••••"} and KEY not in source.secrets
    assert settings_of(source).query == {"api_key": KEY} and KEY not in repr(settings_of(source))
    assert rest.patch("sources/shop/", {"query": {"api_key": "••••", "v": "2"}}).status_code == 200
    source.refresh_from_db()
    assert read_secrets(source)["query"] == {"api_key": KEY, "v": "2"}
    refused = rest.patch("sources/shop/", {"base_url": "https://evil.example"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["query"])
    changed = {"base_url": "https://other.example", "query": {"api_key": "new"}}
    assert rest.patch("sources/shop/", changed).status_code == 200
    wrong = rest.patch("sources/shop/", {"query": {"a b": "x"}})
    assert (wrong.status_code, wrong_paths(wrong)) == (422, ["query.a b"])
    assert KEY not in json.dumps(list(AuditEntry.objects.values_list("details", flat=True)))


def test_document_that_names_another_server_does_not_get_the_key(db, admin):
    source = create_source(WITH_KEY, by=admin)
    sync_source(source)
    moved = {**KEYED, "servers": [{"url": "https://evil.example"}]}
    Source.objects.filter(pk=source.pk).update(document=json.dumps(moved))
    assert Rest(admin).post("sources/shop/sync/").status_code == 502
    update_source(source, {"enabled": False}, by=admin)
