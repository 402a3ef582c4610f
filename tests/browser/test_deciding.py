"""Decisions by keyboard, mouse and touch: single and double presses, keys without effect."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, Route, expect

from approvals.models import ApprovalRequest, Review
from approvals.reviews.decisions import decide
from catalog.core import clock
from tests import counts
from tests.approvals.factories import PREVIEW, approval, ask, make_tool, rejection, set_rule
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import LONG, PHONE, becomes, open_inbox
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
HELD_BACK = """window.heldBack = [];
    window.IntersectionObserver = class extends IntersectionObserver {
      constructor(tell, options) { super((entries) => heldBack.push(() => tell(entries, this)), options); }
    }"""
IS_UNCOVERED = """link => {
      const box = link.getBoundingClientRect();
      return link.contains(document.elementFromPoint(box.x + 4, box.y + box.height / 2));
    }"""
TELL = "heldBack.splice(0).forEach((each) => each())"


@pytest.fixture(autouse=True)
def undo_window(settings) -> None:
    """Set an undo window that is long enough for slow machines."""
    settings.TOOLGATE_UNDO_SECONDS = 60


def wipe(by: User) -> ApprovalRequest:
    """Request a call that cannot be undone."""
    return ask(by, make_tool("wipe_note", reversibility="irreversible"))


def is_unlocked(page: Page) -> bool:
    """Return True if A would approve."""
    return page.locator(".button.go[data-unread]").count() == 0


def test_a_approves_and_z_undoes(ada, rosa, page_as: PageAs):
    """The next request opens and the counts follow. Z undoes one's decisions, the last first."""
    first, second = ask(ada), ask(ada)
    page = page_as(rosa)
    open_inbox(page)
    expect(page).to_have_title("(2) Approvals · Toolgate")
    press_approve(page)
    becomes(first, "approved")
    expect(page.locator(f"#detail[data-shown=q-{second.public_id}]")).to_be_visible()
    expect(page.locator(f"#q-{first.public_id}")).to_have_count(0)
    expect(page.locator("#waiting-side")).to_contain_text("1")
    expect(page.locator("#toasts")).to_contain_text("Approved. The call starts in")
    press_approve(page)
    for answered in (second, first):
        expect(page.locator(f'#toasts form[action*="{answered.public_id}"]')).to_be_visible()
        page.keyboard.press("z")
        becomes(answered, "pending")
        expect(page.locator(f"#q-{answered.public_id}[aria-current=true]")).to_be_visible()
    expect(page.locator("#toasts form")).to_have_count(0)
    expect(page).to_have_title("(2) Approvals · Toolgate")


def test_second_press_does_not_decide_the_next_request(ada, rosa, page_as: PageAs):
    """Keys and clicks are ignored for 700 ms after the next request has opened."""
    first, second, page = ask(ada), ask(ada), page_as(rosa)
    page.clock.install()
    open_inbox(page)
    page.clock.pause_at(clock.now() + timedelta(hours=1))
    press_approve(page)
    becomes(first, "approved")
    expect(page.locator(f"#detail[data-shown=q-{second.public_id}]")).to_be_visible()
    page.keyboard.press("a")
    page.locator("form.decide [value=reject]").click()
    expect(page.locator("html[data-busy]")).to_have_count(0)
    assert Review.objects.count() == 1
    page.clock.run_for(800)
    press_approve(page)
    becomes(second, "approved")


def test_bar_keeps_its_place_while_requests_are_cleared_by_mouse(ada, rosa, page_as: PageAs):
    """The pointer never has to follow: reading to the end, second presses and votes change neither place nor size."""
    irreversible = make_tool("wipe_note", reversibility="irreversible")
    for number in range(counts.count(20, 4)):
        ask(ada, irreversible if number % 4 == 3 else None, preview=LONG if number % 2 else PREVIEW)
    page = page_as(rosa)
    open_inbox(page)
    button, bar = page.locator("form.decide .go"), page.locator("form.decide")
    places = [button.bounding_box(), bar.bounding_box()]
    assert places[0] is not None
    middle = (places[0]["x"] + places[0]["width"] / 2, places[0]["y"] + places[0]["height"] / 2)
    while ApprovalRequest.objects.filter(status="pending").exists():
        expect(page.locator("form[data-fresh]")).to_have_count(0)
        assert [button.bounding_box(), bar.bounding_box()] == places
        page.mouse.click(*middle)
        expect(page.locator("html[data-busy]")).to_have_count(0)


