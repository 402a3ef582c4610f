"""Tests of trying a tool from its page, without JavaScript."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.stops.services import parse_scope, set_stop
from catalog.inventory.sync import sync_tools
from catalog.models import Call, Tool, ToolVersion
from catalog.tools import registry
from catalog.tools.registry import register_tool
from plans.models import Plan
from tests.approvals.factories import add_policy
from tests.builders import approve, work_off
from tests.catalogs import fill_catalog
from tests.conftest import forget_what_was_read
from tests.pages import Pages
from tests.tools_to_try import TOOLS

pytestmark = pytest.mark.django_db
TRIP, BOOK = "/tools/plan_trip/try/", "/tools/book_trip/try/"
BONN = {"title": "Rhine", "stops": [{"place": {"kind": "town", "name": "Bonn"}}]}
BONN_FIELDS = {
    "value:title": "Rhine",
    "size:stops": "1",
    "pick:stops.0.place": "1",
    "was:stops.0.place": "1",
    "value:stops.0.place.name": "Bonn",
}


@pytest.fixture(autouse=True)
def to_try(catalog):
    """The tools of these tests, in the catalog."""
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield
    for each in TOOLS:
        registry._TOOLS.pop(each.name)


def press(pages: Pages, path: str, do: str, status: Any = 200, **fields: Any) -> str:
    """Open the page of a tool and submit its form with these fields and this button."""
    pages.open(path)
    mode = fields.pop("mode", "form")
    sent = {"mode": mode, "key": pages.field("key"), "do": do} | fields
    return pages.send(path, sent, status)


def finished(call: Call) -> Call:
    """Run a call and return it."""
    work_off(Plan.objects.get(public_id=call.plan_ref))
    return Call.objects.get(pk=call.pk)


def test_call_from_form(ada):
    pages = Pages(ada)
    press(pages, TRIP, "call", **BONN_FIELDS)
    call = Call.objects.get()
    assert (call.given_json, call.via, call.requested_by) == (BONN, "page", ada)
    assert f'hx-get="{TRIP}?call={call.public_id}"' in pages.html
    finished(call)
    text = pages.open(f"{TRIP}?call={call.public_id}")
    assert "Done" in text and '"results": [ 1 ]' in text
    assert 'value="Rhine"' in pages.html and pages.field("size:stops") == "1"


def test_dangerous_call_is_held(ada, rosa):
    pages = Pages(ada)
    press(pages, BOOK, "call", **{"value:title": "Rome"})
    call = Call.objects.get()
    assert call.status == "held"
    assert f"/approvals/?item={call.approval.public_id}" in pages.html
    approve(Plan.objects.get(public_id=call.plan_ref), rosa)
    assert finished(call).response_json["results"] == ["Booked Rome"]


def test_preview_runs_nothing(ada):
    pages = Pages(ada)
    page_text = press(pages, BOOK, "preview", **{"value:title": "Rome"})
    assert "A booking of Rome" in page_text and 'class="note human"' in pages.html.split('id="rehearsed"')[1]
    press(pages, TRIP, "preview", **BONN_FIELDS)
    assert 'class="note"' in pages.html.split('id="rehearsed"')[1]
    assert not Call.objects.exists() and not Plan.objects.exists()


def test_preview_without_text_has_no_box(ada):
    pages = Pages(ada)
    for title, boxes in (("Rome", 1), ("Nowhere", 0)):
        assert f"Book {title}" in press(pages, BOOK, "preview", **{"value:title": title})
        assert pages.html.partition('id="rehearsed"')[2].count("<pre") == boxes


def test_form_submitted_twice_makes_one_call(ada):
    pages = Pages(ada)
    pages.open(BOOK)
    sent = {"mode": "form", "key": pages.field("key"), "do": "call", "value:title": "Rome"}
    first, second = pages.send(BOOK, sent), pages.send(BOOK, sent)
    assert Call.objects.count() == 1 and first == second
    pages.send(BOOK, sent | {"value:title": "Oslo"})
    press(pages, BOOK, "call", **{"value:title": "Rome"})
    assert Call.objects.count() == 3


def test_problems_are_shown_at_their_fields(ada):
    pages = Pages(ada)
    fields = BONN_FIELDS | {"value:title": "x" * 81, "value:stops.0.nights": "many", "value:stops.0.place.name": "B"}
    press(pages, TRIP, "call", 422, **fields)
    assert 'id="try-wrong"' in pages.html and pages.html.count('aria-invalid="true"') == 3
    assert 'value="many"' in pages.html
    assert 'name="value:stops.0.nights" value="many" type="text" inputmode="numeric"' in pages.html
    assert 'aria-invalid="true" aria-describedby="f-stops.0.nights-d"' in pages.html
    assert not Call.objects.exists()


def test_valid_arguments_are_confirmed(vera):
    pages = Pages(vera)
    press(pages, TRIP, "check", **BONN_FIELDS)
    assert 'id="try-wrong"' not in pages.html
    pages.open(TRIP)
    assert 'value="call"' not in pages.html
    for do in ("call", "preview"):
        press(pages, TRIP, do, 403, **BONN_FIELDS)
    assert not Call.objects.exists()


def test_rows_and_variants_work_without_scripts(ada):
    pages = Pages(ada)
    press(pages, TRIP, "add:stops", **BONN_FIELDS)
    assert pages.field("size:stops") == "2" and 'name="pick:stops.1.place"' in pages.html
    assert re.findall(r'name="([^"]+)"[^>]*autofocus', pages.html)[:1] == ["pick:stops.1.place"]
    press(pages, TRIP, "update", **BONN_FIELDS | {"pick:stops.0.place": "0"})
    assert 'name="value:stops.0.place.x"' in pages.html and "Bonn" not in pages.html
    press(pages, TRIP, "remove:stops.0", **BONN_FIELDS)
    assert pages.field("size:stops") == "0"
    press(pages, TRIP, "open:span", **BONN_FIELDS)
    assert 'name="value:span.0"' in pages.html
    press(pages, TRIP, "add:labels", **BONN_FIELDS | {"given:labels": "1"})
    assert 'name="key:labels.+0" value="" autofocus' in pages.html
    press(pages, TRIP, "close:labels", **BONN_FIELDS | {"given:labels": "1", "size:labels": "1"})
    assert 'name="key:labels.+0"' not in pages.html


def test_form_and_json_are_equivalent(ada):
    pages = Pages(ada)
    press(pages, TRIP, "show:json", **BONN_FIELDS)
    assert pages.field("mode") == "json" and "&quot;Rhine&quot;" in pages.html
    text = json.dumps(BONN | {"span": [1], "odd": None})
    press(pages, TRIP, "show:form", mode="json", json=text)
    assert pages.field("mode") == "form" and 'name="value:span.0" value="1"' in pages.html
    assert 'name="key:+0" value="odd"' in pages.html


def test_json_problems_have_paths(ada):
    pages = Pages(ada)
    press(pages, TRIP, "call", mode="json", json=json.dumps(BONN))
    assert Call.objects.get().given_json == BONN
    page_text = press(pages, TRIP, "call", 422, mode="json", json='{"title": 5}')
    assert "title: " in page_text and "stops: " in page_text
    for text in ("[1]", "{", '{"a": 1, "a": 2}', "NaN", "{" * 500, '{"n": 1' + "0" * 5000 + "}"):
        press(pages, TRIP, "show:form", 422, mode="json", json=text)
        assert pages.field("mode") == "json"


def test_example_fills_form(ada):
    pages = Pages(ada)
    pages.open(f"{TRIP}?example=0")
    assert 'value="Rhine"' in pages.html
    for number in ("1", "-1", "x", "", "9" * 99, "\uff10"):
        pages.open(f"{TRIP}?example={number}")
        assert "Rhine" not in pages.html


HOSTILE_FORMS: list[dict[str, str]] = [
    {"value:a..b": "x"},
    {"size:stops": "-1"},
    {"size:stops": "999"},
    {"do": "add:a b"},
    {"do": "remove:" + "x." * 500},
    BONN_FIELDS | {"do": "call", "key": ""},
    BONN_FIELDS | {"do": "call", "key": "k" * 65},
    BONN_FIELDS | {"do": "call", "key": "\x00"},
    {"pick:stops.0.place": "\uff11", "size:stops": "1", "do": "call"},
    {"nothing:known": "1"},
    {"do": "call", "value:title": "\x00" * 90},
]


def test_hostile_forms_are_refused(ada, client):
    pages, faults = Pages(ada), {}
    client.force_login(ada)
    for sent in HOSTILE_FORMS:
        pages.open(TRIP)
        answer = client.post(TRIP, {"mode": "form", "key": pages.field("key"), "do": "check"} | sent)
        if answer.status_code != 422 or b'id="trying"' not in answer.content:
            faults[str(sent)] = answer.status_code
    assert faults == {}
    assert not Call.objects.exists()


def test_uncallable_tool_shows_reason(ada):
    Tool.objects.filter(name="plan_trip").update(enabled=False)
    pages = Pages(ada)
    sync_tools()
    press(pages, TRIP, "call", 409, **BONN_FIELDS)
    registry_entry = registry._TOOLS.pop("book_trip")
    sync_tools()
    try:
        press(pages, BOOK, "call", 409, **{"value:title": "Rome"})
    finally:
        registry._TOOLS["book_trip"] = registry_entry
    assert 'id="try-wrong"' in pages.html and not Call.objects.exists()


def test_only_visible_calls_are_shown(ada, outsider):
    press(Pages(ada), BOOK, "call", **{"value:title": "Rome"})
    name = Call.objects.get().public_id
    Pages(ada).open(f"{BOOK}?call={name}")
    Pages(ada).open(f"{TRIP}?call={name}", 404)
    Pages(outsider).open(f"{BOOK}?call={name}", 404)
    for odd in ("nothing", "%00", "", "x" * 5000):
        Pages(ada).open(f"{BOOK}?call={odd}", 404)
    Pages(ada).open("/tools/nothing/try/", 404)


@pytest.fixture
def outsider(db) -> User:
    """Someone without a role."""
    return User.objects.create_user("outsider")


def test_htmx_gets_only_the_card(ada):
    pages = Pages(ada)
    pages.open(TRIP)
    fields = BONN_FIELDS | {"mode": "form", "key": pages.field("key"), "do": "call"}
    sent = pages.swap(TRIP, "trying", fields).content.decode()
    assert "<html" not in sent and 'id="trying"' in sent and 'hx-trigger="load delay:700ms"' in sent
    call = finished(Call.objects.get())
    pages.open(f"{TRIP}?call={call.public_id}", headers={"HX-Request": "true", "HX-Target": "tried"})
    assert pages.html.lstrip().startswith('<div id="tried"') and "hx-get" not in pages.html


def test_texts_of_tools_are_escaped(ada):
    hostile = "<script>alert(1)</script>\u202e"
    part = {"description": hostile, "enum": [hostile], "title": hostile, "default": hostile}
    document = {"type": "object", "properties": {hostile: part, "u": {"oneOf": [part, {"type": "string"}]}}}
    ToolVersion.objects.filter(tool__name="plan_trip").update(input_schema=document)
    pages = Pages(ada)
    pages.open(TRIP)
    assert "<script>alert" not in pages.html and "U+202E" in pages.html


def set_schema(document: dict[str, Any]) -> None:
    """Give the tool's page another schema."""
    ToolVersion.objects.filter(tool__name="plan_trip").update(input_schema=document)


