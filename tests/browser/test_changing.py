"""A plan is changed in the editor while others look on: checked as one types, refused without losing a word."""

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from plans.documents import documents_of
from plans.engine import claim
from tests.browser.conftest import PageAs
from tests.builders import act, make_plan, work_off

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_a_change_is_checked_while_it_is_typed(ada, stage, page_as: PageAs):
    """An error keeps the button inactive; mended, the plan is changed."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1])))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/")
    page.get_by_role("link", name="Change plan").click()
    page.wait_for_load_state()
    document: dict[str, Any] = json.loads(page.locator("#pj").input_value())
    document["steps"].append(act(3, tool="none_such", dependencies=[2]))
    page.locator("#pj").fill(json.dumps(document, indent=1))
    expect(page.locator("#findings")).to_contain_text("There is no tool called none_such.")
    expect(page.locator("#apply")).to_have_attribute("aria-disabled", "true")
    document["steps"][1]["tool"] = "safe"
    page.locator("#pj").fill(json.dumps(document, indent=1))
    expect(page.locator("#why")).to_contain_text("No errors.")
    page.get_by_role("button", name="Change plan").click()
    expect(page.locator("#steps > *")).to_have_count(3)
    assert list(documents_of(plan)) == [1, 2, 3]


def test_a_step_that_starts_meanwhile_loses_nothing(ada, stage, page_as: PageAs):
    """The page says which, with everything that was typed."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/change/")
    text = page.locator("#pj").input_value().replace("Step 1", "Typed by hand")
    claim(plan.pk, owner="tests")
    page.locator("#pj").fill(text)
    expect(page.locator("#findings")).to_contain_text("Step 1 has started.")
    page.get_by_role("button", name="Change plan").dispatch_event("click")
    expect(page.get_by_role("alert")).to_contain_text("Step 1 has started")
    assert page.locator("#pj").input_value() == text


def test_a_step_is_skipped_from_its_card(ada, stage, page_as: PageAs):
    """The reason is asked for in place."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1])))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/?step=1")
    page.get_by_text("Skip this step").click()
    page.get_by_label("Why it is skipped").fill("Done by hand.")
    page.get_by_role("button", name="Skip step 1").click()
    expect(page.locator("#step")).to_contain_text("Skipped by Ada. Done by hand.")
