"""Pages of values: views, places in a value, downloads, where a value came from and who uses it."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from catalog.core import clock
from catalog.results import ToolResult
from plans.actions.call import CallOrder, create_call
from plans.models import MemoryItem, Plan
from plans.store.requesters import Requester
from tests.builders import act, make_plan, step_of, work_off
from tests.pages import Pages, without_nul
from tests.tools_for_tests import Stage

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
ROWS = [{"id": number, "name": f"row {number}", "more": {"x": [number]}} for number in range(250)]


def value_path(plan: Plan, more: str = "v/") -> str:
    """Return the URL of a value of a plan."""
    return f"/plans/{plan.public_id}/values/{more}"


def planned(stage: Stage, author: User, returned: Any, *more: dict[str, Any], **fields: Any) -> Plan:
    """Run a plan whose first step stores under `v` what its tool returns."""
    stage.acts["safe"] = lambda value, context: returned if value == "first" else value
    return work_off(make_plan(author, act(1, "first", expected_key="v"), *more, **fields))


def stored(plan: Plan, text: str, key: str = "large") -> str:
    """Store a JSON text in a plan's memory and return the URL of its page."""
    MemoryItem.objects.create(plan=plan, key=key, value=text, at=clock.now())
    return value_path(plan, f"{key}/")


@pytest.mark.parametrize(
    ("returned", "views"),
    [
        ("plain", ["text", "json", "model"]),
        (7, ["json", "model"]),
        (ROWS, ["table", "json", "model"]),
        ({"a": 1}, ["json", "model"]),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y", ["diff", "text", "json", "model"]),
        ({"before": "x", "after": "y"}, ["diff", "json", "model"]),
        (ToolResult.ok(None, content=[{"type": "image", "data": PNG, "mimeType": "text/html"}]), ["content"]),
        (ToolResult.ok(ROWS, content=[{"type": "audio", "data": PNG, "mimeType": "audio/wav"}]), ["content", "table"]),
        (ToolResult.ok(ROWS, content=[{"type": "text", "text": "A note"}]), ["table", "json", "content"]),
        (ToolResult.error("It failed"), []),
    ],
)
def test_a_value_is_shown_as_what_it_is(stage: Stage, ada: User, returned: Any, views: list[str]) -> None:
    plan, pages = planned(stage, ada, returned), Pages(ada)
    if not views:  # nothing is stored, and the part of the call is an error
        pages.open(value_path(plan), status=404)
        pages.open(f"/plans/{plan.public_id}/steps/1/result/")
        assert pages.context["page"].is_error
        return
    pages.open(value_path(plan))
    page = pages.context["page"]
    assert [name for name, _ in page.views][: len(views)] == views
    assert page.view == views[0]
    for name, _ in page.views:
        pages.open(value_path(plan, f"v/?as={name}"))
        assert pages.context["page"].view == name
    assert pages.context["page"].whole is not None


def test_an_image_opens_with_its_caption(stage: Stage, ada: User) -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    plan, pages = planned(stage, ada, ToolResult.ok("It rises", content=[image])), Pages(ada)
    pages.open(value_path(plan))
    assert [name for name, _ in pages.context["page"].views] == ["content", "text", "json", "model"]
    assert pages.html.count("<img") == 1
    assert pages.html.count(">It rises</pre>") == 1
    pages.open(value_path(plan, "v/?as=text"))
    assert "<img" not in pages.html


@pytest.mark.parametrize(("path", "images"), [(["results"], 1), (["results", "0"], 1), (["results", "0", "a"], 0)])
def test_a_part_of_a_value_has_no_image(stage: Stage, ada: User, path: list[str], images: int) -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    stage.acts["safe"] = lambda value, context: ToolResult.ok({"a": "b"}, content=[image])
    plan = work_off(make_plan(ada, act(1, "first", expected_key="v", output_path=path)))
    pages = Pages(ada)
    pages.open(value_path(plan))
    assert pages.html.count("<img") == images


def test_an_image_is_one_by_its_bytes(stage: Stage, ada: User) -> None:
    blocks = [{"type": "image", "data": data, "mimeType": "image/png"} for data in (PNG, b"<svg onload=x>")]
    pages = Pages(ada)
    pages.open(value_path(planned(stage, ada, ToolResult.ok(None, content=blocks))))
    assert (pages.html.count("<img"), pages.html.count(" download>")) == (1, 2)


def test_places_sorting_and_searches_are_in_the_address(stage: Stage, ada: User) -> None:
    plan, pages = planned(stage, ada, ROWS), Pages(ada)
    pages.open(value_path(plan, "v/?as=table&sort=-1&from=100"))
    assert [row.number for row in pages.context["page"].table.rows][:2] == [149, 148]
    assert 'aria-sort="descending"' in pages.html
    pages.open(value_path(plan, "v/?path=results.7.more"))
    assert pages.context["page"].place.value == {"x": [7]}
    assert 'data-copy="${v.results.7.more}"' in pages.html
    pages.open(value_path(plan, "v/?q=ROW+249"))
    assert "?path=results.249.name" in pages.html
    pages.open(value_path(plan, "v/?path="))
    assert set(pages.context["page"].place.value) >= {"query_type", "parameters", "results", "success"}
    for gone in ("v/?path=results.999", "v/?path=" + "a." * 3000, "v/?as=nonsense&from=x&sort=zz&path=results"):
        pages.open(value_path(plan, gone))
        assert pages.context["page"].place.value == ROWS
    members = pages.client.get(
        value_path(plan, "v/?path=results&as=json&from=200"), headers={"HX-Request": "true", "HX-Target": "m-1"}
    )
    assert members.content.count(b"<summary>") >= 50
    assert b"<html" not in members.content


