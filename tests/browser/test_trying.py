"""A tool tried from its page, in real browsers against a real server: by keyboard, with and without scripts."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from catalog.models import Call, Tool
from tests.browser.conftest import PageAs, press_approve
from tests.browser.test_reading import DOUBLE_IDS, LOST_NAMES, SMALL_TARGETS
from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
BONN = {"place": {"kind": "town", "name": "Bonn"}, "notes": ["old town"]}
TRIP = {"title": "Rhine", "stops": [BONN, {"place": {"kind": "point", "x": 1.5}}]}


@pytest.fixture
def served(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[Serving]:
    """A process that serves and executes, with the tools that people try."""
    process = make_serving(TOOLGATE_TOOLS="tests.tools_to_try_served", TOOLGATE_LEASE_SECONDS="30")
    process.start()
    eventually(process.url, what="the server")
    eventually(Tool.objects.filter(name="book_trip").exists, what="the tools")
    yield process
    process.kill()


def type_into(page: Page, name: str, text: str) -> None:
    """Type into a field of the form."""
    page.locator(f"[name='value:{name}']").focus()
    page.keyboard.type(text)


def press(page: Page, name: str) -> None:
    """Press a button of the form with the keyboard."""
    page.locator("#trying").get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")


def pick(page: Page, name: str, label: str) -> None:
    """Pick a variant; its fields come in the place of the others."""
    page.locator(f"[name='pick:{name}']").select_option(label=label)


def fill_in(page: Page, scripts: bool = True) -> None:
    """Fill in a nested form: a list of objects with a union and a list inside."""
    type_into(page, "title", "Rhine")
    pick(page, "stops.0.place", "town")
    if not scripts:
        page.get_by_role("button", name="Choose").first.click()
    type_into(page, "stops.0.place.name", "Bonn")
    press(page, "Add an item to stops.0.notes")
    expect(page.locator("[name='value:stops.0.notes.0']")).to_be_focused()
    page.keyboard.type("old town")
    press(page, "Add an item to stops")
    expect(page.locator("[name='pick:stops.1.place']")).to_be_focused()
    type_into(page, "stops.1.place.x", "1.5")


def test_a_nested_form_by_keyboard(ada, window_of: PageAs):
    """What was typed stays while the form grows; the result appears in place."""
    page = window_of(ada)
    page.goto("/tools/plan_trip/")
    fill_in(page)
    expect(page.locator("[name='value:title']")).to_have_value("Rhine")
    press(page, "Call")
    expect(page.locator("#tried")).to_contain_text("Done")
    expect(page.locator("#tried-response")).to_contain_text('"results": [\n    2\n  ]')
    assert Call.objects.get().arguments_json == TRIP
    assert page.evaluate(DOUBLE_IDS) == [] and page.evaluate(LOST_NAMES) == []


def test_what_does_not_fit_is_told_at_its_field(ada, window_of: PageAs):
    """And mended there; Enter in a field only checks."""
    page = window_of(ada)
    page.goto("/tools/plan_trip/try/?example=0")
    type_into(page, "stops.0.nights", "many")
    page.keyboard.press("Enter")
    expect(page.locator("[name='value:stops.0.nights']")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[id='f-stops.0.nights-d']")).to_contain_text("This must be an integer, not a text.")
    page.locator("[name='value:stops.0.nights']").fill("3")
    page.keyboard.press("Enter")
    expect(page.locator("#trying")).to_contain_text("These arguments fit.")
    assert not Call.objects.exists()


def test_form_and_json_are_two_views_of_one_thing(ada, window_of: PageAs):
    """A change in either is in the other."""
    page = window_of(ada)
    page.goto("/tools/plan_trip/")
    page.get_by_role("link", name="Use this example").click()
    expect(page.locator("[name='value:title']")).to_have_value("Rhine")
    press(page, "JSON")
    document = json.loads(page.locator("#try-json").input_value())
    page.locator("#try-json").fill(json.dumps(document | {"labels": {"a": 1}}))
    press(page, "Form")
    expect(page.locator("[name='key:labels.+0']")).to_have_value("a")
    expect(page.locator("[name='value:labels.+0']")).to_have_value("1")


def test_a_slow_call_shows_its_result_when_it_ends(ada, window_of: PageAs):
    """Without a reload; pressing twice calls once."""
    page = window_of(ada)
    page.goto("/tools/wait_for_train/")
    type_into(page, "seconds", "5")
    page.locator("#try-call").dblclick()
    expect(page.locator("#tried")).to_contain_text("Running")
    expect(page.locator("#tried-response")).to_contain_text("It came.")
    assert Call.objects.count() == 1


def test_a_dangerous_tool_waits_for_someone_else(ada, rosa, window_of: PageAs):
    """Preview runs nothing; the call leads to its request, and the result comes where it was asked for."""
    page, reviewer = window_of(ada), window_of(rosa)
    page.goto("/tools/book_trip/")
    type_into(page, "title", "Rome")
    press(page, "Preview")
    expect(page.locator("#rehearsed")).to_contain_text("It would wait for 1 reviewer")
    expect(page.locator("#rehearsed")).to_contain_text("A booking of Rome")
    press(page, "Ask for approval")
    expect(page.locator("#tried")).to_contain_text("It waits for a person.")
    address = page.get_by_role("link", name="Open the request").get_attribute("href") or ""
    reviewer.goto(address)
    expect(reviewer.locator("#live")).to_contain_text("Live")
    press_approve(reviewer)
    eventually(lambda: Call.objects.get().status == "completed", what="the call's end")
    expect(page.locator("#tried-response")).to_contain_text("Booked Rome")


def test_without_javascript(ada, window_of: PageAs):
    """Rows, variants, a call, and its result at an address of its own."""
    page = window_of(ada, java_script_enabled=False)
    page.goto("/tools/plan_trip/")
    fill_in(page, scripts=False)
    page.get_by_role("button", name="Call").click()
    eventually(lambda: Call.objects.get().status == "completed", what="the call's end")
    page.reload()
    expect(page.locator("#tried-response")).to_contain_text('"success": true')
    assert Call.objects.get().arguments_json == TRIP


def test_the_pages_fit_and_are_whole(admin, window_of: PageAs):
    """Narrow and wide, targets large enough, ids once, every name leads somewhere."""
    page = window_of(admin)
    for path in ("/tools/plan_trip/", "/tools/plan_trip/try/?example=0", "/tools/book_trip/versions/"):
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(path)
            expect(page.locator("#live")).to_contain_text("Live")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            for fault in (SMALL_TARGETS, DOUBLE_IDS, LOST_NAMES):
                assert page.evaluate(fault) == [], (path, width, fault[:60])
