"""A request in words, in a real browser against a real server and a model that the test scripts: draft, plan, reply."""

import json
import re
import threading

import pytest
from playwright.sync_api import Page, expect

from catalog.models import Call, Tool
from plans.models import Plan
from plans.planner.drafts import TOOL
from tests.browser.conftest import PageAs
from tests.browser.test_reading import DOUBLE_IDS, LOST_NAMES, SMALL_TARGETS
from tests.builders import make_draft, step, write_step
from tests.chaos.serving import Serving
from tests.plans.planner.server import ModelServer, Reply
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
GREET = {
    "tool": "render_text",
    "args": {"template": "Hello, {name}!", "values": {"name": "Jo"}},
    "reason": "It greets.",
}
KEEP = {"tool": "write_file", "args": {"path": "a.txt", "content": "hello"}, "reason": "It must be kept."}
GREETED = json.dumps({"intent": "Greet Jo", "needs_tools": True, "tool_calls": [GREET]})
LONG = 60_000
KEPT = json.dumps({"intent": "Greet Jo and keep it", "needs_tools": True, "tool_calls": [GREET, KEEP]})
PRESS_BOTH = """() => { for (const key of "gk")
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })) }"""
"""G, then K: two keys of one hand, however busy the machine is."""


@pytest.fixture
def served(serving_with_model: Serving) -> Serving:
    """A process with that model, which has brought its tools into the catalog."""
    eventually(Tool.objects.filter(name=TOOL).exists, what="the tools")
    return serving_with_model


def says(page: Page, place: str, words: str | re.Pattern[str]) -> None:
    """Wait for words; the first that asks a model waits for its library to be loaded."""
    expect(page.locator(place)).to_contain_text(words, timeout=LONG)


def ask(page: Page, words: str = "Greet Jo", scripts: bool = True) -> None:
    """Write a request on the Ask page and send it."""
    page.goto("/ask/")
    page.get_by_label("What would you like to have done?").fill(words)
    if scripts:
        page.keyboard.press("Control+Enter")
    else:
        page.get_by_role("button", name="Draft").click()
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
    expect(page.locator("#draft-said")).to_contain_text("The draft is here")
    page.locator("#draft-start").focus()
    page.keyboard.press("Enter")
    says(page, "#standing", "Done")
    plan = Plan.objects.get(kind="plan")
    assert (plan.request, plan.reply) == ("Greet Jo", "Jo was greeted.")
    says(page, "main", "Jo was greeted.")
    page.goto("/ask/")
    expect(page.locator("#asked")).to_contain_text("Jo was greeted.")
    page.get_by_role("link", name="Its plan").click()
    expect(page).to_have_url(f"/plans/{plan.public_id}/")


def test_what_is_asked_twice_is_drafted_once(ada, window_of: PageAs, model: ModelServer):
    """A double click, the way back, a second tab."""
    model.says(KEPT)
    page = window_of(ada)
    page.goto("/ask/?example=note")
    page.locator("#ask-send").dblclick()
    says(page, "#draft-plan", "Will wait for a person")
    other = page.context.new_page()
    other.goto(page.url)
    page.locator("#draft-start").dblclick()
    says(page, "#standing", "Waiting for approval")
    other.locator("#draft-start").click()
    says(other, "#standing", "Waiting for approval")
    assert Call.objects.filter(tool_name=TOOL).count() == 1 and Plan.objects.filter(kind="plan").count() == 1


def test_a_slow_model_is_waited_for_and_can_be_cancelled(ada, window_of: PageAs, model: ModelServer):
    """The clock runs; who stands on Cancel when the draft arrives comes to its heading."""
    answer = threading.Event()
    model.says(Reply(GREETED, waits=answer), Reply(GREETED, waits=threading.Event()))
    page = window_of(ada)
    ask(page)
    says(page, "#draft [data-since]", re.compile(r"^\D*([2-9]|\d\d) s"))
    eventually(model.waiting.is_set, what="the question to the model")
    page.get_by_role("button", name="Cancel").focus()
    answer.set()
    says(page, "#draft-plan", "It greets.")
    expect(page.locator("h1")).to_be_focused()
    ask(page, "Greet Bo")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#no-draft")).to_contain_text("This was cancelled")
    expect(page.locator("#request")).to_have_value("Greet Bo")


def test_without_javascript(ada, window_of: PageAs, model: ModelServer):
    """Asked, looked at again, edited, started; the plan keeps the request."""
    model.says(KEPT)
    page = window_of(ada, java_script_enabled=False)
    ask(page, scripts=False)
    eventually(lambda: Call.objects.get(tool_name=TOOL).status == "completed", what="the draft")
    page.reload()
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.locator("#from-draft")).to_contain_text("Greet Jo")
    text = page.locator("#pj").input_value()
    page.locator("#pj").fill(text.replace("a.txt", "b.txt"))
    page.get_by_role("button", name="Start plan").click()
    expect(page.locator("#goal")).to_be_visible()
    plan = Plan.objects.get(kind="plan")
    assert plan.request == "Greet Jo" and "b.txt" in plan.steps.get(tool="write_file").parameters


@pytest.mark.parametrize("width", [320, 1280])
def test_the_pages_fit_and_are_whole(ada, catalog: None, page_as: PageAs, width: int):
    """Narrow and wide: targets large enough, ids once, every name leads somewhere."""
    call = make_draft(ada, None, step(1), write_step(2, dependencies=[1]))
    page = page_as(ada, viewport={"width": width, "height": 800})
    edit, prompts = f"/plans/new/?draft={call.public_id}", f"/plans/{call.plan_ref}/prompts/"
    for path in ("/ask/", f"/ask/{call.public_id}/", prompts, edit):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        for fault in (SMALL_TARGETS, DOUBLE_IDS, LOST_NAMES):
            assert page.evaluate(fault) == [], path
