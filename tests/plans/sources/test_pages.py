"""Pages of sources: the fields that are lines of text, and the acceptance of held changes."""

import re

import pytest

from catalog.inventory.sources import create_source, sync_source, update_source
from catalog.models import Tool
from catalog.sources.definitions import MAX_TOOLS
from catalog.sources.settings import read_secrets
from tests.plans.sources.conftest import VALUES


@pytest.fixture
def shop(db, admin, client):
    """Return an imported source; the administrator is signed in."""
    client.force_login(admin)
    made = create_source(VALUES, by=admin)
    sync_source(made)
    return made


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
    assert client.post("/sources/shop/accept/", shown()).status_code == 302
    assert not Tool.objects.exclude(held_version=None).exists()


def test_page_of_an_imported_tool_shows_its_request_and_leads_administrators_to_its_source(shop, ada, client):
    def links():
        text = client.get("/tools/drop_orders/").content.decode()
        assert "DELETE https://shop.example/orders" in text and "/sources/http/" not in text
        return text.count('href="/sources/shop/"')

    seen_by_administrator = links()
    client.force_login(ada)
    assert (seen_by_administrator, links()) == (1, 0)
