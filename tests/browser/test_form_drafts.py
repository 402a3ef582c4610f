"""Drafts of forms in the browser: kept through a reload but for secrets, gone when sent, discarded or a week old."""

from datetime import timedelta

import pytest
from playwright.sync_api import Page, Route, expect

from catalog.core import clock
from tests.browser.conftest import PageAs

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
STORED = "Object.entries(localStorage).filter(([key]) => key.includes('draft')).map(([, value]) => value).join()"


def fill(page: Page) -> None:
    """Fill in the form of a new HTTP tool, whose parameters come from the server, with a name that it refuses."""
    page.goto("/sources/http/new/")
    page.locator("#id_name").fill("readOrder")
    page.locator("#id_description").fill("Read it.")
    page.locator("#id_headers").fill("Authorization: Bearer s3cret-value")
    page.locator("#id_url").fill("https://shop.example/{id}")
    page.locator("[name='example:id']").fill("17")


def with_other_timeout(route: Route) -> None:
    """Answer as if somebody else had stored another timeout."""
    response = route.fetch()
    before, name, after = response.text().partition('name="timeout" value="')
    route.fulfill(response=response, body=f"{before}{name}6{after}")


def test_a_form_keeps_a_draft_without_secrets(admin, catalog, page_as: PageAs):
    page = page_as(admin)
    fill(page)
    page.route("**/new/", with_other_timeout, times=1)
    page.reload()
    note, name, create = (
        page.locator("[data-draft-note]"),
        page.locator("#id_name"),
        page.locator(".form-actions .primary"),
    )
    expect(note).to_contain_text("without secrets")
    expect(note).to_contain_text("check all fields")
    expect(page.locator("#id_timeout")).to_have_value("630")
    expect(name).to_have_value("readOrder")
    expect(page.locator("[name='example:id']")).to_have_value("17")  # it came after the address was restored
    expect(page.locator("#id_headers")).to_have_value("")
    assert "s3cret" not in page.evaluate(STORED)
    note.get_by_role("button", name="Discard").click()
    expect(name).to_have_value("")
    assert page.evaluate(STORED) == ""
    fill(page)
    create.click()
    expect(page.locator("#problem a")).to_have_attribute("href", "#id_name")
    assert "readOrder" in page.evaluate(STORED)
    name.fill("read_order")
    create.click()
    page.wait_for_url("**/tools/read_order/")
    assert page.evaluate(STORED) == ""


def test_a_draft_ends_after_a_week_even_where_nobody_is_signed_in(admin, catalog, page_as: PageAs):
    page = page_as(admin)
    page.goto("/sources/http/new/")
    page.locator("#id_name").press_sequentially("read")
    page.context.clear_cookies()
    page.goto("/sign-in/")
    assert "read" in page.evaluate(STORED)
    page.clock.set_fixed_time(clock.now() + timedelta(days=8))
    page.reload()
    assert page.evaluate(STORED) == ""


def test_drafts_of_another_person_are_removed(admin, page_as: PageAs):
    page = page_as(admin)
    page.goto("/help/")
    page.evaluate("localStorage.setItem('toolgate.draft.admin.lee/form.source', JSON.stringify({ at: Date.now() }))")
    page.reload()
    assert page.evaluate(STORED) == ""


@pytest.mark.layout
def test_what_the_server_counts_follows_a_restored_and_a_discarded_draft(ada, catalog, page_as: PageAs):
    page = page_as(ada)
    page.goto("/profile/tokens/new/")
    count = page.locator("[aria-labelledby=sees-h] .numeric")
    every_tool = count.inner_text()
    page.get_by_label("Safe only").check()
    expect(count).not_to_have_text(every_tool)
    safe_tools = count.inner_text()
    page.reload()
    expect(count).to_have_text(safe_tools)
    page.get_by_role("button", name="Discard").click()
    expect(count).to_have_text(every_tool)
