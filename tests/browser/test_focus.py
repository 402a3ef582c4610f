"""Focus: in the field that comes next, never under a bar, and always to be seen (WCAG 2.4.7, 2.4.11)."""

import pytest
from playwright.sync_api import expect

from tests.approvals.factories import ask
from tests.browser.conftest import PageAs
from tests.browser.desk import open_inbox
from tests.builders import make_plan, work_off, write_step

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


@pytest.mark.usefixtures("catalog", "workspace")
def test_an_edit_begins_in_its_first_field_and_goes_on_where_it_was(ada, rosa, page_as: PageAs):
    """Checked from a field, the cursor stays there; who leaves it is at the heading again."""
    work_off(make_plan(ada, write_step(1, "note.txt", "hello\n")))
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("e")
    expect(page.get_by_label("path")).to_be_focused()
    page.get_by_label("content").fill("moon\n")
    page.locator("#editing").evaluate("form => form.dataset.before = ''")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#editing:not([data-before])")).to_be_visible()
    expect(page.locator("#edited")).to_contain_text("moon")
    expect(page.get_by_label("content")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("#effect")).to_be_visible()
    expect(page.locator("#d-h")).to_be_focused()


def test_what_came_can_be_pressed_at_once(ada, rosa, page_as: PageAs):
    """However fast the hand: a link that has just come is followed as any other, not by opening the page anew."""
    page = page_as(rosa)
    open_inbox(page, f"?item={ask(ada).public_id}")
    page.evaluate("""document.addEventListener("htmx:afterSwap",
        () => setTimeout(() => document.querySelector("[data-leave]").click()), {once: true})""")
    page.keyboard.press("e")
    expect(page.locator("#effect")).to_be_visible()
    expect(page.locator("#d-h")).to_be_focused()