@pytest.mark.layout
def test_undo_button_is_removed_after_the_undo_window(ada, rosa, settings, page_as: PageAs):
    """The list of decided requests has no socket that would announce the end of the window."""
    held = ask(ada)
    decide(held, by=rosa, decision=rejection(held, "No.", channel="page"))
    page = page_as(rosa)
    page.clock.install()
    open_inbox(page, f"?status=decided&item={held.public_id}")
    expect(page.locator("[data-undo][data-key=z]")).to_be_visible()
    page.clock.fast_forward(60_000)
    expect(page.locator("[data-undo]")).to_have_count(0)


def test_irreversible_call_needs_two_presses(ada, rosa, page_as: PageAs):
    """The first press shows why, the button stays under the pointer, and after four seconds it is disarmed."""
    request, page = wipe(ada), page_as(rosa)
    page.clock.install()
    open_inbox(page)
    expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
    place = page.locator(".button.go").bounding_box()
    press_approve(page)
    expect(page.locator(".button.go.armed")).to_contain_text("this cannot be undone")
    assert page.locator(".button.go").bounding_box() == place
    page.clock.run_for(4100)
    expect(page.locator(".button.go.armed")).to_have_count(0)
    assert not Review.objects.exists()
    press_approve(page)
    page.keyboard.press("a")
    becomes(request, "approved")


@pytest.mark.parametrize(("key", "status"), [("d", "rejected"), ("c", "changes_requested")])
def test_bar_is_the_answer_that_was_chosen_until_it_is_recorded(ada, rosa, page_as: PageAs, key, status):
    """A refusal by the server and a redrawn request keep it; Escape offers all answers again."""
    request, page = wipe(ada), page_as(rosa)
    open_inbox(page)
    approve, chosen = page.locator("form.decide .go"), page.locator("form.decide [data-answer]:visible")
    page.keyboard.press(key)
    expect(page.locator("#note")).to_be_focused()
    expect(approve).to_be_hidden()
    expect(chosen).to_have_count(1)
    page.keyboard.press("Escape")
    expect(approve).to_be_visible()
    page.keyboard.press(key)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#note-e[data-setback=comment]")).to_be_visible()
    expect(approve).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#note-e")).to_have_count(0)
    page.keyboard.press(key)
    page.locator("#thread > summary").click()
    page.locator("#ask").fill("Why?")
    page.locator("#ask").press("Control+Enter")
    expect(page.locator("#thread")).to_contain_text("Why?")
    expect(approve).to_be_hidden()
    page.locator("#note").fill("Not this one")
    page.keyboard.press("Control+Enter")
    becomes(request, status)
    assert Review.objects.get().comment == "Not this one"


def test_enter_in_a_field_decides_nothing(ada, rosa, page_as: PageAs):
    """Neither with Control, as no answer is chosen, nor without scripts by the form's default button."""
    set_rule(typed_target=True)
    ask(ada)
    sent: list[Route] = []
    for scripted in (True, False):
        page = page_as(rosa, java_script_enabled=scripted)
        page.route("**/decision/", lambda route: sent.append(route))
        page.goto("/approvals/")
        page.locator("#typed").fill("note.txt")
        page.locator("#typed").press("Enter")
        page.locator("#note").fill("Fine by me")
        page.locator("#note").press("Control+Enter")
        if scripted:
            expect(page.locator("#toasts .toast")).to_contain_text("Nothing was sent")
    assert sent == [] and not Review.objects.exists()


