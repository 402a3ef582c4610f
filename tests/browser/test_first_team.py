"""The first team of an empty installation, from the first sign-in to the first approved call, as `docs/first-team.md`.

The administrator is made on the command line; the agent is a program. Everything else is done in the browser.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.core.management import call_command
from django.test import Client
from playwright.sync_api import Page, expect

from catalog.core import clock
from catalog.models import Source
from tests.browser import screenshots
from tests.browser.conftest import PageAs, press_approve
from tests.catalog.connections.oauth_client import OAuthClient
from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
TOTP_SECONDS = 30


@pytest.fixture
def served(
    transactional_db: None, catalog: None, make_serving: MakeServing, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[Serving]:
    """A process that serves an empty installation: no tools but those for planning, and one administrator."""
    Source.objects.filter(name__startswith="catalog.toolsets").update(enabled=False)
    settings.PASSWORD_HASHERS = settings.PASSWORD_HASHERS[1:]  # the process hashes as the product does
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "the-first-password")
    call_command("createsuperuser", interactive=False, username="noor", email="noor@example.org", verbosity=0)
    process = make_serving(
        TOOLGATE_TOOLS="",
        TOOLGATE_UNDO_SECONDS="1",
        TOOLGATE_LEASE_SECONDS="30",
        TOOLGATE_SECOND_FACTOR_ROLES="reviewer",
    )
    process.start()
    eventually(process.url, what="the server")
    yield process
    process.kill()


def picture(page: Page, name: str) -> None:
    """Picture the page for the guide, if pictures are taken."""
    if screenshots.FOLDER:
        screenshots.take_pictures(page, name, whole=False)


def sign_in(page: Page, password: str) -> None:
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def call(address: str, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool as an MCP client does, and return the structured result."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    answer = httpx.post(address, json=message, headers=headers, timeout=90)
    found = re.search(r"\{.*\}", answer.text)
    assert answer.status_code == 200 and found, answer.text
    content: dict[str, Any] = json.loads(found[0])["result"]["structuredContent"]
    return content


def connect(page: Page, address: str) -> str:
    """Connect a client that has opened the consent page in this browser; return its access token."""
    client = OAuthClient.registered(client_name="Claude Code")
    page.goto(client.address(resource=f"{address}/mcp"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Connect Claude Code?")
    seen = page.locator("#outlook-now > p")
    expect(seen).to_contain_text("wait for 1 reviewer")
    picture(page, "consent")
    page.get_by_label("Safe only").check()
    expect(seen).not_to_contain_text("wait for 1 reviewer")
    page.get_by_label("Every level").check()
    expect(seen).to_contain_text("wait for 1 reviewer")
    with page.expect_request(lambda request: request.url.startswith(client.redirect_uri)) as sent:
        page.get_by_role("button", name="Allow").click()
    client.http = Client(headers={"host": urlsplit(address).netloc})
    client.sent = dict(parse_qsl(urlsplit(sent.value.url).query))
    return str(client.exchange(resource=f"{address}/mcp").json()["access_token"])


def test_first_team_approves_its_first_call(window_of: PageAs, served: Serving):
    address = str(served.url())
    admin, reviewer = window_of(), window_of()
    admin.goto("/")
    admin.get_by_label("Username").fill("noor")
    sign_in(admin, "the-first-password")
    expect(admin.get_by_text("1 of 7 done")).to_be_visible()
    picture(admin, "first-steps")
    admin.get_by_role("link", name="Invite person").click()
    admin.get_by_label("Username").fill("rosa")
    admin.get_by_label("First name").fill("Rosa")
    admin.get_by_role("checkbox", name="Reviewer").check()
    admin.get_by_role("button", name="Invite person").click()
    expect(admin.get_by_role("heading", level=1)).to_contain_text("Link to hand over")
    link = re.search(r"http\S+", admin.locator("#link-text").inner_text())
    assert link is not None

    reviewer.goto(link[0])
    reviewer.get_by_label("Password", exact=True).fill("the-second-password")
    reviewer.get_by_label("The same password again").fill("the-second-password")
    reviewer.get_by_role("button", name="Set password").click()
    reviewer.get_by_role("link", name="Sign in").click()
    expect(reviewer.get_by_label("Username")).to_have_value("rosa")
    sign_in(reviewer, "the-second-password")
    reviewer.get_by_role("link", name="Set up app").click()
    picture(reviewer, "second-factor")
    key = reviewer.locator("#secret").inner_text().replace(" ", "")
    step = int(clock.now().timestamp()) // TOTP_SECONDS
    reviewer.get_by_label("Code that the app shows").fill(format_hotp_value(hotp_value(key, step)))
    reviewer.get_by_role("button", name="Set up app").click()
    expect(reviewer.get_by_role("heading", level=1)).to_contain_text("Recovery codes")
    reviewer.get_by_role("link", name="Done, continue").click()
    expect(reviewer.get_by_text("2 of 7 done")).to_be_visible()

    admin.goto("/")
    admin.get_by_role("link", name="Open sources").click()
    admin.locator("li", has_text="Workspace files").get_by_role("button", name="Enable").click()
    expect(admin.get_by_text("Enabled Workspace.")).to_be_visible()
    admin.goto("/")
    admin.locator("main").get_by_role("link", name="Connect an agent").first.click()
    expect(admin.locator("#sign-in")).to_contain_text(f"{address}/mcp")
    token = connect(admin, address)
    held = call(f"{address}/mcp", token, "write_file", path="notes/hello.md", content="Hello.\n")
    assert held["status"] == "pending_approval"

    reviewer.goto(f"/approvals/?item={held['approval_id']}")
    expect(reviewer.locator("#detail h1")).to_contain_text("notes/hello.md")
    picture(reviewer, "approval")
    press_approve(reviewer)
    eventually((served.effects / "workspace" / "notes" / "hello.md").exists, what="the file")
    result = call(f"{address}/mcp", token, "approval_result", approval_id=held["approval_id"], wait_seconds=30)
    assert result["path"] == "notes/hello.md"
    admin.goto("/")
    expect(admin.get_by_text("First steps")).to_have_count(0)
