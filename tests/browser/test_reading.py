"""Reading with the address as the only state, and what every page owes to small screens and to keyboards."""

import pytest
from playwright.sync_api import expect

from approvals.audit import Line, append
from approvals.models import AuditEntry
from catalog.models import Tool
from plans.controls import pause_plan
from plans.services import Requester
from tests.approvals.builders import ask, make_tool
from tests.browser.conftest import PageAs
from tests.builders import act, make_plan, work_off
from tests.plans.agents.scripted import make_agent

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
PAGES = [
    *("/approvals/", "/approvals/?status=decided", "/approvals/?status=snoozed", "/approvals/?item=none"),
    *("/approvals/grants/", "/approvals/insights/", "/approvals/several/", "/audit/", "/audit/deliveries/"),
    *("/policies/", "/policies/new/", "/policies/simulator/", "/profile/notifications/"),
    *("/agents/", "/agents/new/", "/agents/ann/"),
    *("/plans/", "/plans/new/", "/tools/", "/tools/write_file/", "/tools/write_file/versions/"),
]
SMALL_TARGETS = """[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea")]
    .filter((part) => part.checkVisibility() && !part.closest("p, .note, .skiplink, .name, .t, .sr"))
    .map((part) => [part, (part.closest("label") ?? part).getBoundingClientRect()])
    .filter(([part, box]) => box.width && (box.width < 24 || box.height < 24))
    .map(([part]) => part.outerHTML.slice(0, 120))"""
DOUBLE_IDS = """[...document.querySelectorAll("[id]")].map((part) => part.id)
    .filter((id, place, all) => all.indexOf(id) !== place)"""
LOST_NAMES = """[...document.querySelectorAll("[aria-controls], [aria-describedby], [aria-labelledby]")]
    .flatMap((part) => ["aria-controls", "aria-describedby", "aria-labelledby"].map((name) => part.getAttribute(name)))
    .flatMap((ids) => ids?.split(" "))
    .filter((id) => id && !document.getElementById(id))"""

HEADINGS = "[...document.querySelectorAll('h1')].filter((part) => part.checkVisibility()).length"


def test_filters_live_in_the_address(rosa, catalog, page_as: PageAs):
    """Choosing adds to the history, typing does not; Back goes through the states."""
    page = page_as(rosa)
    page.goto("/tools/")
    page.get_by_label("Dangerous").check()
    expect(page).to_have_url("/tools/?safety_level=dangerous")
    expect(page.locator("#n")).to_have_text(f"4 of {Tool.objects.count()} tools")
    expect(page.locator('label:has(input[value="finance"]) .n')).to_have_text("0")
    page.keyboard.press("/")
    page.locator("#q").press_sequentially("delete")
    expect(page).to_have_url("/tools/?q=delete&safety_level=dangerous")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator(".tools tbody tr")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url("/tools/")
    expect(page.locator(".tools tbody tr")).to_have_count(Tool.objects.count())
    expect(page.locator("#side")).to_be_visible()


def test_filters_without_javascript(rosa, catalog, page_as: PageAs):
    """A button sends them."""
    page = page_as(rosa, java_script_enabled=False)
    page.goto("/tools/")
    page.get_by_label("Cautious").check()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".tools tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Remove filter Cautious").click()
    expect(page.locator(".tools tbody tr")).to_have_count(Tool.objects.count())


def test_schema_tabs_follow_the_arrows(rosa, catalog, page_as: PageAs):
    """The address too; copying takes what is shown."""
    page = page_as(rosa, permissions=["clipboard-read", "clipboard-write"])
    page.goto("/tools/write_file/")
    page.get_by_role("tab", name="OpenAI").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#sp-mcp")).to_be_visible()
    expect(page.locator("#sp-openai")).to_be_hidden()
    expect(page).to_have_url("/tools/write_file/?schema=mcp")
    page.locator("#sp-mcp").get_by_role("button", name="Copy").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    assert '"inputSchema"' in page.evaluate("navigator.clipboard.readText()")


def test_an_audit_entry_opens_and_the_chain_is_checked(admin, page_as: PageAs):
    """In place, without leaving the page."""
    entry = AuditEntry.objects.get(seq=append(Line(action="tool.tested", by=admin, tool_name="x")))
    page = page_as(admin)
    page.goto("/audit/")
    expect(page.locator(f"#x-{entry.seq}")).to_be_hidden()
    page.get_by_label(f"Details of entry {entry.seq}").click()
    expect(page.locator(f"#x-{entry.seq}")).to_contain_text(entry.hash)
    page.get_by_role("button", name="Check the chain").click()
    expect(page.locator("#chain")).to_contain_text("Chain intact")


