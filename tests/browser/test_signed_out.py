"""The session ends while something is typed: the page stays, and after a sign-in in another tab it goes on."""

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import Review
from tests.approvals.factories import ask
from tests.browser.conftest import PageAs, press_approve
from tests.plans.agents.scripted import make_agent

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def sign_out(page: Page) -> None:
    """Let the session end, as it does by itself."""
    page.context.clear_cookies(name=settings.SESSION_COOKIE_NAME)


def sign_in_elsewhere(page: Page, user: User) -> None:
    """Sign in where the banner leads to, close that tab and come back."""
    with page.expect_popup() as opened:
        page.locator("#net [data-sign-in]").click()
    tab = opened.value
    tab.get_by_label("Username").fill(user.username)
    tab.get_by_label("Password").fill(f"secret-{user.username}")
    tab.get_by_role("button", name="Sign in", exact=True).click()
    tab.wait_for_url(lambda url: "/sign-in/" not in url)
    tab.wait_for_load_state()
    tab.close()
    # A browser without a screen never hides a tab that it covers.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_long_form_keeps_what_is_typed(admin, catalog, settings, page_as: PageAs):
    settings.TOOLGATE_MODEL = "openai:scripted"
    page = page_as(admin)
    page.goto("/agents/new/")
    page.get_by_label("Name", exact=True).fill("researcher")
    page.get_by_label("Instructions").fill("Find it out.")
    sign_out(page)
    page.locator("#agent-form button.primary[value=save]").click()
    expect(page.locator("#net [data-sign-in]")).to_be_visible()
    expect(page.get_by_label("Instructions")).to_have_value("Find it out.")
    sign_in_elsewhere(page, admin)
    expect(page.locator("#net")).to_be_hidden()
    page.locator("#agent-form button.primary[value=save]").click()
    page.wait_for_url("**/agents/researcher/")


def test_a_note_beside_a_request_stays_and_is_sent_after_all(ada, rosa, page_as: PageAs):
    held = ask(ada)
    page = page_as(rosa)
    page.goto(f"/approvals/?item={held.public_id}")
    page.locator("#note").fill("Looks right.")
    page.locator("#d-h").click()
    sign_out(page)
    press_approve(page)
    expect(page.locator("#net [data-sign-in]")).to_be_visible()
    expect(page.locator("#note")).to_have_value("Looks right.")
    sign_in_elsewhere(page, rosa)
    expect(page.locator("#net")).to_be_hidden()
    press_approve(page)
    expect(page.locator(".toast[data-seconds]")).to_be_visible()
    assert Review.objects.get().comment == "Looks right."


def test_a_form_is_not_sent_as_someone_else(admin, ada, catalog, page_as: PageAs):
    make_agent("scout")
    page = page_as(admin)
    page.goto("/agents/scout/")
    page.get_by_label("Instructions").fill("Something else.")
    sign_out(page)
    page.get_by_role("button", name="Save", exact=True).click()
    sign_in_elsewhere(page, ada)
    expect(page.locator("#net [data-sign-in]")).to_be_hidden()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#net")).to_contain_text("ada")
    expect(page.get_by_label("Instructions")).to_have_value("Something else.")
