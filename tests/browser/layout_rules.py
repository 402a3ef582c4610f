"""Layout rules as JavaScript: each is an async function of the page that returns the faults it finds, as texts."""

import json
from collections.abc import Mapping, Sequence

SIDEWAYS = """async () => {
    const width = document.documentElement.scrollWidth;
    if (width <= innerWidth) return [];
    const wide = [...document.querySelectorAll("main *")].filter((part) => part.checkVisibility())
        .filter((part) => part.getBoundingClientRect().right > innerWidth).slice(-3);
    return [`${width} px wide`, ...wide.map((part) => part.outerHTML.slice(0, 200))];
}"""
SMALL_TARGETS = """async () =>
    [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea")]
    .filter((part) => part.checkVisibility())
    .filter((part) => !part.closest("p, .hint, .note, .skip-link, .name, .title, .visually-hidden"))
    .map((part) => [part, (part.closest("label") ?? part).getBoundingClientRect()])
    .filter(([part, box]) => box.width && (box.width < 24 || box.height < 24))
    .map(([part, box]) => `${box.width} x ${box.height} ${part.outerHTML.slice(0, 120)}`)"""
DOUBLE_IDS = """async () => [...document.querySelectorAll("[id]")].map((part) => part.id)
    .filter((id, place, all) => all.indexOf(id) !== place)"""
LOST_NAMES = """async () => [...document.querySelectorAll("[aria-controls], [aria-describedby], [aria-labelledby]")]
    .flatMap((part) => ["aria-controls", "aria-describedby", "aria-labelledby"].map((name) => part.getAttribute(name)))
    .flatMap((ids) => ids?.split(" "))
    .filter((id) => id && !document.getElementById(id))"""
NAMELESS = """async () =>
    [...document.querySelectorAll("button, a[href], summary, input:not([type=hidden]), select, textarea")]
    .filter((part) => part.checkVisibility() && !part.textContent.trim() && !part.labels?.length)
    .filter((part) => !part.getAttribute("aria-label") && !part.getAttribute("aria-labelledby"))
    .map((part) => part.outerHTML.slice(0, 120))"""
ONE_HEADING = """async () => {
    const count = [...document.querySelectorAll("h1")].filter((part) => part.checkVisibility()).length;
    return count === 1 ? [] : [`${count} headings`];
}"""
MOVING = """async () => document.getAnimations()
    .filter((each) => each.playState === "running" && each.effect.getComputedTiming().endTime > 100)
    .map((each) => each.effect.target.outerHTML.slice(0, 120))"""
"""Asked for with reduced motion: only what ends at once may move."""

CONTRAST = """async () => {
    const fading = () => document.getAnimations()
        .filter((each) => each instanceof CSSTransition && each.playState !== "finished");
    const pause = () => new Promise((done) => setTimeout(done, 50));
    for (let waits = 0; fading().length && waits < 20; waits++)
        await Promise.race([Promise.allSettled(fading().map((each) => each.finished)), pause()]);
    const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const known = new Map();
    const rgba = (colour) => {
        if (known.has(colour)) return known.get(colour);
        brush.clearRect(0, 0, 1, 1);
        brush.fillStyle = colour;
        brush.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
        known.set(colour, [red, green, blue, alpha / 255]);
        return known.get(colour);
    };
    const over = (top, under) => under.map((value, at) => top[at] * top[3] + value * (1 - top[3]));
    const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, by, at) => sum + by * linear(colour[at] / 255), 0);
    const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const grounds = new Map([[null, { under: [255, 255, 255], opacity: 1 }]]);
    const ground = (at) => {
        if (grounds.has(at)) return grounds.get(at);
        const below = ground(at.parentElement), style = getComputedStyle(at);
        const under = over(rgba(style.backgroundColor), below.under);
        grounds.set(at, { under, opacity: below.opacity * Number(style.opacity) });
        return grounds.get(at);
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const at = texts.currentNode.parentElement;
        const words = texts.currentNode.textContent.trim();
        if (!words || !at.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        if (at.closest(".visually-hidden, :disabled, [aria-disabled=true], option, .skip-link")) continue;
        const { under, opacity } = ground(at);
        const { color, fontSize, fontWeight } = getComputedStyle(at);
        const ink = rgba(color);
        const isLarge = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
        const ratio = contrast(over([...ink.slice(0, 3), ink[3] * opacity], under), under);
        if (ratio < (isLarge ? 3 : 4.5) - 0.01) found.push(`${ratio.toFixed(2)} ${at.tagName} ${words.slice(0, 40)}`);
    }
    return found;
}"""
"""Texts whose contrast with their background is below 4.5 (3 if they are large), once no colour fades (WCAG 1.4.3)."""