@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.usefixtures("catalog")
def test_every_page_fits_and_is_whole(admin, ada, page_as: PageAs, width):
    """No sideways scroll, targets large enough, one heading, ids once, every name leads somewhere."""
    ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    make_agent()
    page = page_as(admin, viewport={"width": width, "height": 800})
    for path in PAGES:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        for rule in (SMALL_TARGETS, DOUBLE_IDS, LOST_NAMES):
            assert page.evaluate(rule) == [], (path, rule[:60])
        assert page.evaluate(HEADINGS) == 1, path


@pytest.mark.parametrize("width", [721, 900, 1000, 1100, 1180])
def test_the_audit_log_fits_between_phone_and_desk(admin, ada, page_as: PageAs, width):
    """With long names, plans and ids in its rows."""
    ada.first_name, ada.last_name = "Wilhelmina", "Featherstonehaugh"
    ada.save()
    held = ask(ada, make_tool("send_registration_email"))
    append(Line(action="approval.requested", by=ada, tool_name="send_registration_email", object_ref=held.public_id))
    page = page_as(admin, viewport={"width": width, "height": 800})
    page.goto("/audit/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_plans_fit_between_phone_and_desk(stage, ada, page_as: PageAs):
    """With long goals, names and states; goals keep room to be read."""
    ada.first_name, ada.last_name = "Wilhelmina", "Featherstonehaugh"
    ada.save()
    pause_plan(work_off(make_plan(ada, act(1, "x", "dangerous"), goal="Tell " + "everybody " * 20)), by=Requester(ada))
    page = page_as(ada)
    for width in (721, 900, 901, 1081):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/plans/")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".plans .goal a").evaluate("goal => goal.clientWidth") >= 140, width


@pytest.mark.parametrize("width", [320, 721, 1100, 1180, 1440])
def test_nothing_of_the_queues_head_and_foot_is_cut_off(ada, rosa, page_as: PageAs, width):
    """Every view and every link of the list is on the screen."""
    ask(ada)
    page = page_as(rosa, viewport={"width": width, "height": 800})
    page.goto("/approvals/")
    cut = "parts => parts.filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.className)"
    assert page.locator(".inbox-l .views, .inbox-l .foot").evaluate_all(cut) == []


@pytest.mark.parametrize("width", [1081, 1181, 1241, 1321])
def test_the_timeline_has_room_for_its_scale(stage, ada, page_as: PageAs, width):
    """Between phone and desk, with the step beside or above it."""
    plan = make_plan(ada, act(1, "x"))
    page = page_as(ada, viewport={"width": width, "height": 800})
    page.goto(f"/plans/{plan.public_id}/")
    assert page.locator("#axis .ax").evaluate("scale => scale.getBoundingClientRect().width") >= 120


@pytest.mark.usefixtures("catalog")
def test_filters_are_low_chips_on_a_phone(rosa, page_as: PageAs):
    """Whatever the tallest of them holds."""
    page = page_as(rosa, viewport={"width": 390, "height": 844})
    page.goto("/tools/")
    heights = page.locator(".facets .check").evaluate_all("chips => chips.map((chip) => chip.offsetHeight)")
    assert heights and max(heights) <= 44


OVERLAPPING = """[...document.querySelectorAll(".tabs a")].map((part) => [part, document.createRange()])
    .map(([part, range]) => (range.selectNodeContents(part), [part.textContent, range.getBoundingClientRect()]))
    .filter(([, box], place, all) => place && box.left < all[place - 1][1].right).map(([text]) => text)"""


def test_the_statuses_of_plans_do_not_lie_over_each_other(rosa, page_as: PageAs):
    """On a phone they are wider than the screen, and scroll."""
    page = page_as(rosa, viewport={"width": 390, "height": 800})
    page.goto("/plans/")
    assert page.locator(".tabs a").count() > 5
    assert page.evaluate(OVERLAPPING) == []


def test_signing_in_with_the_keyboard(ada, rosa, live_server, browser, complaints):
    """Reviewers who are needed come to what waits."""
    ask(ada)
    page = browser.new_page(base_url=live_server.url)
    page.route_web_socket("**/ws/**", lambda socket: None)
    page.goto("/")
    expect(page.locator("#id_username")).to_be_focused()
    page.keyboard.type("rosa")
    page.keyboard.press("Tab")
    page.keyboard.type("secret-rosa")
    page.keyboard.press("Enter")
    page.wait_for_url("**/approvals/")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in/")
    page.close()
