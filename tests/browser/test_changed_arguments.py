"""A step that was sent back is changed in a form made from its tool's schema, on a wide window and on a phone."""

import pytest
from playwright.sync_api import expect

from plans.models import Plan
from tests.approvals.deciding import send_back
from tests.builders import call_of, make_plan, work_off, write_step
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONG = "Keep it shorter, and say where the figures are from. " * 4


@pytest.fixture
def plan(transactional_db, catalog, workspace, ada, rosa) -> Plan:
    """A plan whose step was sent back."""
    plan = work_off(make_plan(ada, write_step(1, path="reports/note.txt", content="line one\nline two\n")))
    send_back(plan, rosa, comment=LONG)
    return plan


@pytest.mark.parametrize("width", [1280, 320])
def test_the_form_is_filled_with_the_call_and_asks_again(plan, ada, page_as, width):
    page = page_as(ada, viewport={"width": width, "height": 800})
    page.goto(f"/plans/{plan.public_id}/?step=1")
    page.locator("#change-arguments").click()
    expect(page.locator("#revising")).to_contain_text("Keep it shorter")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_label("content").fill("line one")
    page.locator("#rv-check").click()
    expect(page.locator("#revising [role=status]")).to_have_text("The tool takes these arguments.")
    page.locator("#rv-send").click()
    expect(page).to_have_url(f"{page.url.split('/plans/')[0]}/plans/{plan.public_id}/?step=1")
    eventually(lambda: plan.steps.get().given_arguments != "", what="the arguments")
    work_off(plan)
    assert call_of(plan).arguments_json["content"] == "line one"
