"""Pausing, resuming and cancelling in one browser, seen in another."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import press_approve
from tests.browser.test_main_job import served, start_writing
from tests.waiting import eventually

__all__ = ["served"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_a_pause_is_seen_in_a_second_browser_and_ended_in_the_first(ada, rosa, window_of):
    """The chip comes and goes without a reload, and so do the buttons of who may press them."""
    owner, other, elsewhere = window_of(ada), window_of(rosa), window_of(ada)
    plan = start_writing(owner, ada)
    for page in (other, elsewhere):
        page.goto(f"/plans/{plan.public_id}/")
        expect(page.locator("#live")).to_contain_text("Live")
        page.evaluate("window.neverReloaded = true")
    owner.get_by_role("button", name="Pause").click()
    expect(other.locator("#standing")).to_contain_text("Paused by Ada")
    expect(other.locator("#controls")).to_contain_text("Ada or an administrator can resume or cancel this plan.")
    elsewhere.get_by_role("button", name="Resume").click()
    expect(other.locator("#standing")).not_to_contain_text("Paused")
    expect(owner.get_by_role("button", name="Pause")).to_be_visible()
    assert other.evaluate("window.neverReloaded") is True


def test_cancelling_an_approved_call_asks_once_more(ada, rosa, window_of):
    """The first press says what is at stake; the second cancels."""
    owner, reviewer = window_of(ada), window_of(rosa)
    plan = start_writing(owner, ada)
    owner.get_by_role("button", name="Pause").click()
    expect(owner.locator("#standing")).to_contain_text("Paused")
    reviewer.goto("/approvals/")
    expect(reviewer.locator("#detail h1")).to_contain_text("note.txt")
    press_approve(reviewer)
    eventually(lambda: plan.steps.filter(ready_at__isnull=False).exists(), what="the approval's effect")
    owner.get_by_role("button", name="Cancel").click()
    expect(owner.locator("#stake")).to_contain_text("1 call that was approved will not run")
    owner.get_by_role("button", name="Cancel all the same").click()
    expect(owner.locator("#standing")).to_contain_text("Cancelled")