def test_a_changed_value_is_announced(stage: Stage, ada: User) -> None:
    plan, pages = planned(stage, ada, ["x" * 50_000]), Pages(ada)
    pages.open(value_path(plan))
    seen = pages.context["page"].stored.version
    for is_new in (False, True):
        pages.open(value_path(plan, f"v/?from=20000&seen={seen}"))
        assert ('id="changed"' in pages.html) == is_new
        MemoryItem.objects.filter(plan=plan, key="v").update(value='["new"]', at=clock.now())


@pytest.mark.parametrize(
    "text",
    [
        json.dumps("x" * 8_000_000),
        json.dumps(ROWS * 400),
        "[" * 60_000 + "]" * 60_000,
        "[" * 900 + "]" * 900,
        json.dumps({"k" * 1000: "\u202e\u0000<script>alert(1)</script>", "": "👩‍👧"}),
        '{"lone": "\\ud800", "number": NaN, "huge": 1e999}',
        '{"digits": ' + "9" * 6000 + "}",
        '"cut off',
        '"x"' + " " * 17_000_000,
    ],
    ids=["line", "rows", "too-deep", "deep", "names", "surrogate", "digits", "cut", "too-large"],
)
def test_a_hostile_value_makes_a_small_page(stage: Stage, ada: User, text: str) -> None:
    plan, pages = planned(stage, ada, 1), Pages(ada)
    address = stored(plan, text)
    for more in ("", "?as=json", "?as=text&from=20000", "?q=x", "?path=0.0"):
        assert len(pages.client.get(address + more).content) < 600_000, more
        pages.open(address + more)
        assert "<script>alert" not in pages.html
    response: Any = pages.client.get(f"{address}file/")
    assert b"".join(response.streaming_content) == text.encode()


def test_downloads_run_nothing(stage: Stage, ada: User) -> None:
    plan, pages = planned(stage, ada, {"page": "<script>alert(1)</script>"}), Pages(ada)
    for more, kind, text in (
        ("?path=results.0.page", "text/plain", "<script>alert(1)</script>"),
        ("?path=results.0", "application/json", '{"page": "<script>alert(1)</script>"}'),
    ):
        response = pages.client.get(value_path(plan, f"v/file/{more}"))
        assert response.getvalue().decode() == text
        assert response["Content-Type"].startswith(kind)
        assert response["Content-Disposition"].startswith("attachment;")
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in response["Content-Security-Policy"]
    assert pages.client.get(value_path(plan, "v/file/?path=none")).status_code == 404
    with connection.execute_wrapper(without_nul):
        assert pages.client.get(value_path(plan, "a%00b/")).status_code == 404


def test_a_value_names_its_writer_and_its_users(stage: Stage, ada: User) -> None:
    used = act(2, {"a": ["${v.results.0.name}", "$${v}"]}, dependencies=[1], done_check="v and False")
    later = act(3, {"b": "${v}"}, "dangerous", dependencies=[1], done_check="memory['v'] == 1")
    last = act(5, "${v}", dependencies=[3])
    plan, pages = planned(stage, ada, ROWS, used, later, act(4, "$${v} ${w}"), last, memory={"w": 1}), Pages(ada)
    pages.open(value_path(plan))
    page = pages.context["page"]
    found = [(use.step_id, use.where, use.path) for use in page.uses]
    assert found == [
        (2, "value.a.0", "results.0.name"),
        (2, "done_check", ""),
        (3, "value.b", ""),
        (3, "done_check", ""),
        (5, "value", ""),
    ]
    assert [use.step_id for use in page.later_uses] == [5]
    assert "?path=results.0.name" in pages.html
    plan.steps.filter(step_id=4).delete()
    MemoryItem.objects.filter(plan=plan, key="v").update(step_id=99)
    pages.open(value_path(plan))
    assert "?step=99&amp;tab" not in pages.html


def test_a_step_names_where_its_arguments_came_from(stage: Stage, ada: User) -> None:
    plan = planned(stage, ada, ROWS, act(4, {"a": "${v.results.1.id} ${given}"}, dependencies=[1]), memory={"given": 7})
    pages = Pages(ada)
    pages.open(f"/plans/{plan.public_id}/?step=4&tab=input")
    card = pages.context["page"].card
    assert [(each.reference, each.step_id, each.is_known) for each in card.arguments[0].sources] == [
        ("${v.results.1.id}", 1, True),
        ("${given}", None, True),
    ]
    assert value_path(plan, "v/?path=results.1.id") in pages.html
    assert json.loads(card.arguments[0].became.head) == {"a": "1 7"}
    row = next(row for row in pages.context["page"].overview.memory if row.key == "v")
    assert (row.used_by, row.later, bool(row.kind)) == ((4,), (), True)


def test_a_model_gets_what_its_format_says(stage: Stage, ada: User) -> None:
    hidden = ToolResult("Only this", {"secret": "for people"}, exclude_value_from_context=True)
    plan, pages = planned(stage, ada, hidden), Pages(ada)
    pages.open(value_path(plan, "v/?as=model"))
    seen = pages.html.partition('id="model-h"')[2]
    assert "Only this" in seen
    assert "for people" not in seen.partition('id="whole"')[0]
    call = create_call(CallOrder(tool="safe", arguments={"value": "first"}), by=Requester(ada, via="mcp"))
    own = work_off(Plan.objects.get(public_id=call.plan_ref))
    assert step_of(own).call_id == call.pk
    pages.open(f"/plans/{call.plan_ref}/steps/1/result/?as=model")
    assert "Only this" in pages.html.partition('id="model-h"')[2]
