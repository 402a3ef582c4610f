"""Reading with the address as the only state, and what every page owes to small screens and to keyboards."""

import pytest
from playwright.sync_api import expect

from approvals.audit.log import AuditRecord, append_entry
from approvals.models import AuditEntry
from catalog.models import Tool
from tests.approvals.factories import ask
from tests.browser.conftest import PageAs

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


@pytest.mark.layout
def test_filters_live_in_the_address(rosa, catalog, page_as: PageAs):
    """Choosing adds to the history, typing does not; Back goes through the states."""
    page = page_as(rosa)
    page.goto("/tools/")
    page.locator(".filter summary", has_text="Safety").click()
    page.get_by_role("checkbox", name="Dangerous").check()
    expect(page).to_have_url("/tools/?safety_level=dangerous")
    dangerous = Tool.objects.filter(current_version__safety_level="dangerous").count()
    expect(page.locator("#count")).to_have_text(f"{dangerous} tools")
    expect(page.locator('label:has(input[value="finance"]) .check-note')).to_have_text("0")
    expect(page.get_by_role("checkbox", name="Dangerous")).to_be_focused()
    page.keyboard.press("/")
    page.locator("#q").press_sequentially("delete")
    expect(page).to_have_url("/tools/?q=delete&safety_level=dangerous")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator(".entry")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url("/tools/")
    expect(page.locator(".entry")).to_have_count(Tool.objects.count())
    expect(page.locator("#side")).to_be_visible()


@pytest.mark.layout
def test_schema_tabs_follow_the_arrows(rosa, catalog, page_as: PageAs):
    """The address too; copying takes what is shown."""
    page = page_as(rosa, permissions=["clipboard-read", "clipboard-write"])
    page.goto("/tools/write_file/")
    page.get_by_role("tab", name="OpenAI").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#sp-mcp")).to_be_visible()
    expect(page.locator("#sp-openai")).to_be_hidden()
    expect(page).to_have_url("/tools/write_file/?schema=mcp")
    page.locator("#sp-mcp").get_by_role("button", name="Copy").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    assert '"inputSchema"' in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.layout
def test_an_audit_entry_opens_and_the_chain_is_checked(admin, page_as: PageAs):
    """In place, without leaving the page."""
    entry = AuditEntry.objects.get(seq=append_entry(AuditRecord(action="tool.tested", by=admin, tool_name="x")))
    page = page_as(admin)
    page.goto("/audit/")
    expect(page.locator(f"#x-{entry.seq}")).to_be_hidden()
    page.locator(f"#e-{entry.seq} .entry-title").click()
    expect(page.locator(f"#x-{entry.seq}")).to_contain_text(entry.hash)
    page.get_by_role("button", name="Verify chain").click()
    expect(page.locator("#chain")).to_contain_text("Chain intact")


def test_signing_in_with_the_keyboard(ada, rosa, page_as: PageAs):
    """Reviewers who are needed come to what waits."""
    held = ask(ada)
    page = page_as()
    page.goto("/")
    expect(page.locator("#id_username")).to_be_focused()
    page.keyboard.type("rosa")
    page.keyboard.press("Tab")
    page.keyboard.type("secret-rosa")
    page.keyboard.press("Enter")
    expect(page.locator(f"#q-{held.public_id}")).to_be_visible()
    page.locator(".account-button").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in/")
