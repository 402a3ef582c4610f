"""The form of a step in the plan builder, in a browser: a plan of three steps with references, by keyboard alone."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from catalog.core.canonical_json import Json
from catalog.models import Call, Tool
from plans.actions.drafts import change_draft, create_draft, read_content
from plans.models import PlanDraft
from tests.browser.conftest import PageAs
from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.plans.agents.scripted import make_agent
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


@pytest.fixture
def served(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[Serving]:
    """A process that serves and executes, with the tools that people try."""
    process = make_serving(TOOLGATE_TOOLS="tests.tools_to_try_served", TOOLGATE_LEASE_SECONDS="30")
    process.start()
    eventually(process.url, what="the server")
    eventually(Tool.objects.filter(name="book_trip").exists, what="the tools")
    yield process
    process.kill()


def press(page: Page, name: str, exact: bool = True) -> None:
    """Press a button of the form with the keyboard."""
    page.locator("#step-form").get_by_role("button", name=name, exact=exact).first.focus()
    page.keyboard.press("Enter")


def open_step(page: Page, draft: PlanDraft, number: int) -> None:
    page.goto(f"/plans/drafts/{draft.public_id}/?step={number}")


def choose_tool(page: Page, words: str, name: str) -> None:
    """Make the step that of a tool, and find it by its words."""
    page.locator("#step-kind-note").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#step-kind-tool")).to_be_checked()
    page.locator("#step-tool-q").focus()
    page.keyboard.type(words)
    first = page.locator("#step-tool-hits .option").first
    expect(first).to_contain_text(name)
    page.keyboard.press("Tab")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[name=tool]")).to_have_value(name)
    expect(page.locator("#step-arguments [name^='value:']").first).to_be_focused()


def type_into(page: Page, name: str, text: str) -> None:
    page.locator(f"[name='value:{name}']").focus()
    page.keyboard.type(text)


def save(page: Page) -> None:
    press(page, "Save step")
    expect(page.locator("#sf-status")).to_contain_text("Saved.")


def test_plan_of_three_steps_by_keyboard(ada: User, window_of: PageAs) -> None:
    """Each step refers to the one before; the last one is tried and its result becomes an example."""
    steps = [{"step_id": number, "description": f"Part {number}"} for number in (1, 2, 3)]
    draft = create_draft({"goal": "A trip", "steps": steps}, by=ada)
    page = window_of(ada)

    open_step(page, draft, 1)
    choose_tool(page, "train", "wait_for_train")
    type_into(page, "seconds", "0.1")
    press(page, "Use part_1")
    expect(page.locator("#step-key")).to_be_focused()
    save(page)

    open_step(page, draft, 2)
    choose_tool(page, "nights", "plan_trip")
    type_into(page, "title", "After ! we go")
    for _ in range(len("! we go")):
        page.keyboard.press("ArrowLeft")
    press(page, "Use a result for title")
    expect(page.locator("#result-q")).to_be_focused()
    press(page, "Use ${part_1.results.0}")
    expect(page.locator("[name='value:title']")).to_be_focused()
    expect(page.locator("[name='value:title']")).to_have_value("After ${part_1.results.0}! we go")
    expect(page.get_by_role("checkbox", name="1 Part 1")).to_be_checked()
    page.locator("[name='pick:stops.0.place']").select_option(label="town")
    type_into(page, "stops.0.place.name", "Bonn")
    press(page, "Use part_2")
    expect(page.locator("#step-key")).to_be_focused()
    press(page, "Add a condition")
    expect(page.locator("#check-0-subject")).to_be_focused()
    page.keyboard.type("value")
    save(page)
    expect(page.locator("#step-check-s")).to_contain_text("if value is there")

    open_step(page, draft, 3)
    choose_tool(page, "nights", "plan_trip")
    type_into(page, "title", "Again")
    press(page, "Use a result for stops.0.nights")
    press(page, "Use ${part_2.results.0}")
    expect(page.locator("[name='reference:stops.0.nights']")).to_have_value("${part_2.results.0}")
    page.locator("[name='pick:stops.0.place']").select_option(label="town")
    type_into(page, "stops.0.place.name", "Mainz")
    press(page, "Try it with example values")
    page.get_by_role("textbox", name="${part_2.results.0} from step 2").focus()
    page.keyboard.type("3")
    press(page, "Run this step now")
    expect(page.locator("#tried .call-result .value")).to_have_text("3")
    save(page)

    document: Any = read_content(PlanDraft.objects.get()).document
    first, second, third = document["steps"]
    bonn = {"place": {"kind": "town", "name": "Bonn"}}
    assert first == steps[0] | {"tool": "wait_for_train", "parameters": {"seconds": 0.1}, "expected_key": "part_1"}
    assert second == steps[1] | {
        "tool": "plan_trip",
        "parameters": {"title": "After ${part_1.results.0}! we go", "stops": [bonn]},
        "dependencies": [1],
        "expected_key": "part_2",
        "done_check": "value is not None",
    }
    assert third["dependencies"] == [2] and third["parameters"]["stops"][0]["nights"] == "${part_2.results.0}"
    assert Call.objects.get().given_json["stops"][0]["nights"] == 3

    open_step(page, draft, 3)
    page.keyboard.press("Tab")
    press(page, "Use a result for budget")
    expect(page.locator("#step-results")).to_contain_text("Last value:")


def test_form_follows_changes_of_others_until_it_is_filled_in(ada: User, ben: User, window_of: PageAs) -> None:
    """Typed values stay, and a conflict shows both sides."""
    step = {"step_id": 1, "description": "Book", "tool": "book_trip", "parameters": {"title": "Rome"}}
    draft = create_draft({"goal": "A trip", "steps": [step]}, by=ada)

    def change_title(title: str) -> None:
        version = PlanDraft.objects.get().version
        document: Json = {"goal": "A trip", "steps": [step | {"parameters": {"title": title}}]}
        change_draft(draft, base_version=version, document=document, by=ben, summary=f"Changed to {title}")

    page = window_of(ada)
    open_step(page, draft, 1)
    field = page.locator("[name='value:title']")
    change_title("Oslo")
    expect(field).to_have_value("Oslo")
    field.fill("Bonn")
    change_title("Paris")
    expect(page.locator("#news")).to_contain_text("Paris")
    expect(field).to_have_value("Bonn")
    press(page, "Save step")
    conflict = page.locator("#sf-conflict")
    expect(conflict).to_contain_text("Paris")
    conflict.get_by_role("radio", name="Theirs: Paris").check()
    save(page)
    expect(field).to_have_value("Paris")


UNNAMED = re.compile(
    r"- (group|textbox|combobox|checkbox|radio|button|link|searchbox|region|navigation|form)(?=:?$| \[)"
)
"""A line of an accessibility tree that gives a role and no name."""


@pytest.mark.layout
def test_every_kind_of_step_is_named_for_a_screen_reader(ada: User, stage: object, page_as: PageAs) -> None:
    """Groups and controls have names, in the order of the form; errors are parts of their fields and are counted."""
    make_agent()
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "description": "Find", "tool": "safe", "parameters": {"value": "x"}, "expected_key": "found"},
        {
            "step_id": 2,
            "description": "Use",
            "tool": "render_text",
            "parameters": {"template": "${gone}", "values": {}},
        },
        {"step_id": 3, "description": "Ask", "agent": "ann", "parameters": {"what": "${found}"}},
        {"step_id": 4, "description": "Note", "done_check": "found is None or len(found) >= 2"},
        {"step_id": 5, "description": "New", "tool": ""},
    ]
    draft = create_draft({"goal": "Hear it", "steps": steps}, by=ada)
    page = page_as(ada)
    opened = {
        1: ("#step-try-open", "[value='panel:path']"),
        2: ("[id='f-template-r']", "#step-tool-change", "#step-as-json"),
        4: ("[value='check-show:text']",),
    }
    for number in range(1, 6):
        open_step(page, draft, number)
        for pressed in (None, *opened.get(number, ())):
            if pressed:
                page.evaluate("document.getElementById('step-form').dataset.old = ''")
                page.locator(pressed).first.click()
                expect(page.locator("#step-form:not([data-old])")).to_be_visible()
            tree = page.locator("main").aria_snapshot()
            assert [line for line in tree.splitlines() if UNNAMED.search(line)] == []
    groups = ("What the step does", "Tool", "Arguments", "Waits for", "Result", "Done when", "Try this step")
    order = ["navigation", 'textbox "Description"', *(f'group "{each}"' for each in groups), 'button "Save step"']
    open_step(page, draft, 2)
    tree = page.locator("#step-form").aria_snapshot()
    places = [tree.index(each) for each in order]
    assert places == sorted(places)
    field = page.locator("[name='value:template']")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("gone"))
    assert re.search(r"status: .*1 error", page.locator("#step-form").aria_snapshot())
