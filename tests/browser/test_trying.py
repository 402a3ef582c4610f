"""A tool tried from its page, in real browsers against a real server: by keyboard, with and without scripts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from catalog.models import Call, Tool
from tests.browser.conftest import PageAs
from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.tools_to_try import Trip
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


def fill_in(page: Page) -> None:
    """Fill in a nested form: a list of objects with a union and a list inside."""
    type_into(page, "title", "Rhine")
    pick(page, "stops.0.place", "town")
    type_into(page, "stops.0.place.name", "Bonn")
    press(page, "Add an item to stops.0.notes")
    expect(page.locator("[name='value:stops.0.notes.0']")).to_be_focused()
    page.keyboard.type("old town")
    press(page, "Add an item to stops")
    expect(page.locator("[name='pick:stops.1.place']")).to_be_focused()
    type_into(page, "stops.1.place.x", "1.5")


def test_a_nested_form_by_keyboard(ada, window_of: PageAs):
    """The typed text stays while the form grows; the result appears in place."""
    page = window_of(ada)
    page.goto("/tools/plan_trip/")
    fill_in(page)
    expect(page.locator("[name='value:title']")).to_have_value("Rhine")
    page.locator("[name='value:title']").press("Enter")
    expect(page.locator("#trying [role=status]")).to_be_visible()
    assert not Call.objects.exists(), "Enter in a field only checks"
    press(page, "Call")
    expect(page.locator("#tried")).to_contain_text("Done")
    expect(page.locator("#tried .call-result .value")).to_have_text("2")
    assert Call.objects.get().arguments_json == Trip.model_validate(TRIP).model_dump(mode="json")
