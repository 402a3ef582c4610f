"""The next steps of a plan in a browser: approve is locked until all chosen were seen; without a script it works."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest
from plans.models import Plan
from tests.browser.conftest import PageAs
from tests.builders import make_plan, step, work_off, write_step

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


@pytest.fixture
def plan(catalog: None, workspace: Path, ada: User, settings) -> Plan:
    """A plan that waits for people, with two gated steps to come, one that is not known yet and one that is safe."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    long = "".join(f"line {number}\n" for number in range(80))
    steps = [write_step(1, "one.txt", long, expected_key="first")]
    steps += [write_step(number, f"{number}.txt", long, dependencies=[number - 1]) for number in (2, 3)]
    later = write_step(4, "four.txt", "${first}", dependencies=[3])
    return work_off(make_plan(ada, *steps, later, step(5, dependencies=[4])))


def approved(plan: Plan) -> int:
    """Count what was approved."""
    return ApprovalRequest.objects.filter(plan_ref=plan.public_id, status="approved").count()


def ask_for_two(page: Page, plan: Plan) -> None:
    """Open the page from the plan, and ask what the next two gated steps would do."""
    page.goto(f"/plans/{plan.public_id}/")
    page.locator("#next-steps").click()
    page.locator("#count").select_option("2")
    page.locator("button[name=do][value=ask]").click()
    expect(page.locator(".slice-item")).to_have_count(3)


def test_three_steps_are_approved_once_all_were_seen(plan, rosa, page_as: PageAs):
    """The first press leads to what was not seen; the button says how many are chosen."""
    page = page_as(rosa)
    ask_for_two(page, plan)
    button = page.locator("#slice .button.go")
    expect(button).to_have_attribute("data-unread", "")
    button.click()
    assert approved(plan) == 0
    for end in page.locator("[data-slice-end]").all():
        end.scroll_into_view_if_needed()
    expect(button).not_to_have_attribute("data-unread", "")
    expect(button).to_contain_text("Approve these 3")
    page.locator(".slice-item").nth(2).get_by_role("checkbox").uncheck()
    expect(button).to_contain_text("Approve these 2")
    page.locator(".slice-item").nth(2).get_by_role("checkbox").check()
    page.locator("#slice textarea").fill("All three.")
    button.click()
    expect(page.locator("#slice-results")).to_contain_text("Step 3")
    assert approved(plan) == 3