FOCUS = """async () => {
    const seen = (at) => {
        const box = at.getBoundingClientRect();
        const x = box.left + Math.min(box.width / 2, 20);
        const [head, foot] = [Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
        const own = [at, at.closest("label"), at.closest("[data-item], .entry")].filter(Boolean);
        const rings = [at, at.querySelector("rect"), at.nextElementSibling, at.parentElement, ...own].filter(Boolean);
        const hasRing = rings.some((each) => parseFloat(getComputedStyle(each).outlineWidth) >= 2
            && getComputedStyle(each).outlineStyle !== "none");
        const isSeen = [head + (foot - head) / 4, (head + foot) / 2].map((y) => document.elementFromPoint(x, y))
            .some((top) => top && own.some((each) => each.contains(top) || top.contains(each)));
        return (isSeen ? "" : "covered ") + (hasRing || at.closest("svg") ? "" : "no ring ");
    };
    const found = [];
    let looked = 0;
    scrollTo(0, 0);
    const stops = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
    for (const at of document.querySelectorAll(stops)) {
        if (at.tabIndex < 0 || !at.checkVisibility({ visibilityProperty: true })) continue;
        at.focus();
        if (document.activeElement !== at) continue;
        const ended = Promise.allSettled(at.getAnimations().map((each) => each.finished));
        await Promise.race([ended, new Promise((done) => setTimeout(done, 500))]);
        looked++;
        const fault = seen(at);
        if (fault) found.push(fault + at.outerHTML.slice(0, 120));
    }
    return looked ? found : ["no tab stops"];
}"""
"""Tab stops that are covered, at a quarter and at half of their height, or show no ring (WCAG 2.4.7, 2.4.11).

Press Tab before asking, so that rings are drawn.
"""

UNDER_ACTIONS = """async () => {
    const found = [], bar = document.querySelector(".form-actions");
    const stops = document.querySelectorAll("main a[href], main button, main input, main select, main textarea");
    if (!stops.length) return ["no tab stops"];
    scrollTo(0, 0);
    for (const at of stops) {
        if (at.tabIndex < 0 || !at.checkVisibility({ visibilityProperty: true }) || bar.contains(at)) continue;
        at.focus();
        const [box, over] = [at, bar].map((part) => part.getBoundingClientRect());
        const isUnder = box.bottom > over.top && box.right > over.left;
        if (document.activeElement === at && isUnder) found.push(at.outerHTML.slice(0, 120));
    }
    return found;
}"""
CUT_OFF = """async () => [
    ...document.querySelectorAll(".inbox-list .views, .inbox-list .foot, .breadcrumbs a:first-of-type")]
    .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.className || part.textContent)"""