def test_too_large_form_becomes_json(ada):
    pages, text = Pages(ada), {"type": "string"}
    set_schema({"type": "object", "properties": {f"p{number}": text for number in range(300)}})
    pages.open(TRIP)
    assert pages.field("mode") == "form" and pages.html.count('name="value:p') == 300
    set_schema({"type": "object", "properties": {f"p{number}": text for number in range(900)}})
    pages.open(TRIP)
    assert pages.field("mode") == "json"
    press(pages, TRIP, "show:form", mode="json", json='{"p7": "x"}')
    assert pages.field("mode") == "json"
    assert "&quot;p7&quot;: &quot;x&quot;" in pages.html


ROWS = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}


@pytest.mark.parametrize("do", ["check", "call", "show:json", "add:a", "update"])
def test_form_with_too_many_rows_is_refused(vera, do):
    set_schema({"type": "object", "properties": {"a": {"type": "array", "items": ROWS}}})
    sizes = {f"size:a.{n}.{m}": "200" for n in range(30) for m in range(30)}
    sizes |= {f"size:a.{n}": "30" for n in range(30)} | {"size:a": "30"}
    pages = Pages(vera)
    press(pages, TRIP, do, 422, **sizes)
    assert pages.field("mode") == "form" and "value:a." not in pages.html and "size:a." not in pages.html


