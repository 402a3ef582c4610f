"""REST of sources: adding, reading with masks, changing, previewing, synchronising; who may, and which programs."""

import json

import pytest

from approvals.models import AuditEntry
from catalog.inventory import held_changes
from catalog.models import Source, Tool
from catalog.sources.settings import read_secrets
from tests.plans.sources.conftest import SHOP, VALUES
from tests.rest import Rest, agent, wrong_paths

EMPTY: dict[str, list[str]] = {"added": [], "changed": [], "removed": [], "drifted": []}


@pytest.fixture
def rest(db, admin):
    """Return the administrator's client, which has added the source `shop`."""
    rest = Rest(admin)
    made = rest.post("sources/", VALUES)
    assert made.status_code == 201, made.content
    return rest


def test_source_is_added_with_masks_and_synchronised(rest):
    body = rest.get("sources/shop/").json()
    assert (body["status"], body["tools"], body["headers"]) == ("connecting", [], {"Authorization": "••••"})
    assert rest.post("sources/shop/sync/").json() == {**EMPTY, "added": ["list_orders", "drop_orders"]}
    assert rest.post("sources/shop/sync/").json() == EMPTY
    body = rest.get("sources/shop/").json()
    assert (body["status"], sorted(body["tools"]), body["drifted"]) == (
        "connected",
        ["drop_orders", "list_orders"],
        [],
    )
    assert [each["name"] for each in rest.get("sources/").json()["results"]] == ["shop"]
    assert {each["name"] for each in rest.get("tools/", source="shop").json()["results"]} == {
        "list_orders",
        "drop_orders",
    }


def test_masks_keep_what_is_stored(rest):
    changes = [
        {"trusted": True},
        {"headers": {"Authorization": "••••", "X-Key": "other"}},
        {"headers": {"X-Key": "••••"}},
    ]
    kept = []
    for change in changes:
        assert rest.patch("sources/shop/", change).status_code == 200
        kept.append(read_secrets(Source.objects.get())["headers"])
    token = VALUES["headers"]
    assert kept == [token, {**token, "X-Key": "other"}, {"X-Key": "other"}]
    refused = rest.patch("sources/shop/", {"headers": {"X-New": "••••"}})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["headers.X-New"])


@pytest.mark.parametrize("field", ["url", "base_url"])
def test_stored_headers_are_not_sent_to_another_server(db, admin, field):
    rest = Rest(admin)
    first = {"document": "", "url": "https://shop.example/openapi.json", "base_url": "https://shop.example/v1"}
    assert rest.post("sources/", {**VALUES, **first}).status_code == 201
    other = {field: "https://evil.example/x"}
    for headers in ({}, {"headers": {"Authorization": "••••", "X-Key": "new"}}):
        refused = rest.patch("sources/shop/", {**other, **headers})
        assert (refused.status_code, wrong_paths(refused)) == (422, ["headers"])
    assert rest.patch("sources/shop/", {field: "https://shop.example/v2"}).status_code == 200
    assert rest.patch("sources/shop/", {**other, "headers": {"Authorization": "Bearer new"}}).status_code == 200


def test_stored_headers_are_not_sent_to_the_server_of_another_document(db, admin):
    rest, document = Rest(admin), json.loads(VALUES["document"])
    rest.post("sources/", {**VALUES, "base_url": ""})
    other = json.dumps({**document, "servers": [{"url": "https://evil.example/"}]})
    refused = rest.patch("sources/shop/", {"document": other})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["headers"])
    assert rest.patch("sources/shop/", {"document": json.dumps({**document, "paths": {}})}).status_code == 200


def hold_changes(rest, base_url="https://shop.example/v2"):
    """Let both tools go elsewhere, which is held."""
    rest.post("sources/shop/sync/")
    rest.patch("sources/shop/", {"base_url": base_url, "headers": VALUES["headers"]})
    assert len(rest.post("sources/shop/sync/").json()["drifted"]) == 2


