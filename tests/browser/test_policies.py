"""Policy editor in the browser: live summary, warnings at fields, and fields that depend on the outcome."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PageAs

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_summary_follows_input(admin, catalog, page_as: PageAs):
    """The policy is then created, and moved by keyboard."""
    page = page_as(admin)
    page.goto("/policies/new/")
    page.get_by_label("Name", exact=True).fill("Large payments")
    page.get_by_label("Tool", exact=True).fill("send_*")
    page.get_by_label("Argument 1").fill("amount")
    page.get_by_label("Comparison").first.select_option("greater_than")
    page.get_by_label("Value", exact=True).first.fill("much")
    expect(page.locator("#sentence")).to_contain_text("This must be a number.")
    page.get_by_label("Value", exact=True).first.fill("1000")
    page.get_by_label("Number of approvals").first.fill("2")
    expect(page.locator("#sentence .saying")).to_have_text(
        "Calls of send_* where amount is greater than 1000 need approval by 2 reviewers within 24 h."
    )
    expect(page.locator("#figures")).to_contain_text("It matches 0 of 0 past calls.")
    page.get_by_role("button", name="Create policy").click()
    expect(page.locator("#rules > li").first).to_contain_text("Large payments")
    page.get_by_role("button", name="Move down: Large payments").press("Enter")
    expect(page.locator("#rules > li").nth(1)).to_contain_text("Large payments")


def test_outcome_follows_the_form_of_the_tool(admin, catalog, page_as: PageAs):
    """Errors wait until the form is sent; the summary of them leads to the field."""
    page = page_as(admin)
    page.goto("/policies/simulator/")
    page.get_by_label("Tool", exact=True).select_option("write_file")
    page.locator("#f-path").fill("a")
    expect(page.locator("#found")).to_contain_text("refused before any policy")
    expect(page.locator("#problem")).to_have_count(0)
    page.locator("#f-content").fill("x")
    expect(page.locator("#found")).to_contain_text("The call needs approval")
    page.locator("#s-requester").fill("nobody")
    page.get_by_role("button", name="Show outcome").click()
    expect(page.locator("#s-requester")).to_be_focused()
    page.get_by_role("link", name="Requester").click()
    expect(page.locator("#s-requester")).to_be_focused()


@pytest.mark.layout
def test_warnings_appear_at_their_fields_while_typing(admin, catalog, page_as: PageAs):
    """They disappear when the name is fixed; rows keep their own, also after an empty row."""
    page = page_as(admin)
    page.goto("/policies/new/")
    with page.expect_navigation():
        page.get_by_role("button", name="Add a row").press("Enter")
    tool, rows = page.get_by_label("Tool", exact=True), page.get_by_label(re.compile("^Argument [0-9]"))
    tool.fill("write_fil")
    expect(tool).to_have_accessible_description(re.compile("matches no tool at present. Did you mean write_file"))
    tool.fill("write_file")
    expect(page.locator("#warn-tool")).to_be_hidden()
    rows.nth(0).fill("path")
    page.get_by_label("Value", exact=True).nth(0).fill("a")
    with page.expect_navigation():
        page.get_by_role("button", name="Add a row").press("Enter")
    rows.nth(0).fill("")
    page.get_by_label("Value", exact=True).nth(0).fill("")
    rows.nth(1).fill("contnt")
    expect(rows.nth(1)).to_have_accessible_description(re.compile("has an argument contnt. Did you mean content"))
    expect(rows.nth(0)).to_have_accessible_description("")
    rows.nth(1).fill("content")
    expect(page.locator("#warn-row-1-path")).to_be_hidden()


@pytest.mark.layout
def test_only_fields_of_the_outcome_are_shown(admin, catalog, page_as: PageAs):
    """Fields with errors are shown anyway."""
    page = page_as(admin)
    page.goto("/policies/new/")
    people, message = page.locator("#people"), page.get_by_label("Message to the agent")
    minutes, other = page.get_by_label("Minutes to answer"), page.get_by_label("Group to escalate to")
    for part, shown in ((people, True), (minutes, True), (other, False), (message, False)):
        expect(part).to_be_visible(visible=shown)
    page.get_by_label("If nobody answers").select_option("escalate")
    expect(other).to_be_visible()
    minutes.fill("soon")
    page.get_by_role("radio", name="Calls are blocked").check()
    for part, shown in ((people, False), (minutes, False), (other, False), (message, True)):
        expect(part).to_be_visible(visible=shown)
    page.get_by_label("Name", exact=True).fill("Never")
    page.get_by_role("button", name="Create policy").click()
    expect(minutes).to_be_visible()
