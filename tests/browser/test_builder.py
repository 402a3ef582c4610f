"""The plan builder in a browser: saving while typing, two windows, keys, unreadable texts, a lost connection."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from plans.actions.drafts import change_draft, create_draft, read_draft
from plans.models import PlanDraft
from tests.browser.conftest import PageAs
from tests.builders import act
from tests.waiting import eventually

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


def built(ada: Any, *steps: dict[str, Any]) -> tuple[PlanDraft, str]:
    draft = create_draft({"goal": "Try it", "steps": list(steps or (act(1, "a"), act(2, "b")))}, by=ada)
    return draft, f"/plans/drafts/{draft.public_id}/"


def stored(draft: PlanDraft) -> Any:
    draft.refresh_from_db()
    return read_draft(draft)


def type_goal(page: Page, text: str) -> None:
    page.locator("#goal").focus()
    page.keyboard.press("End")
    page.keyboard.type(text)


def test_a_plan_is_built_with_the_keyboard_and_saved_as_it_grows(ada, stage, page_as: PageAs):
    page = page_as(ada)
    page.goto("/plans/new/")
    page.locator("#new-goal").fill("Greet")
    page.keyboard.press("Enter")
    expect(page.locator("#goal")).to_have_value("Greet")
    draft = PlanDraft.objects.get()
    for number in (1, 2):
        page.locator("#add-step").press("Enter")
        expect(page.locator("#draft-list li")).to_have_count(number)
        expect(page.locator("#st-h")).to_have_text(f"Step {number}")
        expect(page.locator("#step-description")).to_be_focused()
    page.locator("#step-description").fill("Greet")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#sf-status")).to_contain_text("Saved.")
    page.locator("#s1").press("c")
    page.locator("#s2").press("c")
    expect(page.locator("#s2")).to_contain_text("after 1")
    page.locator("#s2").press("Alt+ArrowUp")
    expect(page.locator("#draft-list li").first).to_contain_text("2")
    type_goal(page, " Jo")
    expect(page.locator("#draft-state")).to_contain_text("version 7")
    assert stored(draft)["goal"] == "Greet Jo"
    assert [step["step_id"] for step in stored(draft)["steps"]] == [2, 1]
    page.locator("#s1").press("Delete")
    expect(page.locator("#findings")).to_contain_text("which does not exist")
    page.locator(".toast button").click()
    expect(page.locator("#draft-list li")).to_have_count(2)


def test_two_windows_see_each_other_and_choose(ada, ben, stage, page_as: PageAs):
    draft, path = built(ada)
    mine, theirs = page_as(ada), page_as(ben)
    mine.goto(path)
    theirs.goto(path)
    type_goal(theirs, " theirs")
    expect(theirs.locator("#draft-state")).to_contain_text("version 2")
    expect(mine.locator("#news")).to_contain_text("Changed the goal")
    expect(mine.locator("#goal")).to_have_value("Try it")
    type_goal(mine, " mine")
    expect(mine.locator("#conflict")).to_be_visible()
    mine.locator("[data-compare]").click()
    expect(mine.locator("#conflicts")).to_contain_text("Try it theirs")
    mine.get_by_role("button", name="Save these choices").click()
    expect(mine.locator("#goal")).to_have_value("Try it mine")
    assert stored(draft)["goal"] == "Try it mine"


def test_a_text_is_kept_until_it_can_be_read_and_while_there_is_no_connection(
    ada, stage, page_as: PageAs, complaints: list[str]
):
    draft, path = built(ada)
    page = page_as(ada)
    page.goto(f"{path}?view=yaml")
    editor = page.locator("#pj")
    whole = editor.input_value()
    editor.fill(whole + "  - [")
    expect(page.locator("#unread")).to_contain_text("not yet taken over")
    page.reload()
    expect(editor).to_have_value(whole + "  - [")
    editor.fill(whole.replace("Try it", "Tried"))
    expect(page.locator("#unread")).to_be_empty()
    eventually(lambda: stored(draft)["goal"] == "Tried")
    page.context.set_offline(True)
    editor.fill(whole.replace("Try it", "Offline"))
    expect(page.locator("#draft-state")).to_contain_text("no connection")
    page.context.set_offline(False)
    expect(page.locator("#draft-state")).to_contain_text(re.compile("Saved, version"))
    assert stored(draft)["goal"] == "Offline"
    lost = [each for each in complaints if "sendError" in each or "DISCONNECTED" in each]
    assert complaints == lost
    complaints.clear()


def test_a_step_opens_from_the_canvas_beside_the_list(ada, stage, page_as: PageAs):
    _, path = built(ada, act(1, "a"), act(2, "b", dependencies=[1]))
    page = page_as(ada)
    page.goto(path)
    page.locator("#n2").press("Enter")
    expect(page.locator("#step-slot")).to_have_attribute("data-step", "2")
    expect(page.locator("#s2")).to_have_attribute("aria-current", "true")
    page.locator("#step-description").fill("Second")
    page.locator("#sf-save").click()
    expect(page.locator("#s2")).to_contain_text("Second")
    expect(page.locator("#n2")).to_contain_text("Second")


def test_what_leads_away_from_a_step_saves_it_first(ada, stage, page_as: PageAs, complaints: list[str]):
    """Another step, a new one, and Undo; without a connection the form stays, and says that it is not saved."""
    draft, path = built(ada)
    page = page_as(ada)
    page.goto(path)
    description, status = page.locator("#step-description"), page.locator("#sf-status")
    description.fill("First")
    expect(status).to_contain_text("Not saved yet")
    page.locator("#s2").click()
    expect(page.locator("#step-slot")).to_have_attribute("data-step", "2")
    description.fill("Second")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.locator("#step-slot")).to_have_attribute("data-step", "3")
    assert [step["description"] for step in stored(draft)["steps"]] == ["First", "Second", "New step"]
    page.locator("#step-description").fill("Third")
    page.locator("#undo").click()
    expect(description).to_have_value("New step")
    page.context.set_offline(True)
    description.fill("Offline")
    page.locator("#s2").click()
    expect(status).to_contain_text("no connection")
    expect(description).to_have_value("Offline")
    page.context.set_offline(False)
    page.keyboard.press("s")
    expect(status).to_contain_text("Saved.")
    assert stored(draft)["steps"][2]["description"] == "Offline"
    assert all("sendError" in each or "DISCONNECTED" in each for each in complaints)
    complaints.clear()


def test_a_step_that_was_deleted_while_its_form_is_open(ada, ben, stage, page_as: PageAs, complaints: list[str]):
    """The page offers the typed text beside the removal; once it is discarded, the step is shown as gone."""
    draft, path = built(ada)
    page = page_as(ada)
    page.goto(path)
    page.locator("#step-description").fill("Mine")
    rest = {"goal": "Try it", "steps": [act(2, "b")]}
    change_draft(draft, base_version=1, document=rest, by=ben, summary="Deleted step 1")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#sf-conflict")).to_be_focused()
    expect(page.locator("#step-description")).to_have_value("Mine")
    page.locator("#sf-discard").click()
    expect(page.locator("#step-slot [role=status]").first).to_contain_text("no longer part of this draft")
    expect(page.locator("#step-slot")).to_have_attribute("data-step", "2")
    assert all("404" in each for each in complaints)
    complaints.clear()


def test_the_page_of_a_draft_begins_at_its_top(ada, stage, page_as: PageAs):
    """Its list scrolls to the open step, and only the list."""
    _, path = built(ada, *(act(number, f"Step {number}") for number in range(1, 31)))
    page = page_as(ada, viewport={"width": 390, "height": 700})
    page.goto(f"{path}?step=29")
    expect(page.locator("#s29")).to_have_attribute("aria-current", "true")
    assert page.evaluate("[scrollY, document.getElementById('draft-list').scrollTop > 0]") == [0, True]
