"""`first_paint_ms`, `task_ms`, `task_cpu_ms`: the page of a plan of 500 steps and 5,000 events in Chromium.

The tasks are those of the page's main thread while 50 steps a second finish: ten chains of a tool that waits a fifth of
a second. Server and browser share the machine, so that the processor time of a task says more than its length there.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from benchmarks.client import Client
from benchmarks.ground import Served, prepare, serving, session_of, step, token_for
from plans.actions.create import create_plan
from plans.models import Event, Plan
from plans.spec import PlanDocument
from plans.states import PlanStatus
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction

STEPS, EVENTS = 500, 5000
EVENTS_OF_STEP = 5
CHAINS = 10
SECONDS = 0.2
PAINTS = 5
LOOK_MS, LONGEST_MS = 250, 120_000
SIZE: ViewportSize = {"width": 1440, "height": 900}
TRACED = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def first_paint(runs: int) -> list[float]:
    """Return the milliseconds from each navigation to the first paint with content."""
    user = prepare()
    with _chromium() as browser, serving() as served:
        plan = _plan(Requester(user, via="shell"))
        page = _page(browser, served, session_of(user))
        return [_paint(page, plan) for _ in range(1 + runs * PAINTS)][1:]


def longest_tasks(runs: int) -> list[float]:
    """Return the milliseconds of the longest task of the page in each run."""
    return [max(length for length, _ in tasks) for tasks in _run(runs)]


def longest_processor_times(runs: int) -> list[float]:
    """Return the processor time of the task that took most of it in each run, in milliseconds."""
    return [max(processor for _, processor in tasks) for tasks in _run(runs)]


def _run(runs: int) -> Iterator[list[tuple[float, float]]]:
    """Run a plan before an open page; yield the length and processor time of each task of the page meanwhile."""
    user = prepare()
    token = token_for(user, "plans:write")
    with _chromium() as browser, serving() as served:
        for _ in range(runs):
            plan = _plan(Requester(user, via="shell"))
            page = _page(browser, served, session_of(user))
            page.goto(f"/plans/{plan.public_id}/")
            expect(page.locator("#live")).to_contain_text("Live", timeout=LONGEST_MS)
            browser.start_tracing(page=page, categories=TRACED)
            Client(served.port, token).post(f"plans/{plan.public_id}/start/", {}, 200)
            while not Plan.objects.filter(pk=plan.pk, status=PlanStatus.COMPLETED).exists():
                page.wait_for_timeout(LOOK_MS)  # to ask the page meanwhile would be one more task for it
            expect(page.locator("#boxes .node.ok")).to_have_count(STEPS, timeout=LONGEST_MS)
            trace = json.loads(browser.stop_tracing())
            page.context.close()
            yield _tasks(trace["traceEvents"])


def _tasks(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the length and the processor time of each task of the busiest main thread of a trace, in milliseconds."""
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["name"].endswith("RunTask") and event["ph"] == "X" and thread in mains:
            tasks.setdefault(thread, []).append((event.get("dur", 0) / 1000, event.get("tdur", 0) / 1000))
    return max(tasks.values(), key=lambda each: sum(length for length, _ in each))


@contextmanager
def _chromium() -> Iterator[Browser]:
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright runs an event loop on this thread
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def _page(browser: Browser, served: Served, session: str) -> Page:
    url = f"http://127.0.0.1:{served.port}"
    context = browser.new_context(base_url=url, viewport=SIZE)
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])
    return context.new_page()


def _paint(page: Page, plan: Plan) -> float:
    page.goto(f"/plans/{plan.public_id}/")
    while (painted := page.evaluate(FIRST_PAINT)) is None:
        page.wait_for_timeout(LOOK_MS)
    return float(painted)


def _plan(by: Requester) -> Plan:
    """Create a plan of chains that has not started, with so many events that it has EVENTS when it ends."""
    steps = [
        {
            **step(number, *([number - CHAINS] if number > CHAINS else []), tool="bench_pause"),
            "parameters": {"seconds": SECONDS},
        }
        for number in range(1, STEPS + 1)
    ]
    plan = create_plan(PlanDocument.model_validate({"goal": "Measure", "steps": steps, "start": False}), by=by)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        for number in range(EVENTS - STEPS * EVENTS_OF_STEP - Event.objects.filter(plan=plan).count()):
            tx.record("memory.written", number % STEPS + 1, key=f"key_{number}")
    return plan
