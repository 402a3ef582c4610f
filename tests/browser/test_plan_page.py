"""A plan's page between two messages of its socket, and where it leads the eye."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, expect

from plans.actions.control import pause_plan
from plans.actions.create import start_plan
from plans.actions.skip import skip_step
from plans.engine import loop
from plans.live.fragment_cache import CurrentFragments, ViewerState
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction
from plans.web.compose.starters import STARTERS
from plans.web.fragments import PlanRenderer, plan_source
from plans.web.graph import Fold
from tests.browser import layout_rules as rules
from tests.browser.conftest import PageAs
from tests.browser.fragments import PUT
from tests.builders import act, make_plan, step, work_off

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]

TOUCHED = """async (fragments) => {
    const app = document.querySelector("script[type=module]").src;
    const { apply } = await import(app.replace("app.js", "js/core/fragments.js"));
    const asked = [];
    for (const name of ["checkVisibility", "getBoundingClientRect"]) {
        const ask = Element.prototype[name];
        Element.prototype[name] = function (...given) {
            asked.push(`${name} of ${this.id}`);
            return ask.apply(this, given);
        };
    }
    const frames = async (count) => {
        for (; count; count--) await new Promise(requestAnimationFrame);
    };
    await frames(5);
    asked.length = 0;
    const records = [];
    const watcher = new MutationObserver((some) => records.push(...some));
    watcher.observe(document.body, { childList: true, subtree: true, attributes: true, characterData: true });
    apply(fragments);
    await new Promise((done) => setTimeout(done));
    await frames(3);
    const touched = records.flatMap(({ type, target, addedNodes, removedNodes }) =>
        type === "childList" ? [...addedNodes, ...removedNodes] : [target]);
    return { touched: new Set(touched).size, asked };
}"""
"""Puts fragments into the page; returns how many nodes are added, removed and changed, and how often modules ask where
an element is, which lays out the page."""


def extent(page: Page, bar: str) -> tuple[float, float]:
    """Return where a bar of the timeline begins and how wide it is, in percent."""
    x, width = page.locator(bar).evaluate("bar => ['x', 'width'].map(name => parseFloat(bar.getAttribute(name)))")
    return x, width


def test_the_bar_of_a_running_step_and_its_time_go_on(ada, stage, page_as: PageAs):
    """Ended steps shrink beside a running one, and the axis with them; nothing comes from the server."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = loop.claim_work(plan.pk, owner="tests")
    assert run is not None
    loop.advance(run, loop.TimeSlice("tests"))
    page = page_as(ada)
    page.clock.install()
    page.goto(f"/plans/{plan.public_id}/")
    working = page.locator("#standing time").last
    said = working.inner_text()
    before = extent(page, "#s2 .bar"), extent(page, "#s1 .bar")
    page.clock.run_for(30_000)
    after = extent(page, "#s2 .bar"), extent(page, "#s1 .bar")
    assert after[0][0] < before[0][0] and after[0][1] > before[0][1] and sum(after[0]) == pytest.approx(94)
    assert after[1][1] <= before[1][1]
    expect(working).not_to_have_text(said)


def test_the_step_that_the_address_names_is_in_sight_with_its_card(ada, stage, page_as: PageAs):
    """Beside its row on a desk; before all else where there is no room beside it."""
    plan = work_off(make_plan(ada, *(act(number, tool="dangerous") for number in range(1, 41))))
    page = page_as(ada, viewport={"width": 1440, "height": 900})
    page.goto(f"/plans/{plan.public_id}/?step=38")
    expect(page.locator("#s38")).to_be_in_viewport()
    expect(page.locator("#review")).to_be_in_viewport()
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto(f"/plans/{plan.public_id}/?step=38")
    expect(page.locator("#review")).to_be_in_viewport()


def test_the_box_of_the_open_step_is_in_sight(ada, stage, page_as: PageAs):
    """However far to the right it stands, also when a box is drawn again."""
    steps = [act(1), *(act(number, dependencies=[number - 1]) for number in range(2, 12))]
    plan = make_plan(ada, *steps, act(12, tool="dangerous", dependencies=[11]))
    page = page_as(ada)
    page.goto(f"/plans/{work_off(plan).public_id}/")
    expect(page.locator("#n12")).to_be_in_viewport()
    place = page.evaluate("document.getElementById('graph').scrollLeft")
    box = plan_source(plan.public_id).draw().fragments["n11"].replace("<a ", "<a data-again ")
    page.evaluate(PUT, [box])
    expect(page.locator("#boxes #n11[data-again]")).to_be_visible()
    assert place > 0
    assert page.evaluate("document.getElementById('graph').scrollLeft") == place


