"""Rebuilds a plan document in the plan builder as a person does: by form with the mouse, or by keyboard alone.

By keyboard, nothing is focused, clicked or filled in by a script: keys are pressed until the control has the focus, and
a control that is further than MOST_TABS from where the person is fails the test.
"""

import json
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Page, expect

from plans.web.compose.done_check_form import KINDS, OPERATORS, check_rows

MOST_TABS = 40
"""Most presses of Tab from the start of a part of the form to one of its controls."""
LONG = 60
"""Characters from which a text is pasted, not typed."""
PARTS = {"tool": "2", "arguments": "3", "needs": "4", "result": "5", "check": "6", "try": "7"}
DEFAULTS: Mapping[str, Any] = {
    "owner": "agent",
    "can_modify": True,
    "deadline_seconds": None,
    "budget": None,
    "memory": {},
}


def normal(document: Any) -> Any:
    """Return a document without what equals a default, and with dependencies in order: equal plans are equal."""
    plan = {name: value for name, value in document.items() if name not in DEFAULTS or value != DEFAULTS[name]}
    plan["steps"] = [
        {
            name: value
            for name, value in {**step, "dependencies": sorted(step.get("dependencies") or [])}.items()
            if value
        }
        for step in document["steps"]
    ]
    return plan


class Builder:
    """The open page of a draft."""

    def __init__(self, page: Page, *, by_keyboard: bool) -> None:
        self.page, self.by_keyboard = page, by_keyboard

    # Controls.

    def key(self, key: str) -> None:
        self.page.keyboard.press(key)

    def has_focus(self, selector: str) -> bool:
        return bool(self.page.evaluate("selector => document.activeElement.matches(selector)", selector))

    def part(self, name: str) -> None:
        """Go to the first control of a part of the form."""
        if self.by_keyboard:
            self.key("Escape")
            self.key(PARTS[name])

    def tab_to(self, selector: str) -> bool:
        for _ in range(MOST_TABS):
            if self.has_focus(selector):
                return True
            self.key("Tab")
        return False

    def go(self, selector: str, part: str) -> None:
        """Focus a control in a part of the form: forwards, or else from the beginning of the part."""
        if not self.by_keyboard:
            self.page.locator(selector).first.focus()
        elif not self.tab_to(selector):
            self.part(part)
            assert self.tab_to(selector), f"{selector} is more than {MOST_TABS} presses of Tab away"

    def press(self, selector: str, part: str) -> None:
        """Press a button that draws the form anew."""
        self.page.evaluate("document.getElementById('step-form').dataset.old = ''")
        if self.by_keyboard:
            self.go(selector, part)
            self.key("Enter")
        else:
            self.page.locator(selector).first.click()
        self.drawn()

    def drawn(self) -> None:
        expect(self.page.locator("#step-form:not([data-old])")).to_be_visible()

    def put(self, selector: str, text: str, part: str) -> None:
        """Replace the text of a field."""
        self.go(selector, part)
        if not self.by_keyboard:
            self.page.locator(selector).first.fill(text)
            return
        self.key("Control+a")
        if len(text) < LONG:
            self.page.keyboard.type(text)
        else:
            self.page.keyboard.insert_text(text)

    def choose(self, selector: str, label: str, part: str, *, redraws: bool = False) -> None:
        """Choose an option of a select by its text."""
        select = self.page.locator(selector).first
        if select.evaluate("select => select.selectedOptions[0]?.label.trim()") == label:
            return
        if redraws:
            self.page.evaluate("document.getElementById('step-form').dataset.old = ''")
        self.go(selector, part)
        if self.by_keyboard:
            self.page.keyboard.type(label)
        else:
            select.select_option(label=label)
        if redraws:
            self.drawn()

    def is_there(self, selector: str) -> bool:
        return self.page.locator(selector).count() > 0

    # Steps.

    def begin(self, goal: str) -> None:
        self.page.goto("/plans/new/")
        if self.by_keyboard:
            assert self.tab_to("#new-goal")
            self.page.keyboard.type(goal)
            self.key("Enter")
        else:
            self.page.locator("#new-goal").fill(goal)
            self.page.locator("#begin-empty").click()
        expect(self.page.locator("#goal")).to_have_value(goal)
        self.page.wait_for_load_state()

    def build(self, document: Mapping[str, Any]) -> None:
        self.begin(document["goal"])
        for step in document["steps"]:
            self.add(step)
        self.save()

    def add(self, step: Mapping[str, Any]) -> None:
        """Add a step; what was typed into the one before is saved by that."""
        if self.by_keyboard:
            self.key("Escape")
            self.key("a")
        else:
            self.page.locator("#add-step").click()
        expect(self.page.locator("#st-h")).to_have_text(f"Step {step['step_id']}")
        expect(self.page.locator("#step-description")).to_be_focused()
        self.put("#step-description", step["description"], "tool")
        if step.get("tool"):
            self.choose_tool(step["tool"])
            self.fill_in(step.get("parameters") or {})
        else:
            self.make_note()
        self.wait_for(step.get("dependencies") or [])
        if step.get("expected_key"):
            self.put("#step-key", step["expected_key"], "result")
        if step.get("output_path"):
            self.put("#step-path", ".".join(step["output_path"]), "result")
        for place, row in enumerate(check_rows(step.get("done_check") or "") or ()):
            self.add_condition(place, row)

    def save(self) -> None:
        if self.by_keyboard:
            self.key("Control+Enter")
        else:
            self.page.locator("#sf-save").click()
        expect(self.page.locator("#sf-status")).to_contain_text("Saved.")

    def make_note(self) -> None:
        self.page.evaluate("document.getElementById('step-form').dataset.old = ''")
        if self.by_keyboard:
            self.go("#step-kind-tool", "tool")
            self.key("ArrowUp")  # the last one
        else:
            self.page.locator("#step-kind-note").check()
        self.drawn()

    def choose_tool(self, name: str) -> None:
        self.put("#step-tool-q", name, "tool")
        expect(self.page.locator("#step-tool-hits .option").first).to_contain_text(name)
        self.press(f"[value='pick:{name}']", "tool")
        expect(self.page.locator("#step-form [name=tool]")).to_have_value(name)

    def wait_for(self, steps: list[int]) -> None:
        if steps:
            self.part("needs")
        for number in sorted(steps):
            box = f"[name=needs][value='{number}']"
            if not self.is_there(box):
                self.put("#step-needs-q", str(number), "needs")
                expect(self.page.locator(box)).to_be_visible()
            if self.page.locator(box).is_checked():
                continue
            if self.by_keyboard:
                self.go(box, "needs")
                self.key("Space")
            else:
                self.page.locator(box).check()

    def add_condition(self, place: int, row: Any) -> None:
        self.press("[value=check-add]", "check")
        if place:
            self.choose(f"#check-{place}-joiner", row.joiner, "check")
        self.put(f"#check-{place}-subject", row.subject, "check")
        self.choose(f"#check-{place}-operator", str(OPERATORS[row.operator].label), "check", redraws=True)
        if row.takes in ("one", "list"):
            self.choose(f"#check-{place}-kind", str(KINDS[row.kind]), "check", redraws=True)
        if self.is_there(f"#check-{place}-value"):
            self.put(f"#check-{place}-value", row.value, "check")

    # Arguments.

    def fill_in(self, arguments: Mapping[str, Any]) -> None:
        if self.is_there("[name='pick:']"):
            self.choose("[name='pick:']", arguments["query_type"], "arguments", redraws=True)
            arguments = {name: value for name, value in arguments.items() if name != "query_type"}
        self.put_members("", arguments)

    def put_members(self, place: str, members: Mapping[str, Any]) -> None:
        names = {f"{place}.{name}".lstrip("."): value for name, value in members.items()}
        declared = {
            name: value for name, value in names.items() if self.is_there(f"[id='f-{name}-w'], [id='f-{name}-u']")
        }
        for name, value in declared.items():
            self.put_value(name, value)
        for at, (name, value) in enumerate(
            (name, value) for name, value in members.items() if f"{place}.{name}".lstrip(".") not in declared
        ):
            row = f"{place}.+{at}".lstrip(".")
            self.press(f"[value='add:{place}']", "arguments")
            self.put(f"[name='key:{row}']", name, "arguments")
            self.put_value(row, value)

    def put_value(self, name: str, value: Any) -> None:
        if isinstance(value, str) and value.startswith("${") and value.find("}") == len(value) - 1:
            self.refer(name, value)
        elif self.is_there(f"[name='json:{name}']"):
            self.put(f"[name='json:{name}']", json.dumps(value), "arguments")
        elif isinstance(value, Mapping):
            if self.is_there(f"[value='open:{name}']"):
                self.press(f"[value='open:{name}']", "arguments")
            self.put_members(name, value)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                if not self.is_there(f"[id='f-{name}.{at}-w']"):
                    self.press(f"[value='add:{name}']", "arguments")
                self.put_value(f"{name}.{at}", item)
        elif self.is_there(f"select[name='value:{name}']"):
            self.choose(f"[name='value:{name}']", value if isinstance(value, str) else json.dumps(value), "arguments")
        else:
            self.put(f"[name='value:{name}']", value if isinstance(value, str) else json.dumps(value), "arguments")

    def refer(self, name: str, reference: str) -> None:
        """Choose a result, or the whole one of which a part is then typed: an example may have no such part."""
        button = f"[id='f-{name}-r']"
        self.press(button, "arguments")
        expect(self.page.locator("#result-q")).to_be_focused()
        whole = "${" + reference[2:-1].partition(".")[0] + "}"
        self.page.evaluate("document.getElementById('step-result-hits').dataset.old = ''")
        self.put("#result-q", reference[2:-1], "arguments")
        expect(self.page.locator("#step-result-hits:not([data-old])")).to_be_visible()
        exact = f"[value='use:{name} {reference}']"
        if not self.is_there(exact):
            self.page.evaluate("document.getElementById('step-result-hits').dataset.old = ''")
            self.put("#result-q", whole[2:-1], "arguments")
            expect(self.page.locator("#step-result-hits:not([data-old])")).to_be_visible()
            exact = f"[value='use:{name} {whole}']"
        self.press(exact, "arguments")
        field = f"[name='value:{name}'], [name='reference:{name}']"
        if self.page.locator(field).input_value() != reference:
            self.put(field, reference, "arguments")

    # The plan.

    def start(self) -> None:
        """Start the plan; by keyboard from the form over the beginning of the page."""
        if not self.by_keyboard:
            self.page.locator("#start").click()
        else:
            self.key("Escape")
            self.key("7")
            assert self.tab_to("#start")
            self.key("Enter")
        expect(self.page.locator("#plan-head, #standing").first).to_be_visible()
