"""Quick fixes: each edit resolves one problem and keeps the rest of the text as typed."""

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.documents.quick_fixes import fixes
from plans.documents.reading import Problem
from plans.models import Plan
from plans.web.compose.text import PlanEditor
from tests.builders import act, make_plan, step
from tests.pages import Pages

pytestmark = pytest.mark.usefixtures("catalog", "workspace")
NEW = "/plans/new/"
SAID = {"template": "${helo}", "values": {}}
WRITING = step(1, "writefile") | {"parameters": {"path": "a.txt", "content": "a"}}
FACTS = {"ticker": "AAPL", "metrics": ["Revenue"], "start_date": "2022-01-01", "end_date": "31/12/2022"}


def text_of(*steps: dict[str, Any]) -> str:
    """Return the text of a plan, one step per line, oddly spaced."""
    lines = ",\n".join("   " + json.dumps(each) for each in steps)
    return f'{{"goal":"Try 😀 it" ,\n "steps" :[\n{lines}\n ]\n}}'


def offers(text: str) -> list[str]:
    """Return the labels of the fixes for a text."""
    return [fix.label for _, found in PlanEditor(text).findings for fix in found]


def mended(text: str, label: str) -> str:
    """Return the text after applying one fix."""
    names = [fix.name for _, found in PlanEditor(text).findings for fix in found if fix.label == label]
    return PlanEditor(text).with_fix(names[0]).text


MENDS: list[tuple[list[dict[str, Any]], str, str, str]] = [
    ([WRITING], "Use write_file", '"writefile"', '"write_file"'),
    ([step(1, dependancies=[])], "Rename to dependencies", '"dependancies"', '"dependencies"'),
    ([step(1, dependencies=[9])], "Remove 9", "[9]", "[]"),
    ([step(1), step(2, dependencies=[1, 9])], "Remove 9", "[1, 9]", "[1]"),
    ([step(1), step(2, dependencies=[9, 1])], "Remove 9", "[9, 1]", "[1]"),
    ([step(1), step(2, dependencies=[1, 1])], "Remove 1", "[1, 1]", "[1]"),
    ([step(1, dependencies=[1])], "Remove 1", "[1]", "[]"),
    ([step(1, dependencies=[2]), step(2, dependencies=[1])], "Remove 2", "[2]", "[]"),
    (
        [step(1, expected_key="hello"), step(2, parameters=SAID, dependencies=[1])],
        "Use hello",
        '"${helo}"',
        '"${hello}"',
    ),
    ([step(1, parameters={"template": "a", "values": {"x": "${gone.y}"}})], "Leave out x", '"x": "${gone.y}"', ""),
    ([step(1, parameters={"template": "a", "values": {"x": "${g}", "y": 1}})], "Leave out x", '"x": "${g}", ', ""),
    ([step(1, parameters={"template": "a", "values": {"y": 1, "x": "${g}"}})], "Leave out x", ', "x": "${g}"', ""),
    (
        [step(1, "sec_financial_data", parameters={"query_type": "financial_facts", "parameters": FACTS})],
        "Change to 2022-12-31",
        '"31/12/2022"',
        '"2022-12-31"',
    ),
]


def test_fix_changes_only_its_place() -> None:
    """The problem is gone, and no error is left."""
    for steps, label, was, now in MENDS:
        text = text_of(*steps)
        assert PlanEditor(text).errors == 1, text
        assert mended(text, label) == text.replace(was, now)
        assert PlanEditor(mended(text, label)).errors == 0, text


@pytest.mark.parametrize(
    ("needs", "was", "now"),
    [
        ({}, '"step_id": 3,', '"step_id": 3, "dependencies": [1],'),
        ({"dependencies": []}, '"dependencies": []', '"dependencies": [1]'),
        ({"dependencies": [2]}, '"dependencies": [2]', '"dependencies": [2, 1]'),
    ],
)
def test_missing_dependency_is_added(needs: dict[str, Any], was: str, now: str) -> None:
    """To the existing dependencies, or after the step's number."""
    last = step(3, parameters={"template": "${helo} $${helo}", "values": {}}, **needs)
    text = text_of(step(1, expected_key="helo"), step(2), last)
    assert offers(text) == ["Add 1 to the dependencies"]
    assert mended(text, "Add 1 to the dependencies") == text.replace(was, now)
    assert PlanEditor(text.replace(was, now)).errors == 0


