"""A session's page in a real browser against a real server: the list changes as the agent works, without a reload."""

import pytest
from playwright.sync_api import expect

from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.browser.conftest import PageAs
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def call(by: Requester, tool: str, **arguments: object) -> None:
    """Call a planning tool; the server carries it out."""
    create_call(CallOrder(f"planning_{tool}", arguments), by=by)


def test_the_list_of_a_session_is_live(ada, window_of: PageAs):
    """Steps, their status and the calls come by themselves, also of a list that takes the place of the first."""
    by = Requester(ada, via="rest", session="night")
    call(by, "setup_plan", objective="Resend the badge", initial_steps=["Find the registration"])
    lists = Plan.objects.filter(kind=Plan.Kind.SESSION)
    eventually(lists.exists, what="the list")
    page = window_of(ada)
    page.goto("/sessions/")
    page.get_by_role("link", name="Resend the badge").click()
    expect(page.locator("#live")).to_contain_text("Live")
    page.evaluate("window.neverReloaded = true")
    call(by, "add_step", steps=["Send the e-mail"])
    expect(page.locator("#session-list")).to_contain_text("Send the e-mail")
    call(by, "update_step", step_id=1, status="done")
    expect(page.locator("#session-standing")).to_contain_text("1 of 2 steps done")
    expect(page.locator("#session-calls")).to_contain_text("planning_update_step")
    call(by, "setup_plan", objective="Something else")
    expect(page.locator("#session-list")).to_contain_text("Something else")
    expect(page.locator("#session-list")).to_contain_text("No steps yet")
    assert page.evaluate("window.neverReloaded") is True