def test_events_are_followed_held_and_opened(ada, stage, page_as: PageAs):
    """The newest line of each step moves to the top; a held list says how many are new; an opened step stays."""
    plan = make_plan(ada, *(act(number) for number in range(1, 61)), start=False)

    def record(*numbers: int) -> None:
        with plan_transaction(plan.pk, plan.public_id) as tx:
            for number in numbers:
                tx.record("memory.written", number, key="note")
        page.evaluate(PUT, list(plan_source(plan.public_id).draw().fragments.values()))

    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/")
    record(*range(1, 61))
    lines = page.locator("#events > li")
    expect(lines).to_have_count(50)
    expect(lines.first).to_have_id("g60")
    record(20)
    expect(lines.first).to_have_id("g20")
    expect(lines).to_have_count(50)
    lines.first.locator("summary").click()
    expect(page.locator("#lines-20 li")).to_have_count(2)
    record(20, 30)
    expect(page.locator("#lines-20 li")).to_have_count(3)
    expect(lines.first).to_have_id("g30")
    page.keyboard.press("f")
    record(40, 41)
    news = page.get_by_role("button", name="2 new events. Show")
    expect(news).to_be_visible()
    expect(lines.first).to_have_id("g30")
    news.click()
    expect(lines.first).to_have_id("g41")
    expect(news).to_be_hidden()
    page.get_by_label("Number of the step").fill("41")
    page.keyboard.press("Enter")
    expect(page.locator(".event-list > li")).to_have_count(2)
    expect(page).to_have_url(re.compile("of=41"))
    expect(page.locator("#follow")).not_to_be_checked()


def test_the_graph_is_a_canvas(ada, stage, page_as: PageAs):
    """Keys follow the arrows, it zooms, folds and follows, and boxes out of view are not drawn."""
    rows = [act(number, dependencies=[number - 4] if number > 4 else []) for number in range(1, 61)]
    plan = make_plan(ada, *rows)
    page = page_as(ada, viewport={"width": 1440, "height": 900})
    page.goto(f"/plans/{plan.public_id}/?step=1")
    expect(page.locator("#n1.selected")).to_be_in_viewport()
    expect(page.locator("#boxes .off")).not_to_have_count(0)
    assert page.locator("#boxes [tabindex='0']").count() == 1
    page.locator("#n1").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#n5")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#n6")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#step[data-step='6']")).to_be_visible()
    page.keyboard.press("End")
    expect(page.locator("#n60")).to_be_in_viewport()
    page.keyboard.press("+")
    expect(page.locator("[data-zoom=reset]")).to_have_text("125 %")
    page.keyboard.press("0")
    assert page.evaluate("graph.scrollWidth <= graph.clientWidth && graph.scrollHeight <= graph.clientHeight")
    page.locator("[data-zoom=reset]").click()
    page.locator("#map").click(position={"x": 2, "y": 2})
    expect(page.locator("#n1")).to_be_in_viewport()
    page.locator("#follow-step").check()
    drawn = plan_source(plan.public_id).draw().fragments
    page.evaluate(PUT, [drawn["n60"].replace('class="node idle', 'class="node run')])
    expect(page.locator("#n60")).to_be_in_viewport()
    page.get_by_role("link", name="By branch").click()
    expect(page.locator("#boxes a")).to_have_count(4)
    page.evaluate(PUT, list(plan_source(plan.public_id, Fold("branch")).draw().fragments.values()))
    expect(page.locator("#boxes a")).to_have_count(4)
    page.locator("#s7").click()
    expect(page.locator("#n3.selected")).to_be_visible()
    assert "fold=branch" in page.url
    page.get_by_role("link", name="Open 15 steps of safe").nth(1).press("Enter")
    expect(page.locator("#n2")).to_be_focused()
    expect(page.locator("#boxes a")).to_have_count(18)
    expect(page.locator("#n3.selected")).to_be_visible()
    expect(page.locator("#step[data-step='7']")).to_be_visible()
    page.evaluate(PUT, list(plan_source(plan.public_id, Fold("branch", (2,))).draw().fragments.values()))
    expect(page.locator("#boxes a")).to_have_count(18)
    page.get_by_role("link", name="Fold 15 steps of safe from step 2").click()
    expect(page.locator("#boxes a")).to_have_count(4)
    expect(page.locator("#step[data-step='7']")).to_be_visible()


