"""Forms from JSON Schema: lossless conversion for any schema and value."""

from typing import Any

import pytest
from django.http import QueryDict

from catalog.errors import ParameterError
from catalog.schemas import compile_schema
from catalog.ui.forms.form import (
    MAX_FORM_FIELDS,
    MAX_RENDERED_FIELDS,
    FormNode,
    build_form,
    form_to_value,
    show_problems,
    value_to_form,
)
from catalog.ui.forms.submission import FormFields, is_field_path
from tests.corpus import faults

TEXT, WHOLE, ANY_OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "object"}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "word": TEXT}}
POINT = {"type": "object", "properties": {"kind": {"const": "point"}, "x": {"type": "number"}}, "required": ["kind"]}
TOWN = {"type": "object", "properties": {"kind": {"const": "town"}, "name": TEXT}, "required": ["kind"]}


def schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these members, none required."""
    return {"type": "object", "properties": properties, "$defs": {"node": NODE}}


def spelled(document: dict[str, Any], **fields: str) -> Any:
    """Return what a form spells that was sent with these fields; `__` stands for a colon."""
    form = build_form(document, FormFields({name.replace("__", ":"): text for name, text in fields.items()}))
    value, problems = form_to_value(form)
    return value if not problems else [(each.path, each.code) for each in problems]


def field_at(form: FormNode, path: str) -> FormNode:
    """Return the field whose problems are those at a path."""
    return next(each for each in form.every() if each.path == path)


def test_an_empty_text_is_offered_where_it_fits():
    """An invalid empty text entered as JSON is kept."""
    short = schema(a=TEXT | {"minLength": 1}, b=TEXT)
    blank, given = build_form(short, FormFields({})), build_form(short, value_to_form(short, {"a": ""}))
    assert [field_at(form, path).may_be_empty for form in (blank, given) for path in "ab"] == [False, True, True, True]


def test_form_round_trip_is_lossless():
    cases = [
        (TEXT, ["x", "", "a\nb", "a\r\nb", "\n first", "\x00", "ü\u202e", 5, None, ["x"]]),
        (WHOLE, [0, -3, 1.5, "3", "abc", True, 2**53 - 1, None]),
        ({"type": "number"}, [0.1, 1e300, 3, "1e999", ""]),
        ({"type": "boolean"}, [True, False, 1, "true", None]),
        ({"type": "null"}, [None, 0]),
        ({"enum": ["a", 1, None, True, [2]]}, ["a", 1, None, True, [2], 1.5, "1"]),
        ({"const": {"a": 1}}, [{"a": 1}, {"a": 2}]),
        ({"anyOf": [TEXT, {"type": "null"}], "default": None}, [None, "", "x", 3]),
        ({"anyOf": [WHOLE, TEXT, {"type": "null"}]}, [None, 3, "3", "", [3]]),
        ({"type": ["string", "integer"]}, ["x", 3, None]),
        ({"type": "array", "items": WHOLE}, [[], [1, 2], ["x"], [None], 3]),
        ({"type": "array"}, [[], [1, "x", None, {"a": []}]]),
        ({"type": "array", "prefixItems": [WHOLE, TEXT]}, [[], [1], [1, ""], [1, "x", {"y": 2}]]),
        ({"type": "array", "prefixItems": [WHOLE], "items": False}, [[1], [1, 2]]),
        ({"type": "object", "additionalProperties": WHOLE}, [{}, {"k": 1, "a.b": 2, "0": 3, "+0": 4}, {"": 1}]),
        (ANY_OBJECT, [{"x": {"y": [None]}}, [], "x"]),
        ({"oneOf": [POINT, TOWN]}, [{"kind": "town", "name": ""}, {"kind": "point"}, {"kind": "sea"}, 1]),
        ({"type": "array", "items": {"oneOf": [POINT, TOWN]}}, [[{"kind": "point", "x": 1}, {"kind": "town"}]]),
        ({"allOf": [POINT, {"properties": {"z": TEXT}}]}, [{"kind": "point", "z": "up"}]),
        ({"$ref": "#/$defs/node"}, [{}, {"next": {"next": {"word": "x"}}}]),
        ({"properties": {"a.b": {"properties": {"%": TEXT}}}}, [{"a.b": {"%": "x", "more": 1}}]),
        ({}, [None, {"a": [1]}, "text"]),
        (True, [3]),
        ({"$ref": "#/nowhere"}, [3]),
        ({"type": "tuple"}, [[3]]),
    ]

    def check(part, values):
        document = schema(member=part)
        for value in values:
            for given in ({"member": value}, {"member": value, "unheard of": value}):
                assert spelled_again(document, given) == given

    assert faults(check, cases) == {}


def spelled_again(document: dict[str, Any], value: dict[str, Any]) -> Any:
    """Return what the form of a value spells."""
    again, problems = form_to_value(build_form(document, value_to_form(document, value)))
    assert problems == []
    return again


def test_deep_or_large_values_become_json():
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"next": deep}
    many = {"many": [[n] for n in range(150)] * 2, "lists": [[0] * 60] * 20}
    document = schema(deep={"$ref": "#/$defs/node"}, many={"type": "array"}, lists={"items": {"items": WHOLE}})
    for value in ({"deep": deep}, many):
        form = build_form(document, value_to_form(document, value))
        assert form_to_value(form) == (value, [])
        assert sum(1 for _ in form.every()) <= MAX_RENDERED_FIELDS
        assert any(each.kind == "json" and each.text for each in form.every())


def requiring_itself(width: int) -> dict[str, Any]:
    """Return a schema of endless depth, all of it required."""
    node = {"type": "object", "properties": {f"m{n}": {"$ref": "#/$defs/node"} for n in range(width)}}
    node["required"] = list(node["properties"])
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


def test_a_schema_that_requires_itself_ends():
    """Deep recursion becomes JSON fields; a wide one cannot be a form."""
    form = build_form(requiring_itself(20), FormFields())
    assert MAX_FORM_FIELDS <= sum(1 for _ in form.every()) <= MAX_RENDERED_FIELDS
    with pytest.raises(ParameterError):
        build_form(requiring_itself(100), FormFields())


class CountedFields(FormFields):
    """Fields that count for how many places they were asked."""

    asked = 0

    def text(self, word: str, name: str) -> str | None:
        """Return one field."""
        self.asked += word == "json"
        return super().text(word, name)


@pytest.mark.parametrize(
    "sizes",
    [
        {f"size:a.{n}.{m}": "200" for n in range(30) for m in range(30)}
        | {f"size:a.{n}": "30" for n in range(30)}
        | {"size:a": "30"},
        {f"size:named.+{n}": "200" for n in range(200)} | {"size:named": "200"},
        {f"size:named.+{n}": "200" for n in range(4)} | {"size:named": "4"},
    ],
)
def test_rows_are_counted_before_they_are_made(sizes):
    """Fields that request very many rows cost no more than the largest form."""
    rows = {"type": "array", "items": TEXT}
    nested = {"type": "array", "items": {"type": "array", "items": rows}}
    fields = CountedFields(sizes)
    with pytest.raises(ParameterError):
        build_form(schema(a=nested, named={"type": "object", "additionalProperties": rows}), fields)
    assert fields.asked <= MAX_RENDERED_FIELDS + 1


@pytest.mark.parametrize("reference", ["#/$defs/a%20b~1c", "#town"])
def test_references_mean_what_the_validator_takes_them_for(reference):
    for kind, shown in (("integer", "number"), ("boolean", "choice"), ("integer", "number")):
        town = {"$anchor": "town", "type": kind}
        document = {"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"a b/c": town}}
        assert compile_schema(document).problems({"a": "x"})
        assert field_at(build_form(document, FormFields()), "a").kind == shown


def test_left_out_is_not_empty():
    """A blank field is omitted; empty texts and lists are selected explicitly."""
    document = schema(a=TEXT, b=TEXT, n=WHOLE, items={"type": "array", "items": TEXT}, o={"properties": {"x": TEXT}})
    assert spelled(document, value__a="", value__b="", value__n=" ") == {}
    assert spelled(document, given__a="1", value__n="7", given__items="1", given__o="1") == {
        "a": "",
        "n": 7,
        "items": [],
        "o": {},
    }
    assert spelled(document, size__items="2", **{"value__items.0": "", "value__o.x": "y"}) == {
        "items": ["", ""],
        "o": {"x": "y"},
    }


def test_null_is_asked_for():
    document = schema(a={"anyOf": [TEXT, {"type": "null"}]})
    assert spelled(document, value__a="x", null__a="1") == {"a": None}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"json__any": "{"}, [("any", "json")]),
        ({"json__any": '{"a": 1, "a": 2}'}, [("any", "json")]),
        ({"value__n": "1e999"}, [("n", "json")]),
        ({"size__ns": "1", "value__ns.0": ""}, [("ns.0", "required")]),
        ({"size__": "2", "key__+0": "k", "json__+0": "1", "key__+1": "k", "json__+1": "2"}, [("k", "duplicate_key")]),
        ({"size__": "1", "key__+0": "", "json__+0": "1"}, [("", "required")]),
        ({"size__": "1", "key__+0": "n", "json__+0": "1"}, [("n", "duplicate_key")]),
    ],
)
def test_invalid_field_is_a_problem(fields, expected):
    document = schema(any={}, n=WHOLE, ns={"type": "array", "items": WHOLE})
    found = spelled(document, **({"value__n": "1"} | fields if "duplicate_key" in str(expected) else fields))
    assert [(path.strip("."), code) for path, code in found] == expected


def test_a_discriminator_needs_no_choosing():
    assert spelled_again(schema(place=POINT), {"place": {}}) == {"place": {"kind": "point"}}
    document = schema(place={"oneOf": [POINT, TOWN]})
    assert spelled(document, pick__place="1", **{"value__place.name": "Bonn"}) == {
        "place": {"kind": "town", "name": "Bonn"}
    }
    assert [option.label for option in field_at(build_form(document, FormFields()), "place").options] == [
        "point",
        "town",
    ]


def test_another_variant_starts_empty():
    fields = FormFields({"pick:u": "1", "was:u": "0", "size:u": "3", "value:u.0": "x", "value:v": "kept"})
    now, before = fields.settled(), fields.with_previous_variants()
    assert (now.text("pick", "u"), now.text("size", "u"), now.text("value", "v")) == ("1", None, "kept")
    assert (before.text("pick", "u"), before.text("size", "u"), before.text("value", "v")) == ("0", "3", "kept")


def test_rows_are_added_and_removed():
    document = schema(rows={"type": "array", "items": {"type": "array", "items": TEXT}})
    fields = value_to_form(document, {"rows": [["a"], ["b", "c"], ["d"]]})
    fields.remove_row("rows.0")
    fields.add_row("rows.0")
    fields.remove_row("rows.1.0")
    fields.remove_row("rows.7")
    fields.put("given", "rows.1", "1")
    assert form_to_value(build_form(document, fields)) == ({"rows": [["b", "c", ""], []]}, [])


def test_named_rows_are_removed_by_their_place():
    document = {"type": "object", "additionalProperties": WHOLE}
    fields = value_to_form(document, {"a": 1, "b": 2, "c": 3})
    fields.remove_row("+1")
    assert form_to_value(build_form(document, fields))[0] == {"a": 1, "c": 3}


@pytest.mark.parametrize(
    ("document", "is_offered"),
    [
        (schema(a=TEXT), False),
        (schema(), False),
        (schema(a=TEXT) | {"additionalProperties": TEXT}, True),
        (schema(a=TEXT) | {"patternProperties": {"^x-": TEXT}}, True),
        (ANY_OBJECT, True),
        (ANY_OBJECT | {"additionalProperties": False}, False),
    ],
)
def test_a_member_is_offered_only_where_a_call_takes_one(document, is_offered):
    """A call refuses undeclared members of an object that declares members, unless its schema allows them."""
    assert build_form(document, FormFields({})).takes_more is is_offered


@pytest.mark.parametrize(
    "query",
    ["value:a=1&value:a=2", "other:a=1", "value:a..b=1", "value:a%20b=1", "value:" + "a." * 40 + "a=1", ":a=1"],
)
def test_odd_names_are_refused(query):
    with pytest.raises(ParameterError):
        FormFields.read(QueryDict(query))


@pytest.mark.parametrize("size", ["-1", "x", "201", "9" * 50, "\uff11"])
def test_odd_sizes_are_refused(size):
    with pytest.raises(ParameterError, match="200 rows"):
        build_form(schema(a={"type": "array"}), FormFields({"size:a": size}))


def test_form_list_is_limited():
    with pytest.raises(ParameterError, match="JSON"):
        FormFields({"size:a": "200"}).add_row("a")


@pytest.mark.parametrize(
    ("text", "is_one"), [("", True), ("a.0.+1", True), ("a%2Eb", True), (".", False), ("a b", False)]
)
def test_paths(text, is_one):
    assert is_field_path(text) is is_one


def test_problems_are_assigned_to_their_fields():
    document = schema(a={"type": "array", "items": schema(b=TEXT)}, any={})
    form = build_form(document, value_to_form(document, {"a": [{"b": "x"}], "any": {"c": 1}}))
    loose = show_problems(
        form,
        [
            {"path": "a.0.b", "message": "B."},
            {"path": "any.c.d", "message": "D."},
            {"path": "", "message": "All."},
            {"path": "zzz", "message": "Z."},
        ],
    )
    assert field_at(form, "a.0.b").problems == ["B."]
    assert field_at(form, "any").problems == ["c.d: D."]
    assert loose == ["All.", "zzz: Z."]


def test_the_variant_that_its_constant_tells_is_explained():
    point = {"type": "object", "properties": {"kind": {"const": "point"}, "x": {"type": "number"}}}
    town = {"type": "object", "properties": {"kind": {"const": "town"}, "name": {"type": "string", "minLength": 2}}}
    found = compile_schema({"oneOf": [point, town]}).problems({"kind": "town", "name": "B"})
    assert [(each.path, each.code) for each in found] == [("name", "minLength")]
