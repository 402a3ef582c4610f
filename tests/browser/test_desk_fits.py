"""Every state of the desk on small screens, with forced colours and without motion: whole, named, nothing sideways."""

import pytest
from playwright.sync_api import Page, expect

from approvals.models import Round
from catalog.canonical import canonical_text
from tests.approvals.builders import PREVIEW, ask, make_tool, set_rule
from tests.approvals.deceptions import DECEPTIONS
from tests.browser.conftest import PageAs, press_approve
from tests.browser.test_deciding import LONG, PHONE, SCROLLING, open_inbox
from tests.browser.test_reading import DOUBLE_IDS, LOST_NAMES, SMALL_TARGETS
from tests.browser.test_reviewing import look
from tests.builders import make_plan, request_of, work_off, write_step
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
STATES = ["", "&view=edit", "&view=respond", "&view=json"]
NAMELESS = """[...document.querySelectorAll("button, a[href], summary, input:not([type=hidden]), select, textarea")]
    .filter((part) => part.checkVisibility() && !part.textContent.trim() && !part.labels?.length)
    .filter((part) => !part.getAttribute("aria-label") && !part.getAttribute("aria-labelledby"))
    .map((part) => part.outerHTML.slice(0, 120))"""
ROOM = """(note) => { const pen = document.createElement("canvas").getContext("2d"), style = getComputedStyle(note);
    pen.font = style.font;
    const inner = note.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return [inner, pen.measureText(note.placeholder).width] }"""
