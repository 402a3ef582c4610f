"""Tests of the plan editor."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from plans.web.compose.starters import STARTERS
from plans.web.compose.text import PlanEditor, sketch_graph
from tests.builders import step, work_off
from tests.pages import Pages

pytestmark = pytest.mark.usefixtures("catalog", "workspace")
NEW = "/plans/new/"


def text_of(*steps: dict[str, Any], **fields: Any) -> str:
    """Return a plan as text."""
    return json.dumps({"goal": "Try it", "steps": list(steps), **fields}, indent=1)


@pytest.mark.parametrize("name", STARTERS)
def test_starter_can_be_started_unchanged(ada: User, name: str) -> None:
    pages = Pages(ada)
    pages.open(f"{NEW}?starter={name}")
    assert not has_errors(pages)
    pages.send(NEW, {"text": STARTERS[name].text, "do": "start"})
    assert work_off(Plan.objects.get()).status in ("completed", "in_progress")


def test_empty_text_has_no_problems(ada):
    pages = Pages(ada)
    pages.open(NEW)
    assert not has_errors(pages)


def has_errors(pages: Pages) -> bool:
    """Return whether the open page shows an error."""
    return 'data-severity="error"' in pages.html


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("{", "invalid_json", 1),
        ('{"goal": "a",\n "goal": "b"}', "duplicate_key", None),
        ("[1]", "type", 1),
        (text_of(step(1, "no_such_tool")), "unknown_tool", 7),
        (text_of(step(1, dependencies=[2])), "unknown_dependency", None),
        ("[" * 100, "invalid_json", 1),
        ('{"a": 1e999}', "not_finite", None),
        ("<script>\u202e", "invalid_json", 1),
    ],
)
def test_problems_are_shown_with_their_lines(ada: User, text: str, code: str, line: int | None) -> None:
    writing = PlanEditor(text)
    assert writing.errors
    assert code in {problem.code for problem in writing.problems}
    assert line is None or line in {problem.line or 1 for problem in writing.problems}
    pages = Pages(ada)
    pages.open(NEW)
    for do, status in (("check", 200), ("start", 422)):
        pages.send(NEW, {"text": text, "do": do}, status=status)
        assert has_errors(pages)
    assert not Plan.objects.exists()


def test_plan_is_checked_while_typing(ada):
    pages = Pages(ada)
    pages.open(NEW)
    part = pages.swap(NEW, "findings", {"text": text_of(step(1, "no_such_tool"))}).content.decode()
    assert part.lstrip().startswith('<div class="stack sticky" id="findings">')
    for beside in ('id="gutter"', 'id="marks"', 'id="start"'):
        assert beside in part
    assert part.count("hx-swap-oob") == 3
    assert "<textarea" not in part


def test_starting_redirects_to_plan(ada):
    pages = Pages(ada)
    pages.open(NEW)
    pages.send(NEW, {"text": text_of(step(1)).replace("\n", "\r\n"), "do": "start"})
    plan = Plan.objects.get()
    assert (plan.author, plan.via, plan.status) == (ada, "page", "in_progress")
    assert f"/plans/{plan.public_id}/start/" not in pages.html


def test_viewer_may_check_without_starting(vera):
    pages = Pages(vera)
    pages.open(NEW)
    pages.send(NEW, {"text": text_of(step(1)), "do": "check"})
    assert not has_errors(pages)
    pages.send(NEW, {"text": text_of(step(1)), "do": "start"}, status=403)
    assert not Plan.objects.exists()


def test_graph_shows_parsed_steps():
    sketch = sketch_graph(PlanEditor(text_of(step(1), step(2, "no_such_tool", dependencies=[1]))))
    assert sketch is not None
    assert [(box.step_id, box.look) for box in sketch.boxes] == [(1, "idle"), (2, "bad")]
    circle = sketch_graph(PlanEditor(text_of(step(1, dependencies=[2]), step(2, dependencies=[1]))))
    assert circle is not None and [box.needs for box in circle.boxes] == [(2,), ()]
    assert sketch_graph(PlanEditor("{")) is None