@pytest.mark.parametrize(
    ("written", "days"),
    [
        ("31/12/2022", ["2022-12-31"]),
        ("12/31/2022", ["2022-12-31"]),
        ("4.3.2022", ["2022-03-04", "2022-04-03"]),
        ("5/5/2022", ["2022-05-05"]),
        ("2022/3/4", ["2022-03-04"]),
        ("31/13/2022", []),
        ("1/2/22", []),
        ("soon", []),
    ],
)
def test_date_is_offered_in_every_valid_order(written: str, days: list[str]) -> None:
    problem = Problem("a", "x", "error", "Date must be a real day in YYYY-MM-DD format")
    assert [fix.put for fix in fixes(problem, json.dumps({"a": written}))] == [json.dumps(day) for day in days]


@pytest.mark.parametrize(
    "problem",
    [
        Problem("steps.7.tool", "unknown_tool", "error", "", candidates=("write_file",)),
        Problem("goal.x", "unknown_tool", "error", "", candidates=("write_file",)),
        Problem("goal", "unknown_dependency", "error", ""),
        Problem("", "reference_not_before", "error", "", missing_dependency=1),
        Problem("steps", "circular_dependency", "error", "", cycle_edge=(1, 2)),
        Problem("dgoal", "unknown_field", "error", "", candidates=("goal",)),
    ],
)
def test_no_fix_for_values_missing_in_the_text(problem: Problem) -> None:
    """Nor for a name that exists already."""
    assert fixes(problem, '{"goal": "a", "dgoal": 1, "steps": [{"step_id": 1}]}') == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "<script>", "[" * 100, '{"steps": 1}'])
def test_unreadable_text_gets_no_fixes(text: str) -> None:
    assert offers(text) == []


def test_positions_are_counted_in_utf16() -> None:
    """A character outside the BMP counts twice."""
    text = text_of(step(1, "writefile"))
    fix = next(fix for _, found in PlanEditor(text).findings for fix in found)
    assert fix.script_start == fix.start + 1
    assert fix.script_size == len(text) + 1


def press(pages: Pages, path: str, label: str, **fields: str) -> str:
    """Press a button of the open page like a browser without JavaScript; return the text in the new page."""
    found = re.search(rf'name="fix" value="([^"]*)"[^>]*>\s*{re.escape(label)}\s*<', pages.html)
    assert found is not None, label
    pages.send(path, {**fields, "fix": html.unescape(found[1])})
    area = re.search(r"<textarea[^>]*>\s*(.*?)</textarea>", pages.html, re.DOTALL)
    assert area is not None
    return html.unescape(area[1])


def test_without_javascript_the_form_returns_fixed_and_checked(ada: User) -> None:
    """Each press fixes one problem; without errors the start button appears, and nothing was stored before."""
    pages = Pages(ada)
    pages.open(NEW)
    text = text_of(step(1, "rendertext", parameters={"template": "a", "values": {}}, dependencies=[9]))
    pages.send(NEW, {"text": text, "do": "check"})
    text = press(pages, NEW, "Remove 9", text=text)
    assert pages.html.count('data-severity="error"') == 1
    text = press(pages, NEW, "Use render_text", text=text)
    assert 'data-severity="error"' not in pages.html
    assert not Plan.objects.exists()
    pages.send(NEW, {"text": text, "do": "start"})
    assert Plan.objects.exists()


def test_a_fix_that_is_no_longer_offered_changes_nothing(ada: User) -> None:
    """The text was corrected by hand in the meantime."""
    pages = Pages(ada)
    pages.open(NEW)
    pages.send(NEW, {"text": text_of(step(1)), "fix": "steps.0.tool Use write_file"})
    assert 'data-severity="error"' not in pages.html
    assert "write_file" not in pages.html


def test_fixes_work_for_changes_of_a_plan(stage: Any, ada: User) -> None:
    """By positions in the text, whatever the change contains."""
    plan = make_plan(ada, act(1), act(2), start=False)
    path = f"/plans/{plan.public_id}/change/"
    pages = Pages(ada)
    pages.open(path)
    kept = {name: pages.field(name) for name in ("listed", "seen")}
    area = re.search(r"<textarea[^>]*>\s*(.*?)</textarea>", pages.html, re.DOTALL)
    document = json.loads(html.unescape(area[1] if area else ""))
    document["steps"][1]["dependencies"] = [1, 9]
    pages.send(path, {**kept, "text": json.dumps(document), "do": "check"})
    text = press(pages, path, "Remove 9", text=json.dumps(document), **kept)
    assert json.loads(text)["steps"][1]["dependencies"] == [1]
    assert 'data-severity="error"' not in pages.html


def test_yaml_is_converted_to_json():
    text = "goal: Try it\nsteps:\n- {step_id: 1, description: No, tool: render_text}\n"
    assert [problem.code for problem in PlanEditor(text).problems] == ["yaml"]
    document = json.loads(mended(text, "Convert to JSON"))
    assert document["steps"][0]["description"] == "No"
    assert [problem.code for problem in PlanEditor("goal: [").problems] == ["invalid_json"]
