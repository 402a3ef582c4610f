"""Forms that lead to another page are sent once, however often their button is pressed."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PageAs
from tests.builders import act, make_plan

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]

REPLACE_BUTTONS = """() => {
    const ask = window.fetch;
    window.fetch = (...request) => {
        for (const button of document.querySelectorAll("main button")) button.replaceWith(button.cloneNode(true));
        return ask(...request);
    };
}"""


def test_a_double_click_does_not_replace_a_link_that_is_shown_once(admin, ada, page_as: PageAs):
    ada.is_active = False
    ada.save()
    page = page_as(admin)
    page.goto(f"/people/{ada.pk}/")
    page.locator("[value='activate:link']").dblclick()
    expect(page.locator("#link-text")).to_be_visible()


def test_a_button_that_a_check_replaces_meanwhile_is_pressed(ada, stage, page_as: PageAs):
    """A check of the form may answer between the press and the look at the session that precedes each sending."""
    plan = make_plan(ada, act(1), start=False)
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/change/")
    page.evaluate(REPLACE_BUTTONS)
    page.get_by_role("button", name="Change plan").click()
    expect(page).to_have_url(re.compile(f"/plans/{plan.public_id}/$"))
