"""Tests of the form of a step on its page, without JavaScript: save, conflict, choose, refer, try, fix."""

import json
import re
from html import unescape
from typing import Any

import pytest

from catalog.models import Call, Tool
from catalog.tools import registry
from catalog.tools.registry import register_tool
from plans.actions.drafts import change_draft, create_draft, read_content
from plans.models import Plan, PlanDraft
from tests.builders import work_off
from tests.catalogs import fill_catalog
from tests.pages import Pages
from tests.tools_to_try import TOOLS

pytestmark = pytest.mark.django_db
FIELD = re.compile(r"<(input|textarea|select)\b([^>]*)>(.*?)(?=</textarea>|</select>|<)", re.DOTALL)
ATTRIBUTE = re.compile(r'([a-z-]+)="([^"]*)"')


@pytest.fixture(autouse=True)
def to_try(catalog):
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield
    for each in TOOLS:
        registry._TOOLS.pop(each.name)


def draft_of(owner, *steps: dict[str, Any], **fields: Any) -> PlanDraft:
    numbered = [{"step_id": number, "description": f"Step {number}", **step} for number, step in enumerate(steps, 1)]
    return create_draft({"goal": "A trip", "steps": numbered, **fields}, by=owner)


def document_of(draft: PlanDraft) -> dict[str, Any]:
    draft.refresh_from_db()
    document = read_content(draft).document
    assert isinstance(document, dict)
    return document


def steps_of(draft: PlanDraft) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = document_of(draft)["steps"]
    return steps


def fields_of(html: str) -> dict[str, list[str]]:
    """Return what a browser would send of the form of the step."""
    form = html.partition('id="step-form"')[2].partition("</form>")[0]
    found: dict[str, list[str]] = {}
    for match in FIELD.finditer(form):
        kind, attributes = match[1], dict(ATTRIBUTE.findall(match[2]))
        name, value = unescape(attributes.get("name", "")), unescape(attributes.get("value", ""))
        if not name or name == "csrfmiddlewaretoken" or "disabled" in match[2].split():
            continue
        if attributes.get("type") in ("checkbox", "radio") and "checked" not in match[2].split():
            continue
        if kind == "textarea":
            value = unescape(form[match.end(2) + 1 : form.index("</textarea>", match.end(2))])
            value = value.removeprefix("\n")
        elif kind == "select":
            inside = form[match.end(2) : form.index("</select>", match.end(2))]
            options = re.findall(r'<option value="([^"]*)"([^>]*)>', inside)
            value = unescape(next((text for text, more in options if "selected" in more), options[0][0]))
        found.setdefault(name, []).append(value)
    return found


class StepPage:
    """The form of one step, filled in and sent without scripts."""

    def __init__(self, viewer, draft: PlanDraft, number: int) -> None:
        self.pages, self.path = Pages(viewer), f"/plans/drafts/{draft.public_id}/steps/{number}/"
        self.text = self.pages.open(self.path)

    @property
    def html(self) -> str:
        return self.pages.html

    def press(self, do: str, status: int = 200, /, **changes: str | list[str]) -> str:
        self.text = self.pages.send(self.path, {**fields_of(self.html), **changes, "do": do}, status)
        return self.text


def test_untouched_step_is_saved_unchanged(ada):
    parameters = {
        "title": "Rhine ${x}",
        "stops": [{"place": {"kind": "town", "name": "Bonn"}, "nights": "${y.0}", "notes": ["a b", ""]}],
        "budget": None,
        "labels": {"one": 1},
        "anything": {"deep": [None]},
        "gone": "left over",
    }
    done_check = "value is not None and len(value) >= 2 or 'x' in y"
    draft = draft_of(
        ada,
        {"tool": "plan_trip", "parameters": parameters, "dependencies": [2], "done_check": done_check},
        {"tool": "book_trip", "expected_key": "x", "output_path": ["results", "0"]},
        memory={"y": [1]},
    )
    before = steps_of(draft)
    for number in (1, 2):
        page = StepPage(ada, draft, number)
        assert "Left over" in page.text or number == 2
        page.press("save")
    assert steps_of(draft) == before and draft.version == 1


