"""A plan is changed in the editor while others look on: checked as one types, refused without losing a word."""

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from plans.actions.change import change_plan, read_plan_change
from plans.store.plan_documents import step_documents
from plans.store.requesters import Requester
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
    assert list(step_documents(plan)) == [1, 2, 3]


def test_a_kept_text_is_not_put_over_the_change_of_a_colleague(ada, admin, stage, page_as: PageAs):
    """Brought back, it is refused as what was loaded before that change, and removes no step that it never knew."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1])))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/change/")
    editor = page.locator("#pj")
    mine = editor.input_value().replace("Try it", "Mine")
    editor.fill(mine)
    page.reload()
    expect(editor).to_have_value(mine)
    change_plan(plan, read_plan_change({"add": [act(3)]}), by=Requester(admin))
    page.reload()
    expect(page.locator("[data-kept=outdated]")).to_be_visible()
    assert "Mine" not in editor.input_value()
    page.get_by_role("button", name="Bring it back").click()
    expect(editor).to_have_value(mine)
    page.get_by_role("button", name="Change plan").click()
    expect(page.get_by_role("alert")).to_contain_text("Someone else changed this plan")
    assert list(step_documents(plan)) == [1, 2, 3]
