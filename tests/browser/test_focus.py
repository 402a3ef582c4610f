"""Where the focus is: in the field that comes next, never under a bar, and always to be seen (WCAG 2.4.7, 2.4.11)."""

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.builders import ask
from tests.browser.conftest import PageAs
from tests.browser.test_deciding import LONG, open_inbox
from tests.builders import make_plan, work_off, write_step

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
MOST_TABS = 90
COVERED = """() => {
    const at = document.activeElement;
    if (!at || at === document.body) return null;
    const box = at.getBoundingClientRect();
    const x = box.left + Math.min(box.width / 2, 20);
    const y = (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2;
    const top = document.elementFromPoint(x, y);
    const own = [at, at.closest("label"), at.closest("[data-item]")].filter(Boolean);
    const isSeen = top && own.some((each) => each.contains(top) || top.contains(each));
    const rings = [at, at.querySelector("rect"), at.nextElementSibling, at.parentElement, ...own].filter(Boolean);
    const hasRing = rings.some((each) => parseFloat(getComputedStyle(each).outlineWidth) >= 2
        && getComputedStyle(each).outlineStyle !== "none");
    return (isSeen ? "" : "covered ") + (hasRing || at.closest("svg") ? "" : "no ring ") + at.outerHTML.slice(0, 120);
}"""
"""Says of what has the focus whether something lies over it and whether a ring is drawn; null at the page's end."""


def faults(page: Page) -> list[str]:
    """Walk through the page with the tabulator; return what had the focus without being seen."""
    found = []
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        said = page.evaluate(COVERED)
        if said is None:
            break
        if said.startswith(("covered", "no ring")):
            found.append(said)
    return found


@pytest.mark.parametrize("size", [(390, 844), (640, 360), (1280, 720)])
@pytest.mark.usefixtures("catalog", "workspace")
def test_what_has_the_focus_is_seen(admin, ada, rosa, page_as: PageAs, size):
    """On phones under no tab bar and no decision bar, and in a window of 1280 by 720 at 200 %."""
    request = ask(ada, preview=LONG)
    plan = work_off(make_plan(ada, write_step(1)))
    window = {"viewport": {"width": size[0], "height": size[1]}}
    page = page_as(rosa, **window)
    open_inbox(page, f"?item={request.public_id}")
    assert faults(page) == []
    page = page_as(admin, **window)
    for path in ("/approvals/", "/policies/", "/policies/new/", "/approvals/grants/", f"/plans/{plan.public_id}/"):
        page.goto(path)
        assert faults(page) == [], path


def test_a_low_window_is_not_covered_by_the_bar(ada, rosa, page_as: PageAs):
    """It stands below the change, and is reached by reading."""
    request = ask(ada, preview=LONG)
    page = page_as(rosa, viewport={"width": 640, "height": 360})
    open_inbox(page, f"?item={request.public_id}")
    expect(page.locator("form.decide")).not_to_be_in_viewport()
    page.locator(".btn.go").scroll_into_view_if_needed()
    expect(page.locator("form.decide")).to_have_css("position", "static")


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