def test_plan_is_built_by_form_alone(ada):
    draft = draft_of(ada, {}, {})
    page = StepPage(ada, draft, 1)
    page.press("update", kind="tool")
    page.press("panel:tool", tool_q="book")
    assert "Asks for title." in page.text
    page.press("pick:book_trip")
    page.press("key:step_1", **{"value:title": "Rome"})
    page.press("save")
    page = StepPage(ada, draft, 2)
    page.press("update", kind="tool")
    page.press("pick:plan_trip")
    page.press("refer:title", **{"value:title": "After "})
    assert "Step 1: Step 1" in page.text
    page.press("use:title ${step_1.results.0}")
    page.press("check-add")
    page.press("save", check_subject=["value"])
    assert steps_of(draft)[1] == {
        "step_id": 2,
        "description": "Step 2",
        "tool": "plan_trip",
        "parameters": {"title": "After ${step_1.results.0}"},
        "dependencies": [1],
        "done_check": "value is not None",
    }


@pytest.mark.parametrize(
    ("kind", "named"), [("note", {}), ("agent", {"agent": ""}), ("tool", {"tool": ""})], ids=["note", "agent", "tool"]
)
def test_new_step_is_a_tool_step_until_it_is_made_another(ada, kind, named):
    draft = draft_of(ada, {"tool": ""})
    page = StepPage(ada, draft, 1)
    assert fields_of(page.html)["kind"] == ["tool"]
    page.press("update", kind=kind)
    page.press("save")
    assert steps_of(draft)[0] == {"step_id": 1, "description": "Step 1", **named}
    assert fields_of(StepPage(ada, draft, 1).html)["kind"] == [kind]


def test_conflict_keeps_what_was_typed_and_shows_both(ada, ben):
    draft = draft_of(ada, {"tool": "book_trip", "parameters": {"title": "Rome"}})
    page = StepPage(ada, draft, 1)
    theirs = document_of(draft)
    theirs["steps"][0]["parameters"]["title"] = "Oslo"
    theirs["steps"][0]["expected_key"] = "theirs"
    change_draft(draft, base_version=1, document=theirs, by=ben, summary="Changed")
    page.press("save", 409, **{"value:title": "Bonn"})
    assert "Oslo" in page.text and 'name="conflict"' in page.html
    assert fields_of(page.html)["value:title"] == ["Bonn"]
    page.press("save")
    step = steps_of(draft)[0]
    assert (step["parameters"], step["expected_key"]) == ({"title": "Bonn"}, "theirs")


def test_step_that_was_deleted_meanwhile(ada, ben):
    draft = draft_of(ada, {"tool": "book_trip", "parameters": {"title": "Rome"}}, {})
    page = StepPage(ada, draft, 1)
    theirs = document_of(draft)
    del theirs["steps"][0]
    change_draft(draft, base_version=1, document=theirs, by=ben, summary="Deleted")
    page.press("save", 409, **{"value:title": "Bonn"})
    assert "(removed)" in page.text
    Pages(ada).open(page.path, 404)


def test_problem_is_fixed_in_one_press(ada):
    draft = draft_of(
        ada,
        {"tool": "book_trip", "parameters": {"title": "x"}, "expected_key": "booked"},
        {"tool": "book_trip", "parameters": {"title": "${booked}"}},
    )
    page = StepPage(ada, draft, 2)
    (fix,) = re.findall(r'value="(fix:[^"]*)"', page.html)
    page.press(unescape(fix))
    assert steps_of(draft)[1]["dependencies"] == [1]


def test_step_is_tried_with_examples(ada):
    draft = draft_of(
        ada,
        {"tool": "plan_trip", "expected_key": "nights", "output_path": ["results", "0"]},
        {"tool": "plan_trip", "dependencies": [1], "parameters": {"title": "For ${nights}", "stops": "${stops}"}},
    )
    page = StepPage(ada, draft, 2)
    page.press("panel:try")
    page.press("call", 422)
    assert "Enter a value for the trial." in page.text and not Call.objects.exists()
    stops = json.dumps([{"place": {"kind": "town", "name": "Bonn"}, "nights": 3}])
    page.press("call", sample=["4", stops])
    call = Call.objects.get()
    assert call.given_json == {"title": "For 4", "stops": json.loads(stops)}
    work_off(Plan.objects.get(public_id=call.plan_ref))
    page = StepPage(ada, draft, 2)
    page.press("panel:try")
    assert fields_of(page.html)["sample"][0] == "3"
    page.press("refer:budget")
    assert "Last value:" in page.text


