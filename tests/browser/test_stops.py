"""A stop in the browser: two presses and a reason, seen in every open window, and lifted."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from approvals.models import Stop
from tests.browser.conftest import PageAs
from tests.builders import act, make_plan

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}


def stop_from(page: Page, path: str, reason: str) -> None:
    """Stop everything from a page: press, type, press."""
    page.goto(path)
    page.locator("a.stop-button").click()
    expect(page.locator("#stop-form [name=reason]")).to_be_focused()
    page.keyboard.type(reason)
    page.locator("#stop-form button").click()
    expect(page.locator("#standing")).to_contain_text(reason)


@pytest.mark.parametrize("options", [{}, PHONE, {"java_script_enabled": False}], ids=["wide", "phone", "no script"])
@pytest.mark.usefixtures("stage")
def test_stop_takes_two_presses_from_any_page_and_is_lifted(rosa, admin, page_as: PageAs, options):
    plan = make_plan(admin, act(1))
    reviewer, boss = page_as(rosa, **options), page_as(admin, **options)
    for path in ("/", "/approvals/", f"/plans/{plan.public_id}/", "/tools/safe/"):
        stop_from(reviewer, path, f"Seen on {path}")
        expect(reviewer.locator("#standing").get_by_role("button", name="Lift")).to_have_count(0)
        boss.goto(path)
        expect(boss.locator("#stops")).to_contain_text(f"Stopped: Everything. Seen on {path} By Rosa")
        boss.locator("#stops a").click()
        # The reason for another stop is not typed by mistake: the bar leads to those that stand.
        expect(boss.locator("#stop-form [name=reason]")).not_to_be_focused()
        boss.get_by_label("Reason to lift it").fill("Over.")
        boss.locator("#standing").get_by_role("button", name="Lift").click()
        expect(boss.locator("#standing")).to_contain_text("Nothing is stopped.")
    assert Stop.objects.filter(lifted_at=None).count() == 0


def test_name_is_asked_for_only_of_what_has_one(rosa, stage, page_as: PageAs):
    page = page_as(rosa)
    page.goto("/stops/")
    name = page.locator("#stop-form [name=name]")
    expect(name).to_be_hidden()
    page.locator("#stop-form [name=kind]").select_option("tool")
    name.fill("safe")
    page.locator("#stop-form [name=kind]").select_option("everything")
    expect(name).to_be_visible()  # what was typed is not hidden


def test_open_windows_see_a_stop_and_its_end_at_once(ada, rosa, admin, window_of: PageAs):
    windows = [window_of(each) for each in (ada, admin)]
    for window in windows:
        window.goto("/tools/")
        expect(window.locator("#live")).to_contain_text("Live")
    stop_from(window_of(rosa), "/plans/", "A bad day.")
    for window in windows:
        expect(window.locator("#stops")).to_contain_text("Stopped: Everything. A bad day.")
    boss = window_of(admin)
    boss.goto("/stops/#standing")
    boss.get_by_label("Reason to lift it").fill("Over.")
    boss.locator("#standing").get_by_role("button", name="Lift").click()
    for window in windows:
        expect(window.locator("#stops")).to_be_hidden()
