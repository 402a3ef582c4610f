"""`decide_to_screen_ms`: from a reviewer's keypress until the row is gone from another reviewer's browser.

Both browsers run on the server's machine, so that they share a clock. Decisions are spaced in time, as people's are.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client as Visitor
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.client import Client
from benchmarks.decide_to_start import let_wait
from benchmarks.ground import person, prepare, serving, token_for

WAITING = 60
DECISIONS = 8
APART_SECONDS = 1.5
WATCH = """() => {
    window.gone = {};
    new MutationObserver(() => {
        for (const id of window.watched ?? []) if (!document.getElementById(id)) window.gone[id] ??= Date.now();
    }).observe(document.body, { childList: true, subtree: true });
}"""
MARK = "id => { window.watched = [id]; }"
GONE = "id => window.gone[id]"


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each decision."""
    asks = token_for(prepare(), "plans:write")
    sessions = [_session_of(person(role)) for role in ("reviewer", "administrator")]
    with serving() as served:
        let_wait(Client(served.port, asks), WAITING + runs * DECISIONS)
        address = f"http://127.0.0.1:{served.port}"
        with _browser() as browser:
            decides, watches = (_page(browser, address, session) for session in sessions)
            watches.evaluate(WATCH)
            return [_decide(decides, watches) for _ in range(runs * DECISIONS)]


def _session_of(user: User) -> str:
    visitor = Visitor()
    visitor.force_login(user)
    return visitor.cookies[settings.SESSION_COOKIE_NAME].value


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def _page(browser: Browser, address: str, session: str) -> Page:
    """Open the queue in a signed-in session, and return the page once its socket is connected."""
    context = browser.new_context(base_url=address)
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": address}])
    page = context.new_page()
    page.goto("/approvals/")
    page.wait_for_selector("#live:not([hidden])")
    return page


def _decide(decides: Page, watches: Page) -> float:
    """Approve the open request; the clock starts at the second press if the page requires two."""
    sleep(APART_SECONDS)
    decides.evaluate("document.getElementById('diff-end').scrollIntoView()")
    decides.wait_for_selector(".button.go:not([data-unread])")
    row = str(decides.get_attribute("#detail", "data-shown"))
    watches.evaluate(MARK, row)
    if decides.get_attribute(".button.go", "data-again"):
        decides.keyboard.press("a")
    started = decides.evaluate("Date.now()")
    decides.keyboard.press("a")
    watches.wait_for_function(GONE, arg=row, polling=20)
    decides.wait_for_selector(f"#detail:not([data-shown={row}])")
    return float(watches.evaluate(GONE, row)) - float(started)
