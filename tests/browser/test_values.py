"""Reading a value of a plan: by the keyboard, and without scripts."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from plans.models import Plan
from tests.browser.conftest import PageAs
from tests.builders import act, make_plan, work_off

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
VALUE: Any = {"first": {"deep": [1, 2]}, "many": [{"name": f"row {number}"} for number in range(150)], "other": "end"}


@pytest.fixture
def plan(stage: Any, ada: Any) -> Plan:
    """A plan that stores an object and passes a part of it on."""
    return work_off(make_plan(ada, act(1, VALUE, expected_key="v"), act(2, "${v.results.0.other}", dependencies=[1])))


def test_a_value_is_read_by_the_keyboard(plan: Plan, ada: Any, page_as: PageAs) -> None:
    """Arrows move, fold and unfold; what a member holds comes when it is opened, and the focus goes on."""
    page = page_as(ada, permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"/plans/{plan.public_id}/values/v/")
    focused = page.locator(":focus")
    page.locator("#tree summary").first.focus()
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("deep")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tree details[open]")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(focused).to_contain_text("first")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("many")
    page.keyboard.press("ArrowRight")
    rest = page.locator("#tree [data-rest] a").last
    expect(rest).to_have_attribute("href", re.compile("from=100"))
    expect(focused).to_contain_text("many")
    rest.focus()
    page.keyboard.press("Enter")
    expect(focused).to_contain_text("100")
    expect(page.locator("#tree [data-rest] a[href*='from=']")).to_have_count(0)
    page.keyboard.press("End")
    expect(focused).to_contain_text("other")
    page.keyboard.press("Enter")
    expect(page.locator("#value-text")).to_have_text("end")
    page.locator("#copy-path").press("Enter")
    expect(page.locator("#announce")).not_to_be_empty()
    assert page.evaluate("navigator.clipboard.readText()") == "${v.results.0.other}"


def test_a_value_is_read_without_scripts(plan: Plan, ada: Any, page_as: PageAs) -> None:
    """From the plan to a value, its members, a table in another order, a search, the step that used it, and a file."""
    page = page_as(ada, java_script_enabled=False)
    page.goto(f"/plans/{plan.public_id}/")
    page.locator("#memory a").first.click()
    page.locator("#tree summary").filter(has_text="many").click()
    follow(page, "#tree details[open] [data-rest] a", re.compile("path=results.0.many"))
    page.get_by_role("navigation", name="Views of the value").get_by_role("link").first.click()
    follow(page, "thead a >> nth=1", re.compile("sort=1"))
    follow(page, "thead a >> nth=1", re.compile("sort=-1"))
    expect(page.locator("tbody tr").first).to_contain_text("row 99")
    page.locator("#q").fill("ROW 149")
    page.locator("#q").press("Enter")
    follow(page, "#hits a", re.compile("path=results.0.many.149.name"))
    expect(page.locator("#value-text")).to_have_text("row 149")
    with page.expect_download() as started:
        page.locator("#download").click()
    assert started.value.suggested_filename == "v.txt"
    follow(page, "#used a", re.compile("step=2"))
    follow(page, "#sp-input .was a", re.compile("path=results.0.other"))
    expect(page.locator("#value-text")).to_have_text("end")


def follow(page: Page, link: str, address: re.Pattern[str]) -> None:
    """Press a link and wait for the page at this address."""
    page.locator(link).first.click()
    expect(page).to_have_url(address)
