"""Pages that sockets keep up to date: what is used survives, a reload shows the same, and a session's end ends it."""

from typing import Any

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from plans.web.fragments import plan_source
from tests.browser.conftest import PageAs
from tests.browser.fragments import PUT
from tests.builders import act, make_plan, work_off

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]
SHOWN = """() => [...document.querySelectorAll("#steps > .row, #events > li, #memory > *, #plan-head, #boxes a.node")]
    .map((part) => {
        const plain = part.cloneNode(true);
        for (const time of plain.querySelectorAll("time")) time.remove();
        return [part.id, plain.textContent.replace(/\\s+/g, " ")];
    })"""
"""The rows, events, results and boxes of a plan's page as people see them."""


def news_of(plan: Any) -> list[str]:
    return list(plan_source(plan.public_id).draw().fragments.values())


def test_focus_and_typed_text_survive_fifty_messages(ada, stage, page_as: PageAs):
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/")
    field = page.locator("input[name=of]")
    field.fill("2")
    page.locator("#s1").focus()
    row = news_of(plan)
    for number in range(50):
        page.evaluate(PUT, [each.replace("Not started", f"Message {number}") for each in row])
    expect(page.locator("#s1")).to_contain_text("Message 49")
    assert page.evaluate("document.activeElement.id") == "s1"
    expect(field).to_have_value("2")


def test_a_page_that_followed_shows_what_a_reload_shows(ada, stage, page_as: PageAs):
    plan = make_plan(
        ada, act(1, "a", expected_key="one"), act(2, "${one.results.0}", dependencies=[1]), act(3, tool="dangerous")
    )
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/?step=3")
    before = page.evaluate(SHOWN)
    work_off(plan)
    page.evaluate(PUT, news_of(plan))
    expect(page.locator("#s2")).to_contain_text("Done")
    followed = page.evaluate(SHOWN)
    page.reload()
    assert page.evaluate(SHOWN) == followed != before


def test_a_socket_that_ends_with_the_session_is_not_opened_again(ada, stage, page_as: PageAs):
    page = page_as(ada)
    opened: list[str] = []

    def refuse(socket: WebSocketRoute) -> None:
        opened.append(socket.url)
        socket.close(code=4401)

    page.route_web_socket("**/ws/**", refuse)
    page.clock.install()
    page.goto("/plans/")
    expect(page.locator("#net")).to_contain_text("You were signed out.")
    expect(page.locator("#net [data-sign-in]")).to_be_visible()
    count = len(opened)
    page.clock.run_for(120_000)
    assert len(opened) == count == 1


def swap(page: Page) -> None:
    page.evaluate("htmx.ajax('GET', location.href, { target: '#results', swap: 'innerHTML', select: '#results' })")


def test_the_live_region_stays_and_a_dialog_gives_the_focus_back(ada, stage, page_as: PageAs):
    page = page_as(ada)
    page.goto("/plans/")
    page.evaluate("window.region = document.getElementById('announce')")
    for _ in range(20):
        swap(page)
    assert page.evaluate("window.region === document.getElementById('announce')")
    link = page.get_by_role("link", name="New plan")
    link.focus()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).not_to_be_visible()
    expect(link).to_be_focused()
