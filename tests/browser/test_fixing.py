"""Writing a plan: one press mends a line of the text where it stands, as if it were typed."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PageAs
from tests.builders import step

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]
WHERE = """() => { const pj = document.getElementById("pj"), box = pj.parentElement; return [
    document.activeElement === pj, pj.value.slice(pj.selectionStart, pj.selectionEnd), scrollY, box.scrollLeft] }"""


def text_of(*steps: dict[str, Any]) -> str:
    """Return the text of a plan, with a character that scripts count as two, and as long as three windows."""
    lines = "\n" * 60 + ",\n".join(json.dumps(each) for each in steps)
    return f'{{"goal": "Try 😀 it", "steps": [{lines}\n], "budget": null}}'


def write(page: Page, text: str) -> None:
    """Put a text into the editor and wait until it was checked."""
    with page.expect_response("**/plans/new/"):
        page.locator("#pj").fill(text)


def test_a_fix_keeps_caret_and_scroll_and_lets_the_plan_start(ada, catalog, page_as: PageAs):
    """Each press edits its own line; what was selected still is, nothing has moved, and Ctrl+Z takes it back."""
    page, text = page_as(ada, viewport={"width": 1440, "height": 500}), text_of(step(1, "rendertext", dependencies=[9]))
    text = text.replace('"parameters": {}', '"parameters": {"template": "a", "values": {}}')
    page.goto("/plans/new/")
    write(page, text)
    page.evaluate("() => { scrollTo(0, 200); pj.setSelectionRange(pj.value.length - 7, pj.value.length - 3) }")
    before = page.evaluate(WHERE)[1:]
    for label, was, now in [("Remove 9", "[9]", "[]"), ("Use render_text", '"rendertext"', '"render_text"')]:
        text = text.replace(was, now)
        with page.expect_response("**/plans/new/"):
            page.get_by_role("button", name=label).evaluate("button => button.click()")
        expect(page.locator("#pj")).to_have_value(text)
        expect(page.get_by_role("button", name=label)).to_have_count(0)
        assert page.evaluate(WHERE) == [True, *before]
    expect(page.locator("#why")).to_have_text("No errors.")
    expect(page.locator("#start:not([aria-disabled])")).to_be_visible()
    page.keyboard.press("Control+z")
    expect(page.locator("#pj")).to_have_value(text.replace('"render_text"', '"rendertext"'))
    expect(page.get_by_role("button", name="Use render_text")).to_be_visible()


def test_a_text_that_was_changed_since_its_check_is_mended_by_the_server(ada, catalog, page_as: PageAs):
    """The place is looked for again: nothing else is overwritten, and what was typed meanwhile is kept."""
    page, text = page_as(ada), text_of(step(1, "rendertext"))
    page.goto("/plans/new/")
    write(page, text)
    button = page.get_by_role("button", name="Use render_text")
    expect(button).to_be_visible()
    text = text.replace("Try", "Try hard:")
    with page.expect_navigation():
        button.evaluate("(button, text) => { pj.value = text; button.click() }", text)
    expect(page.locator("#pj")).to_have_value(text.replace("rendertext", "render_text"))
