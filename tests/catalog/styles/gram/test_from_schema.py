"""Conversion of JSON Schema to gram: valid, as close as possible, omissions listed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.gram import ToolSpecification, signature_text, type_signature_to_json_schema
from catalog.models import Tool
from catalog.styles.gram.from_schema import ToolDescription, schema_to_signature, tool_to_gram
from tests import counts
from tests.corpus import faults
from tests.pages import words
from tests.rest import Rest

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "zip": {"type": "string", "default": "0"}},
    "required": ["city"],
}


def shown(schema: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the one parameter `a` of this schema as gram, and what was left out of it."""
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    signature, left_out = schema_to_signature(whole, {"type": "string"})
    return signature_text(signature), left_out


@pytest.mark.parametrize(
    ("schema", "node"),
    [
        ({"type": "string"}, '(::Text {paramName:"a"})'),
        ({"type": "integer"}, '(::Int {paramName:"a"})'),
        ({"type": "number"}, '(::Double {paramName:"a"})'),
        ({"type": "boolean"}, '(::Bool {paramName:"a"})'),
        ({"type": "object"}, '(::Object {paramName:"a"})'),
        ({"type": "array"}, '(::Array {paramName:"a"})'),
        ({"type": "array", "items": {"type": "integer"}}, '(::Array {paramName:"a", elementType:"Int"})'),
        ({"type": "string", "description": "why"}, '(::Text {paramName:"a", description:"why"})'),
    ],
)
def test_what_gram_can_say_is_said(schema, node):
    assert shown(schema) == (f"{node}==>(::Text)", [])


@pytest.mark.parametrize("reference", ["#/$defs/a%20b~1c", "#town"])
def test_references_mean_what_the_validator_takes_them_for(reference):
    town = {"$anchor": "town", "type": "integer"}
    whole = {"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"a b/c": town}, "required": ["a"]}
    signature, _ = schema_to_signature(whole, {"type": "string"})
    assert signature_text(signature) == '(::Int {paramName:"a"})==>(::Text)'


def test_a_record_is_spelled_out_with_its_defaults():
    text, left_out = shown(RECORD)

    assert 'fields:[{name:"city", type:"Text"}, {name:"zip", type:"Text", default:"0"}]' in text
    assert left_out == []


def test_schema_part_without_gram_is_left_out_and_named():
    cases = [
        ({"type": "string", "pattern": "^a"}, "Text", "pattern (a)"),
        ({"type": "integer", "minimum": 1}, "Int", "minimum (a)"),
        ({"type": ["string", "null"]}, "Text", "null (a)"),
        ({"type": ["integer", "string"]}, "Int", "the choice of types (a)"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "Int", "null (a)"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "Int", "anyOf (a)"),
        ({"enum": ["x", "y"]}, "Text", "enum (a)"),
        ({"const": True}, "Bool", "const (a)"),
        ({}, "Object", "any type (a)"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "Object", "additionalProperties (a)"),
        ({"$ref": "#"}, "Object", "what lies deeper (a.a.a.a.a.a.a)"),
    ]

    def check(schema, label, note):
        text, left_out = shown(schema)

        assert text.startswith(f"(::{label} ")
        assert note in left_out

    assert faults(check, cases) == {}


def test_records_of_a_union_become_one_whose_common_needs_stay():
    other = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "x": {"type": "integer"}},
        "required": ["city"],
    }
    text, left_out = shown({"oneOf": [RECORD, other]})

    assert '{name:"city", type:"Text"}' in text
    assert '{name:"x", type:"Int", optional:true}' in text
    assert left_out == ["oneOf (a)"]


def test_a_tool_without_words_or_output_is_still_a_legal_specification():
    text = tool_to_gram(ToolDescription("a", "", {"type": "object"}))

    assert text.startswith("// Left out, for gram has no form for it: the return type")
    assert ToolSpecification.from_gram(text) == ToolSpecification("a", "a", "()==>(::Text)")


def test_a_long_signature_has_a_line_for_each_parameter():
    members = {name: {"type": "string", "description": "d" * 40} for name in ("a", "b")}
    text = tool_to_gram(ToolDescription("a", "d", {"type": "object", "properties": members}, {"type": "string"}))

    assert [line.partition("::")[0] for line in text.splitlines()[3:6]] == ["  (", "  ==>(", "  ==>("]
    assert ToolSpecification.from_gram(text).schema["properties"] == members


def test_a_name_cannot_end_the_comment_that_names_it():
    hostile = 'x\n[evil:ToolSpecification {description:"e"} | ()==>(::Text)] //'
    text = tool_to_gram(
        ToolDescription("a", "d", {"type": "object", "properties": {hostile: {"type": "string", "pattern": "."}}})
    )

    assert ToolSpecification.from_gram(text).name == "a"


@pytest.mark.parametrize("count", [600, 3000] if counts.FULL else [600])
def test_a_tool_with_more_than_fits_is_cut_to_something_legal(count):
    members = {f"parameter_{n}": {"type": "string", "description": "d" * 100} for n in range(count)}
    text = tool_to_gram(ToolDescription("a", "d" * 100_000, {"type": "object", "properties": members}, members))
    signature = ToolSpecification.from_gram(text).signature

    assert text.count("\n// Left out") <= 20
    assert len(signature.parameters) > 300


def test_references_that_multiply_are_cut_short():
    doubled = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(30)}
    text = tool_to_gram(
        ToolDescription("a", "d", {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": doubled})
    )

    assert "what lies deeper (x)" in text


KINDS = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null", "odd"])
NAMES = st.text(max_size=5)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"type": KINDS | st.lists(KINDS, max_size=3), "default": NAMES | st.integers(), "pattern": NAMES}
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS,
            "description": NAMES,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3),
            "$ref": st.sampled_from(["#", "#/properties/a", "#/nowhere", "other"]),
        },
    ),
    max_leaves=8,
)


@given(schema=SCHEMAS, output=SCHEMAS)
def test_whatever_the_schema_the_export_can_be_read_back(schema, output):
    read = ToolSpecification.from_gram(tool_to_gram(ToolDescription("a", "d", schema, output)))

    assert type_signature_to_json_schema(read.type_signature) == read.schema


@pytest.fixture
def rest(catalog, ada):
    return Rest(ada)


def test_one_tool_and_all_tools_are_offered_as_text(rest):
    one = rest.get("tools/read_file/schema/", provider="gram")
    every = rest.get("tool-schemas/", provider="gram")

    assert one["Content-Type"] == every["Content-Type"] == "text/plain; charset=utf-8"
    assert ToolSpecification.from_gram(one.content.decode()).name == "read_file"
    assert one.content.decode() in every.content.decode()


def test_without_tools_the_text_is_empty(rest):
    Tool.objects.update(enabled=False)

    assert rest.get("tool-schemas/", provider="gram").content == b""


def test_the_page_of_a_tool_has_a_tab_with_its_gram(client, catalog, vera):
    client.force_login(vera)
    page = words(client.get("/tools/read_file/?schema=gram").content.decode())

    assert "[read_file:ToolSpecification {" in page
    assert " gram " in page