def test_all_held_changes_of_a_source_are_accepted_at_once(rest):
    hold_changes(rest)
    held = rest.get("sources/shop/").json()["held"]
    assert sorted(held) == ["drop_orders", "list_orders"]
    refused = rest.post("sources/shop/accept/", {"held": {**held, "list_orders": "0" * 64}, "reason": "New address"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["held"])
    assert rest.get("sources/shop/").json()["held"] == held
    accepted = rest.post("sources/shop/accept/", {"held": held, "reason": "New address"})
    assert (accepted.status_code, accepted.json()["drifted"]) == (200, [])
    assert AuditEntry.objects.filter(action="tool.accepted").count() == 2


def test_version_number_does_not_accept_another_server(rest):
    hold_changes(rest, base_url="https://elsewhere.example")
    number = rest.get("tools/list_orders/").json()["held_version"]
    refused = rest.patch("tools/list_orders/", {"accept_version": number, "reason": "Fine"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["accept_version"])
    assert "sources/shop/accept/" in refused.json()["errors"][0]["message"]


def test_refusal_says_how_many_changes_were_accepted_before_it(rest, monkeypatch):
    hold_changes(rest)
    monkeypatch.setattr(held_changes, "TOOLS_AT_ONCE", 1)
    held = rest.get("sources/shop/").json()["held"]
    refused = rest.post("sources/shop/accept/", {"held": {**held, "list_orders": "0" * 64}, "reason": "New address"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["held"])
    assert refused.json()["errors"][0]["message"].endswith("Accepted before it: 1.")
    assert list(rest.get("sources/shop/").json()["held"]) == ["list_orders"]


def test_no_secret_leaves(rest):
    rest.post("sources/shop/sync/")
    rest.patch("sources/shop/", {"headers": {"Authorization": "Bearer s3cret-2"}})
    answers = [rest.get(path).content.decode() for path in ("sources/", "sources/shop/", "tools/drop_orders/")]
    logged = json.dumps(list(AuditEntry.objects.values_list("details", flat=True)), default=str)
    stored = json.dumps(list(Source.objects.values()), default=str)
    assert all("s3cret" not in text for text in (*answers, logged, stored))


def test_preview_shows_tools_and_stores_nothing(db, admin):
    broken = {"post": {"operationId": "files", "requestBody": {"required": True, "content": {"image/png": {}}}}}
    document = {**SHOP, "paths": {**SHOP["paths"], "/files": broken}}
    body = Rest(admin).post("sources/preview/", {**VALUES, "document": json.dumps(document)}).json()
    assert [(each["name"], each["safety_level"], each["change"]) for each in body["tools"]] == [
        ("list_orders", "safe", "new"),
        ("drop_orders", "dangerous", "new"),
    ]
    assert len(body["problems"]) == 1 and "image/png" in body["problems"][0]
    assert not Source.objects.filter(name="shop").exists() and not Tool.objects.filter(name="list_orders").exists()


def test_preview_of_a_known_source_names_the_changes(rest):
    rest.post("sources/shop/sync/")
    only = {"/orders": {"get": {**SHOP["paths"]["/orders"]["get"], "summary": "Other words"}}}
    body = rest.post("sources/preview/", {**VALUES, "document": json.dumps({**SHOP, "paths": only})}).json()
    assert {each["name"]: each["change"] for each in body["tools"]} == {
        "list_orders": "changed",
        "drop_orders": "removed",
    }
    assert sorted(rest.get("sources/shop/").json()["tools"]) == ["drop_orders", "list_orders"]


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "openapi", "document": '{"openapi": "2.0"}'},
        {"kind": "openapi", "url": "http://127.0.0.1:9/openapi.json"},
        {"kind": "openapi", "url": "http://169.254.169.254/latest/meta-data"},
        {"kind": "mcp", "url": "http://10.0.0.1:8000/mcp"},
    ],
)
def test_failing_upstream_is_a_problem_of_the_preview_and_502_of_the_synchronisation(db, admin, body):
    rest, body = Rest(admin), {"name": "bad", **body}
    document = rest.post("sources/preview/", body).json()
    assert document["tools"] == [] and len(document["problems"]) == 1
    assert rest.post("sources/", body).status_code == 201
    answer = rest.post("sources/bad/sync/")
    assert answer.status_code == 502, answer.content
    assert rest.get("sources/bad/").json()["status"] == "failing"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "Shop"}, "name"),
        ({"name": "http"}, "name"),
        ({"kind": "python"}, "kind"),
        ({"url": "https://shop.example/openapi.json"}, "url"),
        ({"document": ""}, "url"),
        ({"command": ["npx"]}, "command"),
        ({"env": {"A": "b"}}, "env"),
        ({"headers": {"Host": "evil.example"}}, "headers.Host"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers.A"),
        ({"headers": {"A": "b "}}, "headers.A"),
        ({"headers": {"A": "ü"}}, "headers.A"),
        ({"base_url": "ftp://shop.example"}, "base_url"),
        ({"base_url": "https://user:word@shop.example"}, "base_url"),
        ({"timeout": 301}, "timeout"),
        ({"tools": {"x": {"safety_level": "harmless"}}}, "tools.x.safety_level"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_bad_source_names_its_field(db, admin, change, path):
    for place in ("sources/", "sources/preview/"):
        answer = Rest(admin).post(place, {**VALUES, **change})
        assert (answer.status_code, wrong_paths(answer)) == (422, [path])


def test_only_listed_programs_are_started(db, admin, settings, offer):
    rest, body = Rest(admin), {"name": "wiki", "kind": "mcp", "command": offer.command}
    for place in ("sources/", "sources/preview/"):
        answer = rest.post(place, body)
        assert (answer.status_code, wrong_paths(answer)) == (422, ["command"])
    settings.TOOLGATE_STDIO_COMMANDS = [offer.command[0]]
    document = rest.post("sources/preview/", body).json()
    assert [each["name"] for each in document["tools"]] == ["read_page", "drop_page"]
    settings.TOOLGATE_STDIO_ENVIRONMENT = ["WIKI_*", "LDAP_URL"]
    given = {"WIKI_API_KEY": "x", "acme_token": "x", "LDAP_URL": "x", "WIKI_HOME": "x"}
    assert rest.post("sources/preview/", {**body, "env": given}).status_code == 200
    for name in ("PATH", "LD_PRELOAD", "DOTNET_STARTUP_HOOKS", "OPENSSL_CONF", "GCONV_PATH", "HOME", "LDAP_URLS"):
        answer = rest.post("sources/preview/", {**body, "env": {name: "x", "LDAP_URL": "x"}})
        assert (answer.status_code, wrong_paths(answer)) == (422, [f"env.{name}"])


def test_sources_are_for_administrators(rest, ada, rosa, admin):
    for other in (Rest(ada), Rest(rosa), agent(admin), Rest(admin, "tools:read")):
        for path in ("sources/", "sources/shop/"):
            assert other.get(path).status_code == 403
        assert other.post("sources/preview/", VALUES).status_code == 403
        assert other.delete("sources/shop/").status_code == 403


def test_ended_source_keeps_its_tools_disabled(rest):
    rest.post("sources/shop/sync/")
    assert rest.delete("sources/shop/").json()["status"] == "disabled"
    assert rest.get("tools/drop_orders/").json()["status"] == "disabled"
    assert rest.patch("sources/shop/", {"enabled": True}).json()["status"] == "connected"
    assert rest.get("tools/drop_orders/").json()["status"] == "ready"


def test_name_is_taken_once_and_a_repeated_request_is_answered_again(rest):
    assert rest.post("sources/", VALUES).status_code == 409
    other = {**VALUES, "name": "shop2"}
    first, second = rest.post("sources/", other, key="k1"), rest.post("sources/", other, key="k1")
    assert (first.status_code, second.json()) == (201, first.json())


def test_held_version_is_listed_with_its_difference(rest):
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer"}}
    read = {**SHOP["paths"]["/orders"]["get"], "parameters": [limit]}
    document = {**SHOP, "paths": {"/orders": {"get": read}}}
    rest.post("sources/shop/sync/")
    rest.patch("sources/shop/", {"document": json.dumps(document)})
    rest.post("sources/shop/sync/")
    held, current = rest.get("tools/list_orders/versions/").json()["results"]
    assert (held["number"], held["status"], held["is_current"]) == (2, "held", False)
    assert held["changes"][-1] == {"kind": "add", "subject": "limit", "text": "added: integer, optional"}
    assert (current["number"], current["status"], current["changes"]) == (1, "current", None)
    digests = rest.get("sources/shop/").json()["held"]
    rest.post("sources/shop/accept/", {"held": digests, "reason": "Looks right"})
    versions = rest.get("tools/list_orders/versions/").json()["results"]
    assert [each["status"] for each in versions] == ["current", "earlier"]


def test_call_of_a_removed_tool_says_that_its_source_removed_it(rest):
    document = {**SHOP, "paths": {"/orders": {"get": SHOP["paths"]["/orders"]["get"]}}}
    rest.post("sources/shop/sync/")
    rest.patch("sources/shop/", {"document": json.dumps(document)})
    rest.post("sources/shop/sync/")
    refused = rest.post("calls/", {"tool": "drop_orders", "arguments": {}})
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (409, "tool_disabled")
    assert "removed by its source shop" in refused.json()["detail"]
    assert rest.post("calls/", {"tool": "never_there", "arguments": {}}).status_code == 422