SCROLLING_EFFECT = """async () => {
    const parts = [...document.querySelectorAll("#effect :not(.visually-hidden)")].filter((part) => part.clientWidth);
    if (!parts.length) return ["no effect"];
    return parts.filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.outerHTML.slice(0, 80));
}"""
PAGE_SCROLLS = """async () => {
    const more = document.documentElement.scrollHeight - innerHeight;
    return more > 0 ? [`${more} px to scroll`] : [];
}"""
NARROW_GOALS = """async () => {
    const widest = Math.max(...[...document.querySelectorAll(".entry-title")].map((goal) => goal.clientWidth));
    return widest < 140 ? [`${widest} px`] : [];
}"""
NARROW_AXIS = """async () => {
    const { width } = document.querySelector("#axis .axis-labels").getBoundingClientRect();
    return width < 120 ? [`${width} px`] : [];
}"""
OVERLAPPING_TABS = """async () => {
    const tabs = [...document.querySelectorAll(".tabs a")]
        .map((part) => [part, document.createRange()])
        .map(([part, range]) => (range.selectNodeContents(part), [part.textContent, range.getBoundingClientRect()]));
    if (tabs.length < 2) return [`${tabs.length} tabs`];
    return tabs.filter(([, box], place) => place && box.left < tabs[place - 1][1].right).map(([text]) => text);
}"""
ROOM_FOR_NOTE = """async () => {
    const note = document.querySelector("#note"), style = getComputedStyle(note);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const room = note.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const words = pen.measureText(note.placeholder).width;
    const [stop, more] = [".decide .stop", ".decide .menu > summary"]
        .map((part) => document.querySelector(part).getBoundingClientRect().y);
    return [words > room && `${words} px in ${room}`, stop !== more && "More is not beside Reject"].filter(Boolean);
}"""
ONE_ROW_OF_ANSWERS = """async () => {
    const bar = document.querySelector(".decide");
    const rows = new Set([".wide-only", ".stop", ".menu > summary"].map((part) => bar.querySelector(part))
        .map((part) => part.getBoundingClientRect()).map((box) => Math.round(box.y + box.height / 2)));
    return [rows.size > 1 && `${rows.size} rows`, bar.scrollWidth > bar.clientWidth && "cut off"].filter(Boolean);
}"""
BAR_BELOW_CHANGE = """async () => {
    scrollTo(0, 0);
    const bar = document.querySelector("form.decide"), { position } = getComputedStyle(bar);
    const isInSight = bar.getBoundingClientRect().top < innerHeight;
    return [position !== "static" && position, isInSight && "covers the change"].filter(Boolean);
}"""
FOOT_UNDER_TABS = """async () => {
    scrollTo(0, document.body.scrollHeight);
    const covered = (link) => {
        const box = link.getBoundingClientRect();
        return !link.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
    };
    const links = [...document.querySelectorAll(".inbox-list .foot a")];
    return links.length ? links.filter(covered).map((link) => link.textContent.trim()) : ["no foot"];
}"""
TOAST_OVER_BAR = """async () => {
    const [toast, bar] = [".toast", ".decide"].map((part) => document.querySelector(part).getBoundingClientRect());
    return toast.bottom > bar.top ? [`${toast.bottom} is below ${bar.top}`] : [];
}"""
EDIT_COLUMNS = """async () => {
    const box = (part) => document.querySelector(part).getBoundingClientRect();
    const [old, now] = ["#edited .both td:nth-child(3)", "#edited .both td:last-child"].map(box);
    const [form, go] = ["#args-edit", ".decide .button.go"].map(box);
    const isBeside = old.y === now.y;
    return [Math.min(old.width, now.width) <= 220 && "too narrow", form.x !== go.x && "bar not under the form",
        isBeside !== innerWidth >= 1280 && (isBeside ? "beside" : "below")].filter(Boolean);
}"""

LOST_LISTS = """async () => [...document.querySelectorAll("ul[role], ol[role]")]
    .filter((list) => list.querySelector(":scope > li:not([role])") && list.getAttribute("role") !== "list")
    .map((list) => list.outerHTML.slice(0, 120))"""
"""Lists whose role is another one, so that their items belong to no list."""
OTHER_NAMES = """async () => [...document.querySelectorAll(":is(a[href], button, [role=tab])[aria-label]")]
    .map((part) => [part, part.innerText ?? part.textContent])
    .map(([part, text]) => [part, text.trim().replace(/\\s+/g, " ").toLowerCase()])
    .filter(([part, text]) => text.length > 1 && !part.ariaLabel.toLowerCase().includes(text))
    .map(([part, text]) => `${text} is named ${part.ariaLabel}`)"""
"""Controls whose name leaves out what they show, so that people who speak to their browser cannot press them."""
ONLY_COLOURED = """async () => [...document.querySelectorAll("p a[href]")]
    .filter((link) => link.checkVisibility() && getComputedStyle(link).display === "inline")
    .filter((link) => !link.closest(".visually-hidden"))
    .filter((link) => link.closest("p").textContent.trim() !== link.textContent.trim())
    .filter((link) => getComputedStyle(link).textDecorationLine !== "underline")
    .map((link) => link.outerHTML.slice(0, 120))"""