@pytest.mark.parametrize("parameters", [None, 0, ["a"], "text"])
def test_step_whose_arguments_are_no_object_is_tried_without_any(ada, parameters):
    page = StepPage(ada, draft_of(ada, {"tool": "book_trip", "parameters": parameters}), 1)
    page.pages.send(page.path, {"do": "call", "kind": "tool", "tool": "book_trip", "key": "k"}, 422)


def test_dangerous_step_is_tried_through_the_gate(ada):
    draft = draft_of(ada, {"tool": "book_trip", "parameters": {"title": "Rome"}})
    page = StepPage(ada, draft, 1)
    page.press("panel:try")
    assert "Request approval" in page.text
    page.press("call")
    assert Call.objects.get().status == "held" and "Waiting for approval." in page.text


def test_private_and_large_examples(ada, ben, vera):
    draft = draft_of(ada, {"tool": "book_trip", "expected_key": "booked"}, {"tool": "plan_trip", "parameters": {}})
    page = StepPage(ben, draft_of(ben, {"tool": "book_trip", "parameters": {"title": "SECRET"}}), 1)
    page.press("panel:try")
    page.press("call")
    call = Call.objects.get()
    response = json.dumps({"results": ["SECRET"], "success": True})
    Call.objects.filter(pk=call.pk).update(status="completed", response=response)
    page = StepPage(ada, draft, 2)
    assert "SECRET" in page.press("refer:title")
    Tool.objects.filter(name="book_trip").update(returns_private_data=True)
    page = StepPage(ada, draft, 2)
    assert "SECRET" not in page.press("refer:title") and "private" in page.text
    Call.objects.filter(pk=call.pk).update(response=json.dumps({"results": ["x" * 300_000]}))
    page = StepPage(ada, draft, 2)
    assert "too large to show" in page.press("refer:title")


def test_viewer_may_not_save(ada, vera):
    draft = draft_of(vera, {"tool": "book_trip", "parameters": {"title": "Rome"}})
    page = StepPage(vera, draft, 1)
    assert 'value="save"' not in page.html
    page.press("save", 403, **{"value:title": "Bonn"})
    assert steps_of(draft)[0]["parameters"] == {"title": "Rome"}


@pytest.mark.parametrize(
    "changes",
    [
        {"do": "use:title ${"},
        {"do": "use:nowhere ${a}"},
        {"do": "remove:"},
        {"do": "refer:nowhere"},
        {"do": "add:x y"},
        {"do": "fix:nothing"},
        {"do": "pick:"},
        {"do": "check-remove:99999"},
        {"do": "path:["},
        {"base": "999999999"},
        {"base": "x", "needs": ["1", "x", "99999999999999"]},
        {"unknown:field": "1"},
        {"version": "999999999", "drawn": "other", "kind": "other", "mode": "other", "check_mode": "other"},
        {"caret": "99999999", "do": "use:title ${a}"},
        {"tool": "a\0b", "do": "panel:path"},
        {"do": "pick:a\0b"},
        {"description": "a\0b", "tool_q": "\0", "panel": "refer:" + "a." * 5000},
    ],
)
def test_hostile_fields_are_answered(ada, changes):
    draft = draft_of(ada, {"tool": "book_trip", "parameters": {"title": "Rome"}})
    page = StepPage(ada, draft, 1)
    response = page.pages.client.post(
        page.path, {**fields_of(page.html), **changes, "csrfmiddlewaretoken": page.pages._token()}
    )
    assert response.status_code in (200, 409, 422)
    assert steps_of(draft)[0]["parameters"] == {"title": "Rome"}