def test_letters_in_the_note_and_disabled_keys_decide_nothing(ada, rosa, page_as: PageAs):
    ask(ada)
    page = page_as(rosa)
    open_inbox(page)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.locator("#note").press_sequentially("add a z")
    expect(page.locator("#note")).to_have_value("add a z")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("#keys-on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.evaluate("() => new Promise(requestAnimationFrame)")  # what a key does, it does at once
    assert [url for url in sent if "/decision/" in url] == []
    assert not Review.objects.exists()


@pytest.mark.layout
def test_typing_while_a_decision_is_sent_decides_nothing(ada, rosa, page_as: PageAs):
    """The focused note is replaced together with its request; letters count as keys again after a pause."""
    first, second, page, sent = ask(ada), ask(ada), page_as(rosa), []
    page.clock.install()
    page.route("**/decision/", lambda route: sent.append(route))
    open_inbox(page)
    with page.expect_request("**/decision/"):
        press_approve(page)
    page.keyboard.press("d")
    page.keyboard.type("no, ")
    page.clock.pause_at(clock.now() + timedelta(hours=1))
    sent.pop().continue_()
    page.wait_for_selector(f"#detail[data-shown=q-{second.public_id}]")
    for letter in "not again":
        page.clock.run_for(100)
        page.keyboard.press(letter)
    becomes(first, "approved")
    assert sent == []
    page.clock.run_for(1100)
    page.keyboard.press("d")
    expect(page.locator("#note")).to_be_focused()


def test_keys_decide_nothing_while_a_request_loads(ada, rosa, page_as: PageAs, complaints):
    """Neither the selected request nor the displayed one is approved unseen; a failed load restores the selection."""
    first, second, page, asked = ask(ada), ask(ada), page_as(rosa), []
    page.route(f"**/approvals/?item={second.public_id}", lambda route: asked.append(route))
    open_inbox(page)
    current, approving = page.locator("#queue [aria-current]"), page.locator("form[data-decide] [value=approve]")
    for come in ("abort", "continue_"):
        with page.expect_request(f"**/approvals/?item={second.public_id}"):
            page.keyboard.press("j")
        expect(page.locator("#pane[aria-busy=true]")).to_be_visible()
        expect(current).to_have_id(f"q-{second.public_id}")
        expect(approving).to_be_disabled()
        press_approve(page)
        expect(page.locator("#announce")).to_contain_text("being opened")
        getattr(asked.pop(), come)()
        expect(page.locator("#pane:not([aria-busy])")).to_be_visible()
        expect(current).to_have_id(f"q-{(first if come == 'abort' else second).public_id}")
        expect(approving).to_be_enabled()
    page.wait_for_selector(f"#detail[data-shown=q-{second.public_id}]")
    complaints.clear()
    assert not Review.objects.exists()
    press_approve(page)
    becomes(second, "approved")
    becomes(first, "pending")


TOLD = """() => {
  window.told = [];
  const region = document.getElementById("announce");
  const keep = () => { if (region.textContent) told.push(region.textContent); };
  new MutationObserver(keep).observe(region, {childList: true});
}"""
WAIT = "Your answer is being sent. Press again when that is done."


def told(page: Page) -> list[str]:
    """Return the announcements to wait since the last call, after all pending ones."""
    found: list[str] = page.evaluate(
        """text => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
        () => done(told.splice(0).filter((each) => each === text)))))""",
        WAIT,
    )
    return found


@pytest.mark.layout
def test_moving_while_a_decision_is_sent_keeps_its_undo(ada, rosa, page_as: PageAs):
    """The response still updates the list, the next request and the undo message."""
    first, second, _third, page, sent = ask(ada), ask(ada), ask(ada), page_as(rosa), []
    page.route("**/decision/", lambda route: sent.append(route))
    open_inbox(page)
    with page.expect_request("**/decision/"):
        press_approve(page)
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.locator(f"#q-{second.public_id} a").click()
    expect(page.locator("[data-item][aria-current]")).to_have_id(f"q-{first.public_id}")
    sent.pop().continue_()
    expect(page.locator("#toasts")).to_contain_text("Approved. The call starts in")
    expect(page.locator(f"#q-{first.public_id}")).to_have_count(0)
    expect(page.locator(f"#detail[data-shown=q-{second.public_id}]")).to_be_visible()


@pytest.mark.layout
def test_wait_is_announced_once_per_decision(ada, rosa, page_as: PageAs):
    first, second, page, sent = ask(ada), ask(ada), page_as(rosa), []
    page.route("**/decision/", lambda route: sent.append(route))
    open_inbox(page)
    page.evaluate(TOLD)
    for answered, key, then in ((first, "j", "e"), (second, "e", "j")):
        page.wait_for_selector(f"#detail[data-shown=q-{answered.public_id}]")
        with page.expect_request("**/decision/"):
            press_approve(page)
        page.keyboard.press(key)
        assert told(page) == [WAIT]
        page.keyboard.press(then)
        page.locator(f"#q-{second.public_id} a").click()
        assert told(page) == []
        sent.pop().continue_()
        becomes(answered, "approved")


def test_j_and_k_move_through_the_list(ada, rosa, page_as: PageAs):
    """The URL follows, a reload shows the same request, and no heading of the list covers it."""
    requests = [ask(ada) for _ in range(3)]
    page = page_as(rosa, viewport={"width": 1280, "height": 380})
    open_inbox(page)
    for key, place in (("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        expect(page.locator(f"#detail[data-shown=q-{requests[place].public_id}]")).to_be_visible()
        expect(page.locator("[data-item][aria-current]")).to_have_id(f"q-{requests[place].public_id}")
        assert page.locator("[data-item][aria-current] .title a").evaluate(IS_UNCOVERED)
    expect(page).to_have_url(f"/approvals/?item={requests[1].public_id}")
    page.reload()
    expect(page.locator("[data-item][aria-current]")).to_have_id(f"q-{requests[1].public_id}")


def test_first_press_shows_the_rest_of_a_long_change(ada, rosa, page_as: PageAs):
    request, page = ask(ada, preview=LONG), page_as(rosa)
    open_inbox(page)
    expect(page.locator(".button.go")).to_contain_text("Read the rest")
    page.keyboard.press("a")
    expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
    assert not Review.objects.exists()
    page.keyboard.press("a")
    becomes(request, "approved")


@pytest.mark.layout
def test_late_observer_events_of_the_previous_request(ada, rosa, page_as: PageAs):
    """On a busy machine they arrive after the next request has opened; its end is still observed."""
    ask(ada, preview=LONG)
    second, page = ask(ada, preview=LONG), page_as(rosa)
    page.add_init_script(HELD_BACK)
    open_inbox(page)
    page.keyboard.press("j")
    page.wait_for_selector(f"#detail[data-shown=q-{second.public_id}]")
    page.evaluate(TELL)
    page.keyboard.press("a")
    eventually(lambda: page.evaluate(TELL) or is_unlocked(page), what="the end of the change on the screen")
    press_approve(page)
    becomes(second, "approved")


def test_request_decided_by_someone_else(ada, rosa, tomas, page_as: PageAs):
    """The reason is shown, and the form is gone."""
    request, page = ask(ada), page_as(rosa)
    open_inbox(page)
    decide(request, by=tomas, decision=approval(request, channel="page"))
    press_approve(page)
    expect(page.locator("[role=alert]")).to_contain_text("Tomas approved this")
    expect(page.locator("form.decide")).to_have_count(0)


@pytest.mark.layout
def test_unsaved_decision_is_reported_and_can_be_repeated(ada, rosa, page_as: PageAs, complaints):
    """The answer is lost after the server recorded the decision, so the page must not say that nothing ran."""
    ask(ada)
    page = page_as(rosa)

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/decision/", lose)
    open_inbox(page)
    press_approve(page)
    expect(page.locator("#toasts")).to_contain_text("may have been saved")
    page.unroute("**/decision/")
    press_approve(page)
    expect(page.locator("[data-setback=taken]")).to_be_visible()
    complaints.clear()


@pytest.mark.layout
def test_approval_on_a_phone(ada, rosa, page_as: PageAs):
    """First the list, then the request on the entire screen; back leads to the list."""
    ask(ada)
    request, page = ask(ada, preview=LONG), page_as(rosa, **PHONE)
    open_inbox(page)
    expect(page.locator("#detail")).to_be_hidden()
    page.locator(f"#q-{request.public_id} a").tap()
    expect(page.locator("#tabbar")).to_be_hidden()
    page.go_back()
    expect(page.locator("#tabbar")).to_be_visible()
    page.go_forward()
    page.locator(".button.go").tap()
    expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
    page.locator(".button.go").tap()
    becomes(request, "approved")


@pytest.mark.layout
def test_next_request_on_a_phone_starts_at_its_top(ada, rosa, tomas, page_as: PageAs):
    """So does the reason for which a decision was refused."""
    first, second = ask(ada, preview=LONG), ask(ada, preview=LONG)
    page = page_as(rosa, **PHONE)
    open_inbox(page, f"?item={first.public_id}")
    for request in (first, second):
        expect(page.locator("form[data-fresh]")).to_have_count(0)
        page.locator(".button.go").tap()
        expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
        eventually(lambda: page.evaluate("scrollY") > 600, what="scrolled to the end")
        if request == second:
            decide(second, by=tomas, decision=approval(second))
        page.locator(".button.go").tap()
        becomes(request, "approved")
        eventually(lambda: page.evaluate("scrollY") == 0, what="at its top")
    expect(page.locator("#detail")).to_contain_text("was not recorded.")