MOVING = "document.getAnimations().filter((each) => each.playState === 'running').length"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.usefixtures("catalog", "workspace")
def test_every_state_is_whole(ada, rosa, page_as: PageAs, state):
    """No sideways scroll, large targets, ids once, every control has a name, every name leads somewhere."""
    set_rule(typed_target=True)
    request = request_of(work_off(make_plan(ada, write_step(1, "note.txt", "hello\n"))))
    page = page_as(rosa)
    for width in (320, 390, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        open_inbox(page, f"?item={request.public_id}{state}")
        look(page, f"state{state.replace('&view=', '-')}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        for rule in (SMALL_TARGETS, DOUBLE_IDS, LOST_NAMES, NAMELESS):
            assert page.evaluate(rule) == [], (width, rule[:60])
        if not state:
            page.locator("details.menu > summary").click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, width
            assert page.evaluate(SMALL_TARGETS) == [], width


def test_the_page_around_the_desk_does_not_scroll(ada, rosa, page_as: PageAs):
    """What is long scrolls inside the list and the request; beside them there is nothing to scroll to."""
    requests = [ask(ada) for _ in range(12)]
    page = page_as(rosa, viewport={"width": 1440, "height": 500})
    for state in ("", "&view=edit", "&view=respond"):
        open_inbox(page, f"?item={requests[-1].public_id}{state}")
        assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0, state


def test_the_bar_has_room_for_what_the_note_asks(ada, rosa, page_as: PageAs):
    """Its words are whole; More stands beside Reject."""
    page = page_as(rosa)
    request = ask(ada)
    for width in (390, 1280, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        open_inbox(page, f"?item={request.public_id}")
        room, words = page.locator("#note").evaluate(ROOM)
        assert words <= room, width
        stop, more = boxes(page, ".stop", ".menu > summary")
        assert stop["y"] == more["y"], width


def test_no_answer_drops_into_another_row(ada, rosa, page_as: PageAs):
    """What can be pressed beside Approve stands in one line between phone and desk, also while Approve asks again."""
    request = ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    page = page_as(rosa)
    for width in (740, 800, 905, 1100, 1180, 1241, 1301):
        page.set_viewport_size({"width": width, "height": 800})
        open_inbox(page, f"?item={request.public_id}")
        assert_one_row(page, width)
        press_approve(page)
        expect(page.locator(".btn.go.armed")).to_be_visible()
        assert_one_row(page, width)


def boxes(page: Page, *parts: str) -> list[dict[str, float]]:
    """Return where parts of the bar are, at one moment: it is laid out anew when Approve opens."""
    found: list[dict[str, float]] = page.locator(".decide").evaluate(
        "(bar, parts) => parts.map(part => bar.querySelector(part).getBoundingClientRect().toJSON())", parts
    )
    return found


def assert_one_row(page: Page, width: int) -> None:
    """What can be pressed in the bar stands at one height, whole."""
    rows = {round(box["y"] + box["height"] / 2) for box in boxes(page, ".desk", ".stop", ".menu > summary")}
    assert len(rows) == 1, width
    assert page.locator(".decide").evaluate("bar => bar.scrollWidth <= bar.clientWidth"), width


@pytest.mark.parametrize("following", [PREVIEW, LONG], ids=["short", "long"])
@pytest.mark.parametrize("width", [390, 800, 1280, 1310, 1440, 1600])
def test_a_toast_covers_no_answer(ada, rosa, page_as: PageAs, width, following):
    """It stands above the bar: whoever reaches for an answer does not undo the last one, nor who reads on."""
    requests = [ask(ada), ask(ada, preview=following)]
    page = page_as(rosa, viewport={"width": width, "height": 800})
    open_inbox(page, f"?item={requests[0].public_id}")
    page.locator("#diff-end").scroll_into_view_if_needed()
    page.locator(".btn.go:not([data-unread])").click()
    toast, bar = page.locator(".toast").bounding_box(), page.locator(".decide").bounding_box()
    assert toast and bar and toast["y"] + toast["height"] <= bar["y"]


@pytest.mark.parametrize(("width", "beside"), [(390, False), (1280, True)])
@pytest.mark.usefixtures("catalog", "workspace")
def test_an_edit_stands_beside_what_was_where_there_is_room(ada, rosa, page_as: PageAs, width, beside):
    """Else below it; each line has the room of its column, also where the first row is a gap."""
    request = request_of(work_off(make_plan(ada, write_step(1, "note.txt", "one\n" * 9))))
    page = page_as(rosa, viewport={"width": width, "height": 800})
    open_inbox(page, f"?item={request.public_id}&view=edit")
    page.locator("#f-path").fill("other.txt")
    old, new = page.locator("#edited .both td:nth-child(3)"), page.locator("#edited .both td:last-child")
    expect(new).to_contain_text("other.txt")
    look(page, f"beside-{width}")
    boxes = [each.bounding_box() for each in (old, new)]
    assert boxes[0] and boxes[1] and min(box["width"] for box in boxes if box) > 220
    assert (boxes[0]["y"] == boxes[1]["y"]) is beside
    bar = [page.locator(part).bounding_box() for part in ("#args-edit", ".decide .btn.go")]
    assert bar[0] and bar[1] and bar[0]["x"] == bar[1]["x"]


@pytest.mark.parametrize("width", [320, 1440])
def test_several_fit(ada, rosa, page_as: PageAs, width):
    """The table of what differs scrolls inside itself, as tables may."""
    requests = [ask(ada), ask(ada, make_tool("other_note"))]
    page = page_as(rosa, viewport={"width": width, "height": 800})
    open_inbox(page, "several/?" + "&".join(f"item={each.public_id}" for each in requests))
    look(page, f"several-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for rule in (SMALL_TARGETS, DOUBLE_IDS, LOST_NAMES, NAMELESS):
        assert page.evaluate(rule) == [], rule[:60]


@pytest.mark.parametrize("scripts", [True, False])
def test_a_thumb_selects_several(ada, rosa, page_as: PageAs, scripts):
    """On a phone the boxes are there, large enough; what is pressed next lies above the tabs. Without scripts too."""
    requests = [ask(ada), ask(ada)]
    page = page_as(rosa, **PHONE, java_script_enabled=scripts)
    open_inbox(page) if scripts else page.goto("/approvals/")
    for request in requests:
        box = page.locator(f"#q-{request.public_id} label.hit")
        size = box.bounding_box()
        assert size is not None and min(size["width"], size["height"]) >= 40
        title = page.locator(f"#q-{request.public_id} .t").bounding_box()
        assert title is not None and title["x"] < 80, "the title begins beside the box"
        box.click()
    page.get_by_role("button", name="Answer together").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 requests for write_note")


def test_the_foot_of_the_list_is_not_under_the_tabs(ada, rosa, page_as: PageAs):
    """On a phone its links can be pressed, however long the list."""
    for _ in range(12):
        ask(ada)
    page = page_as(rosa, **PHONE)
    open_inbox(page)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.get_by_role("link", name="Insights").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Insights")


def test_forced_colours_and_no_motion(ada, rosa, page_as: PageAs):
    """Nothing moves, and what is said by colour is said by words."""
    ask(ada)
    page = page_as(rosa, forced_colors="active", reduced_motion="reduce")
    open_inbox(page)
    expect(page.locator(".btn.go")).to_contain_text("Approve and run")
    eventually(lambda: page.evaluate(MOVING) == 0, what="the end of all that moves")


def test_a_slice_of_deceptions_is_inert_in_a_browser(ada, rosa, page_as: PageAs):
    """No script ran, nothing loaded, nothing sideways; the bar is where it was and says what it said."""
    request, page = ask(ada), page_as(rosa, **PHONE)
    for deception in DECEPTIONS[::9]:
        Round.objects.update(arguments=canonical_text({"content": deception.value}), preview="")
        page.goto(f"/approvals/?item={request.public_id}")
        expect(page.locator(".btn.go")).to_have_count(1)
        assert page.evaluate(SCROLLING) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, deception
        assert page.locator("main form").count() == page.locator("main form[method]").count()
    assert not request.reviews.exists()
