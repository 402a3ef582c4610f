"""Two reviewers and one queue, in real browsers against a real server: what one does, the other sees at once."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from approvals.requests.queries import request_for
from approvals.reviews import coordination
from approvals.reviews.decisions import decide
from tests.approvals.factories import rejection
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import asked, becomes
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]

NOTE_NEWS = """window.news = []; new MutationObserver(() => {
    const news = document.getElementById("news");
    if (!news.hidden) window.news.push(news.firstElementChild.textContent);
}).observe(document.getElementById("news"), { attributes: true, childList: true, subtree: true })"""


def watch(page: Page, query: str = "") -> Page:
    """Open the queue and mark the page: a reload would forget that."""
    page.goto(f"/approvals/{query}")
    expect(page.locator("#live")).to_contain_text("Live")
    page.evaluate("window.neverReloaded = true")
    return page


def test_another_reviewers_list_changes_without_a_reload(ada, rosa, tomas, window_of: PageAs):
    """The row goes, the counts follow, and who looks at it reads who answered."""
    first, second = asked(ada, "one.txt"), asked(ada, "two.txt")
    mine = watch(window_of(rosa))
    theirs = watch(window_of(tomas), f"?item={first.public_id}")
    expect(theirs.locator("form.decide")).to_be_visible()
    press_approve(mine)
    expect(theirs.locator(f"#q-{first.public_id}")).to_have_count(0)
    expect(theirs.locator(f"#q-{second.public_id}")).to_be_visible()
    expect(theirs.locator("#waiting-side")).to_contain_text("1")
    expect(theirs.locator(".decided")).to_contain_text("Rosa approved this")
    expect(theirs.locator("#views")).to_contain_text("All 1")
    assert theirs.evaluate("window.neverReloaded") is True


@pytest.mark.layout
def test_the_place_of_the_open_request_follows_the_list(ada, rosa, tomas, window_of: PageAs):
    """Others answer one before it, and a new one comes."""
    first, second = asked(ada, "one.txt"), asked(ada, "two.txt")
    page = watch(window_of(rosa), f"?item={second.public_id}")
    expect(page.locator("#place")).to_have_text("2 of 2")
    decide(first, by=tomas, decision=rejection(first, "No."))
    expect(page.locator("#place")).to_have_text("1 of 1")
    asked(ada, "three.txt")
    expect(page.locator("#place")).to_have_text("1 of 2")


@pytest.mark.layout
def test_a_row_never_moves_under_the_pointer(ada, rosa, window_of: PageAs):
    """New requests are announced beside the list and shown on demand; the selection stays."""
    first = asked(ada, "one.txt")
    page = watch(window_of(rosa))
    page.keyboard.press("x")
    page.locator(f"#q-{first.public_id}").hover()
    second = asked(ada, "two.txt")
    expect(page.locator("#news")).to_contain_text("1 new, press")
    expect(page.locator(f"#q-{second.public_id}")).to_have_count(0)
    page.keyboard.press(".")
    expect(page.locator(f"#q-{second.public_id}")).to_be_visible()
    expect(page.locator("#news")).to_be_hidden()
    expect(page.locator(f"#q-{first.public_id} [data-pick]")).to_be_checked()
    expect(page.locator("[data-picked]")).to_be_visible()


@pytest.mark.layout
def test_ones_own_answer_is_no_news(ada, rosa, window_of: PageAs):
    """The list has let go of it already; the next one that is announced is really new."""
    first, second = asked(ada, "one.txt"), asked(ada, "two.txt")
    page = watch(window_of(rosa), f"?item={first.public_id}")
    page.evaluate(NOTE_NEWS)
    page.locator(f"#q-{second.public_id}").hover()
    press_approve(page)
    expect(page.locator(f"#q-{first.public_id}")).to_have_count(0)
    expect(page.locator("#waiting-side")).to_contain_text("1")
    asked(ada, "three.txt")
    expect(page.locator("#news")).to_contain_text("1 new, press")
    assert page.evaluate("[...new Set(window.news)]") == ["1 new, press"]


@pytest.mark.layout
def test_what_leaves_under_the_pointer_is_struck_out_first(ada, rosa, tomas, window_of: PageAs):
    """It goes when the pointer does; below, nothing has moved until then."""
    first, second = asked(ada, "one.txt"), asked(ada, "two.txt")
    page = watch(window_of(rosa))
    page.locator(f"#q-{second.public_id}").hover()
    decide(first, by=tomas, decision=rejection(first, "No."))
    expect(page.locator(f"#q-{first.public_id}")).to_have_attribute("data-over", "")
    page.locator("#main .detail").hover()
    expect(page.locator(f"#q-{first.public_id}")).to_have_count(0)
    expect(page.locator(f"#q-{second.public_id}")).to_be_visible()


def test_a_decision_with_the_socket_down(ada, rosa, window_of: PageAs, complaints: list[str]):
    """The page says that it is out of date, and deciding works."""
    request = asked(ada, "one.txt")
    page = window_of(rosa)
    page.route_web_socket("**/ws/**", close)
    page.goto("/approvals/")
    expect(page.locator("#net")).to_contain_text("Decisions still work")
    press_approve(page)
    becomes(request, "approved")
    expect(page.locator(f"#q-{request.public_id}")).to_have_count(0)
    complaints.clear()


def close(socket: Any) -> None:
    """End a socket as soon as it opens."""
    socket.close(code=1011)


@pytest.mark.layout
def test_what_changed_while_the_page_was_not_live_is_shown(ada, rosa, tomas, window_of: PageAs):
    """The page was drawn before it, and its socket opened after it: as for who just came, and for who reconnects."""
    request = asked(ada, "one.txt")
    page = window_of(rosa)
    said: list[object] = []
    page.route_web_socket("**/ws/**", lambda socket: socket.connect_to_server() if said else close(socket))
    page.goto(f"/approvals/?item={request.public_id}")
    said.append(coordination.comment(request, by=tomas, text="Is this the right file?"))
    expect(page.locator("#pane")).to_contain_text("Is this the right file?")


@pytest.mark.layout
def test_who_reconnects_is_told_what_came_after_the_open_request_was_drawn(ada, rosa, tomas, window_of: PageAs):
    """The page itself was drawn before: of the request that was opened since, nothing is news that it shows."""
    first, second = asked(ada, "one.txt"), asked(ada, "two.txt")
    page = window_of(rosa)
    sockets: list[Any] = []

    def noted(socket: Any) -> None:
        sockets.append(socket)
        socket.connect_to_server()

    page.route_web_socket("**/ws/**", noted)
    watch(page, f"?item={first.public_id}")
    coordination.comment(second, by=tomas, text="Is this the right file?")
    page.locator(f"#q-{second.public_id} a").click()
    expect(page.locator("#pane")).to_contain_text("Is this the right file?")
    sockets[0].close(code=1011)
    eventually(lambda: page.title() and len(sockets) > 1, what="another socket")  # what is asked lets the page go on
    then, now = (int(parse_qs(urlsplit(socket.url).query)["after"][0]) for socket in (sockets[0], sockets[-1]))
    assert then < now == request_for(rosa, second.public_id).audit_seq  # type: ignore[attr-defined] # see request_for


@pytest.mark.layout
def test_a_look_that_came_to_nothing_is_made_again(ada, rosa, tomas, window_of: PageAs, complaints: list[str]):
    """With the next change, although that looks the same; the list stays the saved view that it was."""
    request = asked(ada, "one.txt")
    page = window_of(rosa)
    page.route("**/approvals/?item=*", lambda route: route.abort(), times=1)
    watch(page, f"?status=needs_me&item={request.public_id}")
    with page.expect_event("requestfailed"):
        coordination.comment(request, by=tomas, text="Is this the right file?")
    coordination.comment(request, by=tomas, text="Or the other?")
    expect(page.locator("#pane")).to_contain_text("Or the other?")
    expect(page.locator("form.decide [name=status]")).to_have_value("needs_me")
    complaints.clear()


def test_what_someone_writes_is_not_taken_from_them(ada, rosa, tomas, window_of: PageAs):
    """They are told that the request has changed, look when they want to, and their words are still there."""
    request = asked(ada, "one.txt")
    page = watch(window_of(rosa), f"?item={request.public_id}")
    page.locator("#note").fill("As agreed with")
    coordination.comment(request, by=tomas, text="Is this the right file?")
    expect(page.locator("[data-newer]")).to_contain_text("has changed while you were writing")
    expect(page.locator("#note")).to_have_value("As agreed with")
    expect(page.locator("html[data-busy]")).to_have_count(0)  # nothing was asked, so nothing is on its way
    page.get_by_role("button", name="Show it as it is").click()
    expect(page.locator("#pane")).to_contain_text("Is this the right file?")
    expect(page.locator("#note")).to_have_value("As agreed with")