def test_a_plan_of_500_steps_runs_in_a_page_that_does_not_grow(ada, window_of: PageAs):
    """Over the real socket; the layout is that of any page at 390 and 1440 pixels."""
    question: dict[str, Any] = {"tool": "ask_user", "parameters": {"question": "Which?"}}
    rest = [step(number, dependencies=[56 if number < 80 else number - 20]) for number in range(57, 501)]
    plan = make_plan(ada, *(step(number) for number in range(1, 56)), step(56, **question), *rest, start=False)
    page = window_of(ada, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.goto(f"/plans/{plan.public_id}/")
    expect(page.locator("#live")).to_contain_text("Live")
    page.evaluate("window.neverReloaded = true")
    before = page.locator("*").count()
    start_plan(plan, by=Requester(ada))
    expect(page.locator("#boxes .node.ok")).to_have_count(55)
    expect(page.locator("#sentence")).to_contain_text("444 steps wait behind it")
    expect(page.locator("#events > li")).to_have_count(50)
    expect(page.locator("#steps > .row")).to_have_count(500)
    assert page.locator("*").count() < before + 55 * 25
    page.locator("#s1").click()
    page.get_by_role("link", name="Events of this step").click()
    expect(page).to_have_url(re.compile(r"step=1&of=1$"))
    expect(page.locator(".event-list > li").last).to_be_visible()
    assert page.evaluate("window.neverReloaded") is True
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(rules.asking(rules.EVERYWHERE), [width, 800]) == []


def test_an_event_touches_only_what_it_concerns(ada, catalog, page_as: PageAs):
    """Of a plan of 200 steps with a map, of which all but a few rows and boxes are out of view."""
    plan = make_plan(ada, *(step(number, dependencies=[1] if number > 1 else []) for number in range(1, 201)))
    page = page_as(ada, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.goto(f"/plans/{plan.public_id}/")
    expect(page.locator("#map path").first).to_have_attribute("d", re.compile("M"))
    current, render = CurrentFragments(), PlanRenderer(plan.public_id)
    current.drawn = drawn = render()
    view = ViewerState(current, drawn.seq)
    view.news()
    skip_step(plan, 150, "Done by hand.", by=Requester(ada))
    current.drawn = render()
    found = page.evaluate(TOUCHED, json.loads(view.news())["fragments"])
    expect(page.locator("#n150.skip")).to_be_attached()
    assert found["asked"] == []
    assert 10 < found["touched"] < 60


def test_a_written_text_is_kept_until_it_is_started(ada, catalog, page_as: PageAs):
    """Through another page, a reload and a starter, which can be taken back; others find nothing."""
    page, asked = page_as(ada), list[str]()

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    editor = page.locator("#pj")
    page.goto("/plans/new/")
    expect(page.locator("#kept")).to_be_hidden()
    editor.fill("mine")
    page.goto("/tools/")
    page.goto("/plans/new/")
    expect(editor).to_have_value("mine")
    with page.expect_response("**/plans/new/"):
        page.reload()
    expect(editor).to_have_value("mine")
    page.goto(f"/plans/new/?starter={next(iter(STARTERS))}")
    expect(page.get_by_role("button", name="Bring it back")).to_be_visible()
    started = editor.input_value()
    editor.press("End")
    editor.press_sequentially(" ")
    page.get_by_role("button", name="Bring it back").click()
    expect(editor).to_have_value("mine")
    page.goto("/plans/new/")
    page.get_by_role("button", name="Start over").click()
    expect(editor).to_have_value("")
    editor.fill(started)
    expect(page.locator("#start:not([aria-disabled])")).to_be_visible()
    page.locator("#start").click()
    expect(page.locator(".plan-head")).to_be_visible()
    page.goto("/plans/new/")
    expect(editor).to_have_value("")
    editor.fill("mine")
    page.locator(".account-button").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes('draft'))") == asked == []


def test_parts_that_change_together_are_asked_for_once(ada, stage, page_as: PageAs):
    """The controls and the open step come in one answer, each in its place; what is written in is left alone."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    pause_plan(plan, by=Requester(ada))
    skip_step(plan, 1, "By hand.", by=Requester(ada))
    drawn = plan_source(plan.public_id).draw().fragments
    page.evaluate(PUT, [drawn["look-controls"], drawn["look-first"]])
    expect(page.locator("#controls #pause")).to_have_count(0)
    expect(page.locator("#step #skip")).to_have_count(0)
    assert len(asked) == 1


def test_forced_colours_tell_tabs_and_progress_apart(ada, stage, page_as: PageAs):
    """The selected tab has an outline, what is done and what waits are filled."""
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous", dependencies=[1]), act(3, dependencies=[2])))
    page = page_as(ada, forced_colors="active")
    page.goto(f"/plans/{plan.public_id}/")
    tabs = page.locator("#step [role=tab]").evaluate_all("tabs => tabs.map(tab => getComputedStyle(tab).outlineStyle)")
    assert tabs == ["solid", "none", "none"]
    fills = page.locator("#segments i").evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
    assert len(set(fills)) == 3
