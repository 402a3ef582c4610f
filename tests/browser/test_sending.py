"""Forms that lead to another page are sent once, however often their button is pressed."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PageAs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


def test_a_double_click_does_not_replace_a_link_that_is_shown_once(admin, ada, page_as: PageAs):
    ada.is_active = False
    ada.save()
    page = page_as(admin)
    page.goto(f"/people/{ada.pk}/")
    page.locator("[value='activate:link']").dblclick()
    expect(page.locator("#link-text")).to_be_visible()
