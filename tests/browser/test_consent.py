"""A person connects an agent on a phone without JavaScript: sees the outlook, narrows it, and allows."""

from urllib.parse import urlsplit

import pytest
from django.test import Client
from playwright.sync_api import expect

from catalog.models import ApiToken
from tests.browser.conftest import PageAs
from tests.catalog.connections.oauth_client import OAuthClient

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_an_agent_is_narrowed_and_allowed_without_javascript(ada, stage, live_server, page_as: PageAs):
    page = page_as(ada, java_script_enabled=False, viewport={"width": 390, "height": 844})
    client = OAuthClient.registered(client_name="Claude")
    page.goto(client.address(resource=f"{live_server.url}/mcp"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Connect Claude?")
    dangerous = page.locator("#outlook tr", has_text="Dangerous").locator("td").nth(1)
    expect(dangerous).not_to_have_text("0")
    page.get_by_label("Safe and cautious").check()
    page.get_by_role("button", name="Show what this changes").click()
    expect(dangerous).to_have_text("0")
    expect(page.get_by_label("Safe and cautious")).to_be_checked()
    with page.expect_request(lambda request: request.url.startswith(client.redirect_uri)) as sent:
        page.get_by_role("button", name="Allow").click()
    client.http = Client(headers={"host": urlsplit(live_server.url).netloc})
    client.sent = dict(pair.split("=") for pair in urlsplit(sent.value.url).query.split("&"))
    answer = client.exchange(resource=f"{live_server.url}/mcp")
    assert answer.status_code == 200, answer.content
    assert ApiToken.objects.get().limits == {"max_level": "cautious"}