def test_edit_that_makes_form_too_large_keeps_input(vera):
    word = {"type": "string", "maxLength": 20}
    wide = {"type": "object", "properties": {f"p{n}": word for n in range(450)}}
    few = {"type": "object", "properties": {"word": word}}
    rows = {"type": "array", "items": wide}
    set_schema({"type": "object", "properties": {"rows": rows, "one": {"oneOf": [few, wide]}}})
    pages, sent = Pages(vera), {"size:rows": "1", "value:rows.0.p7": "kept"}
    press(pages, TRIP, "add:rows", 422, **sent)
    assert pages.field("size:rows") == "1" and pages.field("value:rows.0.p7") == "kept"
    picked = sent | {"pick:one": "1", "was:one": "0", "value:one.word": "kept too"}
    press(pages, TRIP, "update", 422, **picked)
    assert pages.field("value:rows.0.p7") == "kept" and pages.field("value:one.word") == "kept too"
    press(pages, TRIP, "show:json", **sent)
    assert "&quot;p7&quot;: &quot;kept&quot;" in pages.html


def test_deep_schema_becomes_json(ada):
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(13):
        deep = {"type": "object", "properties": {"in": {"anyOf": [deep, {"type": "integer"}]}}, "required": ["in"]}
    set_schema(deep)
    pages = Pages(ada)
    pages.open(TRIP)
    assert 'placeholder="JSON' in pages.html
    pages.open("/tools/plan_trip/")
    assert TRIP in pages.html


@pytest.mark.parametrize(
    ("refused_by", "button"),
    [("stop", "preview"), ("stop", "call"), ("policy", "call"), ("role", "preview"), ("role", "call")],
)
def test_reason_of_a_refusal_is_in_an_answer_that_htmx_shows(ada, vera, admin, refused_by, button):
    """It shows answers with an error only for the statuses that the frame of the pages lists."""
    reason = "Too many trips"
    if refused_by == "stop":
        set_stop(parse_scope({"tool": "plan_trip"}), reason, by=admin)
    elif refused_by == "policy":
        add_policy(1, tool="plan_trip", effect="deny", message=reason)
        forget_what_was_read()
    else:
        reason = "needs the role operator"
    pages = Pages(vera if refused_by == "role" else ada)
    pages.open(TRIP)
    fields = {"mode": "form", "key": "k" if refused_by == "role" else pages.field("key"), "do": button}
    assert reason in pages.swap(TRIP, "trying", fields | BONN_FIELDS, status=422).content.decode()