"""Links inside sentences that only their colour shows."""
UNREACHABLE_SCROLLING = """async () => {
    const stops = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    return [...document.querySelectorAll("body *")]
        .filter((part) => part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1)
        .filter((part) => {
            const { overflowX, overflowY } = getComputedStyle(part);
            const scrolls = (way) => ["auto", "scroll"].includes(way);
            return (scrolls(overflowX) && part.scrollWidth > part.clientWidth + 1)
                || (scrolls(overflowY) && part.scrollHeight > part.clientHeight + 1);
        })
        .filter((part) => part.checkVisibility() && !part.matches(stops) && !part.querySelector(stops))
        .map((part) => part.outerHTML.slice(0, 120));
}"""
"""Parts that scroll and that the keyboard does not reach."""
NAMES_OF_NOTHING = """async () => {
    const without = ":is(a:not([href]), div, span, p, b, code)[aria-label]:not([role])";
    return [...document.querySelectorAll(without)].map((part) => part.outerHTML.slice(0, 120));
}"""
"""Names on elements that cannot have one: assistive technology leaves them out."""
ROWS_WITHOUT_HEADERS = """async () => [...document.querySelectorAll("table.args")]
    .filter((table) => table.rows.length && !table.querySelector("th, [colspan]"))
    .map((table) => table.outerHTML.slice(0, 120))"""

UNKNOWN_CLASSES = """async () => {
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]), known = new Set();
    for (const rule of rules) {
        for (const [, name] of (rule.selectorText ?? "").matchAll(/\\.(-?[_a-zA-Z][\\w-]*)/g)) known.add(name);
        rules.push(...(rule.cssRules ?? []));
    }
    const parts = [...document.querySelectorAll("[class]")].filter((part) => !part.closest("defs"));
    const used = new Set(parts.flatMap((part) => [...part.classList]));
    return [...used].filter((name) => !known.has(name));
}"""
"""Classes that no stylesheet of the page knows."""


def axe_findings(run_only: Sequence[str], without: Sequence[str] = ()) -> str:
    """Return a rule that asks axe-core, whose script the page has loaded, about the tags or the rules named."""
    disabled = {name: {"enabled": False} for name in without}
    options: dict[str, object] = {"runOnly": run_only, "rules": disabled}
    options |= {"resultTypes": ["violations"], "elementRef": True, "preload": False}
    return f"""async () => {{
        const bars = document.querySelectorAll(".form-bar, .form-parts"); // nothing is below them for good
        for (const bar of bars) bar.style.position = "static";
        const {{ violations }} = await axe.run({json.dumps(options)});
        for (const bar of bars) bar.style.position = "";
        return violations.flatMap(({{ id, nodes }}) => nodes.map(({{ element }}) => [id, element.outerHTML]))
            .map(([id, html]) => `${{id}} ${{html.slice(0, 120)}}`);
    }}"""


AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules of axe-core that another colour scheme can break. They take twice as long as all others together."""
AXE = axe_findings(AXE_TAGS)
AXE_COLOURS = axe_findings(COLOUR_RULES)
AXE_STRUCTURE = axe_findings(AXE_TAGS, without=COLOUR_RULES)

EVERYWHERE = {
    "sideways scroll": SIDEWAYS,
    "small target": SMALL_TARGETS,
    "double id": DOUBLE_IDS,
    "lost name": LOST_NAMES,
    "nameless": NAMELESS,
    "one heading": ONE_HEADING,
    "cut off": CUT_OFF,
    "moving": MOVING,
    "lost list": LOST_LISTS,
    "other name": OTHER_NAMES,
    "only coloured": ONLY_COLOURED,
    "unreachable scrolling": UNREACHABLE_SCROLLING,
    "name of nothing": NAMES_OF_NOTHING,
    "rows without headers": ROWS_WITHOUT_HEADERS,
    "unknown class": UNKNOWN_CLASSES,
}


def asking(rules: Mapping[str, str]) -> str:
    """Return a script that asks the page for the faults that some named rules find, once it has its new size.

    A page is drawn some frames after its window has changed, so what is found is looked for again before it counts.
    """
    named = ",\n".join(f"{json.dumps(name)}: {rule}" for name, rule in rules.items())
    return f"""async ([width, height]) => {{
        const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        const isSized = () => innerWidth === width && innerHeight === height;
        let found = [];
        for (let look = 0; look < 10; look++) {{
            for (let draws = 0; !draws || (!isSized() && draws < 50); draws++) await drawn();
            if (!isSized()) return [`window: ${{innerWidth}} x ${{innerHeight}} px`];
            found = [];
            for (const [name, rule] of Object.entries({{ {named} }}))
                for (const fault of await rule()) found.push(`${{name}}: ${{fault}}`);
            if (!found.length) break;
        }}
        return found;
    }}"""
