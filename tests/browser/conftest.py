"""A browser with people signed in. Whatever a page complains about in its console fails the test."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.plans.model_server import MODEL, ModelServer, model_server
from tests.waiting import eventually

# The browser says aloud that an answer was refused; that is what these statuses are for. htmx says so of a check that a
# newer one replaces.
EXPECTED = re.compile(
    r"Failed to load resource: .* status of (403|404|409|410|422)|Response Status Error Code 403 |"
    "htmx:(afterRequest|sendAbort), "
)
PageAs = Callable[..., Page]
SERVED_MS = 60_000
"""After how long something hangs: a server shares the machine with the browser, and both with others."""


@pytest.fixture(scope="package")
def browser(chromium: str, django_db_setup: None) -> Iterator[Browser]:
    """The system's Chromium. Its driver keeps an event loop on this thread, in which Django has another connection."""
    database: Any = connection
    rows_of_migrations = database._test_serialized_contents
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        database._test_serialized_contents = rows_of_migrations
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
        connection.close()


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Complaints of pages: errors of scripts, and what the content policy forbade."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture
def page_as(browser: Browser, live_server: Any, complaints: list[str]) -> Iterator[PageAs]:
    """Return a function that opens a window for someone or for nobody; sockets stay open and silent."""
    with patient(), all_answered(), windows(browser, lambda: str(live_server.url), complaints) as open_window:

        def open_silent_window(user: User | None = None, **options: Any) -> Page:
            page = open_window(user, **options)
            page.set_default_timeout(SERVED_MS)
            page.route_web_socket("**/ws/**", lambda socket: None)
            return page

        yield open_silent_window


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """The language model that `serving_with_model` asks."""
    with model_server() as scripted:
        yield scripted


@pytest.fixture
def serving_with_model(
    transactional_db: None, catalog: None, make_serving: MakeServing, model: ModelServer
) -> Iterator[Serving]:
    """A process that serves and executes, and asks that model."""
    environment = {
        "TOOLGATE_MODEL": f"openai:{MODEL}",
        "OPENAI_API_KEY": "sk-not-a-key",
        "TOOLGATE_LEASE_SECONDS": "30",
    }
    process = make_serving({"OPENAI_BASE_URL": model.url}, TOOLGATE_TOOLS="", **environment)
    process.start()
    try:
        eventually(process.url, what="the server")
        yield process
    finally:
        process.kill()


@pytest.fixture
def served(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[Serving]:
    """A process that serves and executes, with a short undo window and ordinary leases."""
    process = make_serving(TOOLGATE_TOOLS="", TOOLGATE_UNDO_SECONDS="1", TOOLGATE_LEASE_SECONDS="30")
    process.start()
    eventually(process.url, what="the server")
    yield process
    process.kill()


@pytest.fixture
def window_of(browser: Browser, served: Serving, complaints: list[str]) -> Iterator[PageAs]:
    """Return a function that opens a window of its own for someone at what `served` serves, sockets and all."""
    with patient(), windows(browser, served.url, complaints) as open_window:
        yield open_window


def press_approve(page: Page) -> None:
    """Press A once it counts: the end of the change was on screen, and what opened by itself has been for a moment."""
    expect(page.locator("[name=verdict][value=approve]:not([data-unread])")).to_be_visible()
    expect(page.locator("form[data-fresh]")).to_have_count(0)
    page.keyboard.press("a")


@contextmanager
def patient() -> Iterator[None]:
    """Expect what comes as late as on a busy machine."""
    expect.set_options(timeout=SERVED_MS)
    try:
        yield
    finally:
        expect.set_options(timeout=None)


@contextmanager
def all_answered() -> Iterator[None]:
    """In the end wait for every answer: who still reads the tables stands in the way of emptying them."""
    steps: list[int] = []

    def begin(**_: Any) -> None:
        steps.append(1)

    def end(**_: Any) -> None:
        steps.append(-1)

    request_started.connect(begin)
    request_finished.connect(end)
    try:
        yield
        eventually(lambda: sum(steps) <= 0, what="the last answer")
    finally:
        request_started.disconnect(begin)
        request_finished.disconnect(end)


@contextmanager
def windows(browser: Browser, address: Callable[[], str | None], complaints: list[str]) -> Iterator[PageAs]:
    """Open windows at an address, for someone who is signed in or for nobody, and close them all in the end."""
    contexts = []

    def open_window(user: User | None = None, **options: Any) -> Page:
        context = browser.new_context(base_url=address(), **options)
        contexts.append(context)
        if user is not None:
            cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session_of(user), "url": address()}
            context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        page.set_default_timeout(SERVED_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: note(message, complaints))
        return page

    try:
        yield open_window
    finally:
        for context in contexts:
            context.close()


def session_of(user: User) -> str:
    """Return the session cookie of someone who has signed in."""
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def note(message: ConsoleMessage, complaints: list[str]) -> None:
    """Keep what is a complaint."""
    if message.type in ("error", "warning") and not EXPECTED.search(message.text):
        complaints.append(message.text)
