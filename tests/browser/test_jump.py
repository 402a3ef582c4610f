"""Jump by keyboard: the dialog opens from anywhere, results are chosen from the field, the focus comes back."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PageAs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


@pytest.mark.usefixtures("catalog")
def test_a_tool_is_opened_by_keyboard(ada, page_as: PageAs):
    page = page_as(ada)
    page.goto("/plans/")
    page.locator("[data-jump]").focus()
    page.keyboard.press("Control+k")
    field = page.locator("#jump-text")
    expect(field).to_be_focused()
    expect(page.locator("#jump-commands-1")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.locator("[data-jump]")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("file")
    expect(page.locator("#jump-count")).to_contain_text("result")
    expect(field).to_have_attribute("aria-activedescendant", "jump-tools-1")
    page.keyboard.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "jump-tools-2")
    name = page.locator("#jump-tools-2 .mono").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tools/{name}/")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.keyboard.press("Control+k")
    page.keyboard.type("polices")
    page.keyboard.press("Enter")  # faster than the results
    page.wait_for_url("**/policies/")
