"""A request in words, in a real browser against a real server and a model that the test scripts: draft, plan, reply."""

import json
import re
import threading

import pytest
from playwright.sync_api import Page, expect

from catalog.models import Tool
from plans.models import Plan
from plans.states import DRAFT_TOOL
from tests.browser.conftest import PageAs
from tests.chaos.serving import Serving
from tests.plans.model_server import ModelServer, Reply
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
GREET = {
    "tool": "render_text",
    "args": {"template": "Hello, {name}!", "values": {"name": "Jo"}},
    "reason": "It greets.",
}
GREETED = json.dumps({"intent": "Greet Jo", "needs_tools": True, "tool_calls": [GREET]})
LONG = 60_000
PRESS_BOTH = """() => { for (const key of "gk")
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })) }"""
"""G, then K: two keys of one hand, however busy the machine is."""


@pytest.fixture
def served(serving_with_model: Serving) -> Serving:
    """A process with that model, which has brought its tools into the catalog."""
    eventually(Tool.objects.filter(name=DRAFT_TOOL).exists, what="the tools")
    return serving_with_model


def says(page: Page, place: str, words: str | re.Pattern[str]) -> None:
    """Wait for words; the first that asks a model waits for its library to be loaded."""
    expect(page.locator(place)).to_contain_text(words, timeout=LONG)


def ask(page: Page, words: str = "Greet Jo") -> None:
    """Write a request on the Ask page and send it."""
    page.goto("/ask/")
    page.locator("#request").fill(words)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", name=words)).to_be_visible(timeout=LONG)


def test_from_words_to_a_reply(ada, window_of: PageAs, model: ModelServer):
    """By keyboard, followed live; the request and its reply stay on the Ask page."""
    drafted = threading.Event()
    model.says(Reply(GREETED, waits=drafted), "Jo was greeted.")
    page = window_of(ada)
    page.goto("/plans/")
    page.evaluate(PRESS_BOTH)
    expect(page).to_have_url("/ask/")
    ask(page)
    expect(page.locator("#draft [data-since]")).to_be_visible()
    drafted.set()
    says(page, "#draft-plan", "It greets.")
    expect(page.locator("#draft-said")).to_contain_text("2 steps")
    page.locator("#draft-start").focus()
    page.keyboard.press("Enter")
    says(page, "#standing", "Done")
    plan = Plan.objects.get(kind="plan")
    assert (plan.request, plan.reply) == ("Greet Jo", "Jo was greeted.")
    says(page, "main", "Jo was greeted.")
    page.goto("/ask/")
    expect(page.locator("#asked")).to_contain_text("Jo was greeted.")
    page.locator("#asked .led-to a").click()
    expect(page).to_have_url(f"/plans/{plan.public_id}/")


@pytest.mark.layout
def test_a_clock_runs_until_the_draft_is_here(ada, window_of: PageAs, model: ModelServer):
    """The clock runs; who stands on Cancel when the draft arrives comes to its heading."""
    answer = threading.Event()
    model.says(Reply(GREETED, waits=answer))
    page = window_of(ada)
    ask(page)
    says(page, "#draft [data-since]", re.compile(r"^\D*([2-9]|\d\d) s"))
    eventually(model.waiting.is_set, what="the question to the model")
    page.get_by_role("button", name="Cancel").focus()
    answer.set()
    says(page, "#draft-plan", "It greets.")
    expect(page.locator("h1")).to_be_focused()
