"""Every text can be read: its contrast with what lies under it, light and dark, wide and on phones (WCAG 1.4.3)."""

import pytest
from playwright.sync_api import Page

from tests.approvals.builders import ask, make_tool
from tests.browser.conftest import PageAs
from tests.browser.test_reading import PAGES
from tests.builders import make_plan, step, work_off, write_step
from tests.plans.agents.scripted import make_agent

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
FAINT = """async () => {
    const fading = () => document.getAnimations().filter((each) => each instanceof CSSTransition);
    while (fading().length) await Promise.allSettled(fading().map((each) => each.finished));
    const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        brush.clearRect(0, 0, 1, 1);
        brush.fillStyle = colour;
        brush.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    };
    const over = (top, under) => under.map((value, at) => top[at] * top[3] + value * (1 - top[3]));
    const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, by, at) => sum + by * linear(colour[at] / 255), 0);
    const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const at = texts.currentNode.parentElement;
        const words = texts.currentNode.textContent.trim();
        if (!words || !at.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        if (at.closest(".sr, :disabled, [aria-disabled=true], option, .skiplink")) continue;
        const layers = [];
        let opacity = 1;
        for (let part = at; part; part = part.parentElement) {
            opacity *= Number(getComputedStyle(part).opacity);
            layers.unshift(rgba(getComputedStyle(part).backgroundColor));
        }
        const under = layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
        const { color, fontSize, fontWeight } = getComputedStyle(at);
        const ink = rgba(color);
        const isLarge = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
        const ratio = contrast(over([...ink.slice(0, 3), ink[3] * opacity], under), under);
        if (ratio < (isLarge ? 3 : 4.5) - 0.01) found.push(`${ratio.toFixed(2)} ${at.tagName} ${words.slice(0, 40)}`);
    }
    return found;
}"""
"""Returns the texts whose contrast is below 4.5 (3 where they are large), with what each is, once no colour fades."""


def faint(page: Page, path: str) -> list[str]:
    """Return what cannot be read well on a page."""
    page.goto(path)
    page.wait_for_selector("main, .gate")
    return [f"{path}: {each}" for each in page.evaluate(FAINT)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.usefixtures("catalog", "workspace")
def test_every_text_can_be_read(admin, ada, page_as: PageAs, width, scheme):
    """On every page, with a plan that waits and one that is done."""
    ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    make_agent()
    plans = [work_off(make_plan(ada, write_step(1), step(2, dependencies=[1]))), work_off(make_plan(ada, step(1)))]
    looks = {"color_scheme": scheme, "reduced_motion": "reduce"}
    page = page_as(admin, viewport={"width": width, "height": 900}, **looks)
    paths = [*PAGES, *(f"/plans/{plan.public_id}/" for plan in plans), "/nothing/here/"]
    assert [text for path in paths for text in faint(page, path)] == []


def test_a_faint_text_is_found(admin, page_as: PageAs):
    """The measure itself: grey on grey, and a white text whose opacity is half."""
    page = page_as(admin)
    page.goto("/policies/")
    page.evaluate("""document.querySelector("main").innerHTML =
        '<p class="a">grey</p><p class="b">half</p><p class="c">well</p>'""")
    page.add_style_tag(url="/static/css/base.css")
    page.evaluate("""for (const [name, css] of [["a", { color: "#999", background: "#ccc" }], ["b", { color: "#fff",
        background: "#3450c4", opacity: "0.4" }], ["c", { color: "#000", background: "#fff" }]])
        Object.assign(document.querySelector("." + name).style, css)""")
    assert [text.split()[-1] for text in page.evaluate(FAINT)] == ["grey", "half"]
