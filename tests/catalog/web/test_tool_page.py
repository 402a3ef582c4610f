"""Tool page without JavaScript: parameters, schemas, examples, implementations, version changes."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from catalog.inventory import snapshot
from catalog.models import CatalogState, Implementation, Tool, ToolVersion
from catalog.schemas.description import parameter_tables
from catalog.ui.version_changes import pair_versions
from tests.approvals.factories import make_tool
from tests.corpus import faults
from tests.pages import Pages
from tests.rest import Rest

pytestmark = pytest.mark.django_db
TEXT = {"type": "string"}


def new_version(tool: Tool, **fields: Any) -> ToolVersion:
    """Store another version of a tool that differs in these fields, and make it the current one."""
    last = tool.versions.order_by("-number")[0]
    kept = {name: getattr(last, name) for name in ("description", "input_schema", "safety_level", "reversibility")}
    number = last.number + 1
    row = {"number": number, "fingerprint": f"{number:064x}", "retry_safe": False, "timeout": 30}
    version = ToolVersion.objects.create(tool=tool, **kept | row | fields)
    Tool.objects.filter(pk=tool.pk).update(current_version=version)
    return version


def with_schema(document: dict[str, Any]) -> Tool:
    """Return a tool that takes this."""
    tool = make_tool("odd")
    ToolVersion.objects.filter(tool=tool).update(input_schema=document)
    return tool


def rows_of(document: dict[str, Any]) -> list[tuple[str, int, str, tuple[str, ...]]]:
    """Return the rows that a schema is shown as: path, depth, kind, limits."""
    tables = parameter_tables(document)
    return [(row.path, row.depth, row.kind, row.limits) for row in tables[0].rows]


def test_unions_show_each_variant():
    town = {"type": "object", "properties": {"kind": {"const": "town"}, "name": TEXT}, "required": ["name"]}
    point = {"$ref": "#/$defs/point"}
    document = {
        "properties": {"place": {"oneOf": [town, point], "description": "Where."}},
        "$defs": {"point": {"type": "object", "properties": {"kind": {"const": "point"}, "x": {"minimum": 0}}}},
    }
    assert [(path, depth) for path, depth, *_ in rows_of(document)] == [
        ("place", 0),
        ("place as town", 1),
        ("place as town.kind", 2),
        ("place as town.name", 2),
        ("place as point", 1),
        ("place as point.kind", 2),
        ("place as point.x", 2),
    ]


def test_types_and_limits_in_words():
    cases = [
        ({"type": "array", "items": TEXT, "uniqueItems": True}, "list of string", "no duplicate entries"),
        ({"type": "array", "prefixItems": [TEXT, {"type": "integer"}]}, "list (string, integer)", ""),
        ({"anyOf": [{"minimum": 9}, {"type": "null"}], "default": 1}, "anything or null", "≥ 9|default 1"),
        ({"type": ["string", "null"], "maxLength": 5}, "string or null", "≤ 5 chars"),
        ({"enum": ["a", 1]}, "enum", '"a"|1'),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object", "other members: integer"),
        ({"allOf": [{"$ref": "#/$defs/short"}], "pattern": "^a"}, "string", "≤ 3 chars|pattern ^a"),
        ({"type": "string", "format": "date", "examples": ["x"]}, "string", "format date"),
        ({"anyOf": [TEXT, {"type": "null"}], "format": "date"}, "string or null", "format date"),
        ({"type": "array", "minItems": 1, "maxItems": 2, "multipleOf": 1}, "list", "multiple of 1|≥ 1 item|≤ 2 items"),
        ({"type": "integer", "minimum": 1990, "maximum": 10000}, "integer", "≥ 1990|≤ 10,000"),
        ({"type": "number", "maximum": 1e6, "minimum": -0.5}, "number", "≥ -0.5|≤ 1,000,000"),
        ({"type": "number", "maximum": 1e300, "minLength": 1200}, "number", "≥ 1,200 chars|≤ 1e+300"),
        (True, "anything", ""),
    ]

    def check(part, kind, limits):
        document = {"properties": {"a": part}, "$defs": {"short": {"type": "string", "maxLength": 3}}}
        assert rows_of(document)[0][2:] == (kind, tuple(limits.split("|")) if limits else ())

    assert faults(check, cases) == {}


def test_references_inside_query_types_are_followed(rosa, catalog):
    properties = {"inner": {"$ref": "#/oneOf/0/properties/parameters/$defs/Inner"}}
    inner = {"type": "object", "properties": {"deep": TEXT}}
    parameters = {"type": "object", "properties": properties, "$defs": {"Inner": inner}}
    branch = {"type": "object", "properties": {"query_type": {"const": "q"}, "parameters": parameters}}
    with_schema({"type": "object", "oneOf": [branch]})
    ToolVersion.objects.filter(tool__name="odd").update(query_types=["q"])
    pages = Pages(rosa)
    assert "deep string optional" in pages.open("/tools/odd/")


def test_three_hundred_parameters_and_a_deep_schema(rosa, db):
    deep: dict[str, Any] = TEXT
    for _ in range(14):
        deep = {"type": "object", "properties": {"next": deep}}
    many = {f"p{number}": TEXT for number in range(320)}
    with_schema({"type": "object", "properties": {"deep": deep} | many})
    pages = Pages(rosa)
    assert "p290" in pages.open("/tools/odd/")
    assert "data-cut" in pages.html


def test_a_huge_hostile_description_stays_text(rosa, db):
    make_tool("odd")
    ToolVersion.objects.update(description="<b onclick=x>\u202e" + "word " * 4000)
    pages = Pages(rosa)
    pages.open("/tools/odd/")
    assert "<b onclick" not in pages.html and "U+202E" in pages.html and 'class="lead verbatim tall"' in pages.html


def test_gram_is_text(rosa, catalog):
    pages = Pages(rosa)
    pages.open("/tools/write_file/?schema=gram")
    assert 'id="sp-gram" role="tabpanel" aria-labelledby="st-gram">' in pages.html
    text = pages.html.split('id="sc-gram" tabindex="0">')[1].split("</pre>")[0]
    assert "\\n" not in text and "write_file" in text


def test_examples_lead_to_the_form(rosa, db):
    tool = make_tool("odd")
    example = {"description": "<i>One</i>", "arguments": {"path": "a"}, "result": {"ok": True}}
    Tool.objects.filter(pk=tool.pk).update(examples=[example, example])
    pages = Pages(rosa)
    page = pages.open("/tools/odd/")
    assert 'href="/tools/odd/try/?example=1"' in pages.html and "<i>One" not in pages.html
    assert "Examples <i>One</i> Use this example" in page and '{ "path": "a" }' in page


def test_implementations_have_statistics(rosa, db):
    tool = make_tool("odd")
    Implementation.objects.create(tool=tool, reference="there:b", digest="d" * 64, weight=30, enabled=False)
    page = Pages(rosa).open("/tools/odd/")
    assert "tests:odd python 100 100% 0 -" in page
    assert "there:b python 30 Disabled 0" in page


def test_a_description_of_an_administrator_shows_the_authors(rosa, db):
    tool = make_tool("odd")
    Tool.objects.filter(pk=tool.pk).update(
        description_override="Write a note.", declared_description="Author's.", level_override="dangerous",
        declared_level="safe",
    )  # fmt: skip
    pages = Pages(rosa)
    assert "Author's." in pages.open("/tools/odd/")
    assert 'data-declared="safe"' in pages.html


def said(old: dict[str, Any], new: dict[str, Any], **fields: Any) -> list[str]:
    """Return the sentences about a change from one schema to another."""
    tool = with_schema({"type": "object", "properties": old})
    new_version(tool, input_schema={"type": "object", "properties": new}, **fields)
    change = pair_versions(list(tool.versions.order_by("-number")))[0]
    return [f"{each.kind} {each.subject}: {each.text}" for each in change.sentences]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"a": TEXT}, ["add a: added: string, optional"]),
        ({"a": TEXT}, {}, ["del a: removed"]),
        ({"a": TEXT}, {"a": {"type": "integer"}}, ["edit a: string → integer"]),
        ({"a": TEXT | {"maxLength": 5}}, {"a": TEXT | {"maxLength": 9}}, ["edit a: limits: ≤ 5 chars → ≤ 9 chars"]),
        ({"a": TEXT}, {"a": TEXT | {"format": "date"}}, ["edit a: now: format date"]),
        ({"a": TEXT | {"default": "x"}}, {"a": TEXT}, ['edit a: no longer: default "x"']),
        ({"a": TEXT}, {"a": TEXT | {"description": "New."}}, ["edit a: described as “New.”"]),
        ({"o": {"properties": {"x": TEXT}}}, {"o": {"properties": {}}}, ["edit o: ", "del o.x: removed"]),
        ({"a": TEXT}, {"a": TEXT | {"$comment": "x"}}, ["edit Schema: written differently; parameters and limits"]),
    ],
)
def test_parameter_changes(db, old, new, expected):
    found = said(old, new)
    wanted = [each for each in expected if not each.endswith(": ")]
    assert len(found) == len(wanted) and all(text.startswith(start) for text, start in zip(found, wanted, strict=True))


def test_contract_changes(db):
    found = said({}, {}, safety_level="safe", reversibility="irreversible", retry_safe=True, timeout=5)
    assert found == [
        "edit Safety level: Dangerous → Safe",
        "edit Reversibility: Restorable → Cannot be undone",
        "edit Automatic retries: none → after a failure",
        "edit Timeout: 30 s → 5 s",
    ]


def test_versions_are_compared_with_the_previous_one(rosa, db):
    tool = make_tool("odd")
    for number in range(2, 25):
        new_version(tool, description=f"Description {number}.")
    pages = Pages(rosa)
    page = pages.open("/tools/odd/versions/")
    assert "Version 24 current" in page and "Version 5 " in page and "Version 4 " not in page
    assert 'href="?before=5"' in pages.html
    pages.open("/tools/odd/versions/?before=5")
    assert 'id="v1"' in pages.html and 'href="?diff=1' not in pages.html
    pages.open("/tools/odd/versions/?diff=24")
    assert 'href="?diff=24' not in pages.html and 'href="?diff=23' in pages.html
    pages.open("/tools/odd/versions/?before=1")
    assert 'id="v' not in pages.html
    for odd in ("before=x", "before=-1", "diff=%00", "before=" + "9" * 99):
        pages.open(f"/tools/odd/versions/?{odd}")
    pages.open("/tools/nothing/versions/", 404)


def test_changed_description_is_compared_word_by_word(rosa, db):
    tool = make_tool("odd")
    new_version(tool, description="Write a <b>note</b> and send it.")
    pages = Pages(rosa)
    pages.open("/tools/odd/")
    assert 'data-newest="2"' in pages.html and "<ins>" in pages.html and "<b>note" not in pages.html


def test_older_version_can_be_current_again(rosa, db):
    """Changes of the newer version no longer apply."""
    tool = make_tool("odd")
    first = tool.versions.get()
    new_version(tool, safety_level="cautious")
    Tool.objects.filter(pk=tool.pk).update(current_version=first)
    pages = Pages(rosa)
    page = pages.open("/tools/odd/")
    assert 'data-newest="2"' in pages.html
    assert "Dangerous → Cautious" not in page
    page = pages.open("/tools/odd/versions/")
    assert "Version 1 current" in page and "Version 2 current" not in page


def standing(reader: User, name: str) -> list[str]:
    """Return what the page of a tool says against calling it."""
    pages = Pages(reader)
    pages.open(f"/tools/{name}/")
    return re.findall(r'data-standing="([a-z-]+)"', pages.html)


def test_a_tool_that_this_server_cannot_run_says_so(rosa, catalog):
    make_tool("odd")
    assert standing(rosa, "odd") == ["not-loaded"]
    assert standing(rosa, "write_file") == []
    Implementation.objects.filter(tool__name="write_file").update(digest="0" * 64)
    CatalogState.objects.update(revision=F("revision") + 1)
    snapshot.drop_snapshot()
    assert standing(rosa, "write_file") == ["drifted"]


def test_a_vanished_tool_is_disabled_and_offers_nothing_to_press(admin):
    tool = make_tool("odd")
    Tool.objects.filter(pk=tool.pk).update(registered=False)
    pages = Pages(admin)
    page = pages.open("/tools/odd/")
    assert "Disabled" in page and 'data-standing="unregistered"' in pages.html
    assert not [part for part in ('id="switch"', 'id="trying"', "#trying") if part in pages.html]
    body = Rest(admin).get("tools/odd/").json()
    assert (body["enabled"], body["registered"], Tool.objects.get(pk=tool.pk).enabled) == (False, False, True)
