"""Exports follow the providers' published rules for every shipped tool and any accepted schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.definitions.binding import Binding
from catalog.definitions.rules import CATALOG_NAME
from catalog.dispatch.arguments import prepare_arguments
from catalog.errors import ParameterError
from catalog.exports.providers import MAX_NOTES, ExportWarning, export_tool, warnings_header
from catalog.models import Tool as Row
from catalog.models import ToolVersion
from catalog.schemas import compile_schema
from catalog.tools import Tool, registry
from tests.catalog.schema_strategies import documents, parameters

PROVIDERS = Path(__file__).parent / "providers"
RULES = {
    name: jsonschema.Draft202012Validator(json.loads((PROVIDERS / f"{name}.json").read_text()))
    for name in ("openai", "openai_strict", "anthropic", "mcp_2025-06-18", "mcp_2025-11-25")
}


def version_of(schema: dict[str, Any], **fields: Any) -> ToolVersion:
    """Return a version that takes these arguments, stored nowhere."""
    facts = {"description": "Try it.", "safety_level": "safe", "reversibility": "reversible", "retry_safe": True}
    return ToolVersion(tool=Row(name=fields.pop("name", "tried")), input_schema=schema, number=1, **facts | fields)


def judge(version: ToolVersion) -> None:
    """Check every provider's export of a tool against the provider's rules."""
    for strictly in (False, True):
        (tool,), notes = export_tool("openai", [version], strictly=strictly)
        is_strict = strictly and tool["function"]["strict"]
        RULES["openai_strict" if is_strict else "openai"].validate(tool)
        assert is_strict or not strictly or "not_strict" in [note.code for note in notes]
        jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])
        compile_schema(tool["function"]["parameters"])
    for tool in export_tool("anthropic", [version])[0]:
        RULES["anthropic"].validate(tool)
    for tool in export_tool("mcp", [version])[0]:
        RULES["mcp_2025-06-18"].validate(tool)
        RULES["mcp_2025-11-25"].validate(tool)


def strictly(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the strict form of an argument schema."""
    (tool,), notes = export_tool("openai", [version_of(schema)], strictly=True)
    assert tool["function"]["strict"], notes
    form: dict[str, Any] = tool["function"]["parameters"]
    return form


def why_not_strict(schema: dict[str, Any]) -> str:
    """Return why there is no strict form."""
    (tool,), notes = export_tool("openai", [version_of(schema)], strictly=True)
    assert tool["function"]["strict"] is False
    return next(note.message for note in notes if note.code == "not_strict")


def closed(**members: Any) -> dict[str, Any]:
    """Return the schema of an object with these optional members."""
    return {"type": "object", "properties": members, "additionalProperties": False}


@pytest.fixture(scope="module", autouse=True)
def _shipped() -> None:
    registry.initialize_tools()


def test_every_shipped_tool_is_what_each_provider_takes():
    for tool in registry.get_all_tools().values():
        judge(
            version_of(
                tool.input_schema,
                name=tool.name,
                description=tool.description,
                output_schema=tool.output_schema,
                safety_level=str(tool.safety_level),
                reversibility=str(tool.reversibility),
            )
        )


@given(parameters)
def test_any_tool_is_what_each_provider_takes(schema):
    judge(version_of(schema))


@given(parameters, st.lists(documents, min_size=1, max_size=4))
def test_what_fits_a_tool_fits_its_form_with_one_object_at_the_top(schema, values):
    (tool,), _ = export_tool("openai", [version_of(schema)])
    form, whole = compile_schema(tool["function"]["parameters"]), compile_schema({"type": "object", **schema})

    assert all(form.accepts(value) for value in values if whole.accepts(value))


OF_EVERY_KIND = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 9, "description": "Where."},
        "kind": {"enum": ["a", "b"], "default": "a"},
        "fixed": {"const": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
        "place": {"$ref": "#/$defs/place"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "when": {"type": "string", "format": "date"},
        "site": {"type": "string", "format": "uri"},
    },
    "required": ["path"],
    "$defs": {"place": closed(x={"type": "number"})},
}


def test_the_strict_form_requires_everything_and_lets_what_is_optional_be_null():
    form = strictly(OF_EVERY_KIND)

    assert form["required"] == [*form["properties"]]
    assert form["properties"] == {
        "path": {"type": "string", "description": "Where."},
        "kind": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "fixed": {"type": ["integer", "null"], "enum": [1, None]},
        "tags": {"type": ["array", "null"], "maxItems": 3, "items": {"type": "string"}},
        "place": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "when": {"type": ["string", "null"], "format": "date"},
        "site": {"type": ["string", "null"]},
    }
    assert form["$defs"]["place"]["required"] == ["x"]


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ({}, "'m' has no type"),
        ({"type": "object"}, "'m' accepts undeclared members"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "'m' accepts undeclared members"),
        ({"type": "array"}, "'m' is a list"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "'m' is a list"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "'m' has allOf"),
        ({"enum": [[1]]}, "'m' has no type"),
        ({"enum": [f"{n}" for n in range(1000)]}, "1,001 choices"),
        ({"enum": ["x" * 60 + str(n) for n in range(260)]}, "more than 250 choices"),
    ],
)
def test_inexpressible_schema_names_the_reason(member, why):
    assert why in why_not_strict(closed(m=member))


def test_strict_mode_nests_ten_levels_and_no_more():
    def levels(count: int) -> dict[str, Any]:
        inner: dict[str, Any] = {"type": "string"}
        for _ in range(count):
            inner = closed(a=inner)
        return inner

    assert strictly(levels(10))
    assert "11 levels" in why_not_strict(levels(11))


def test_a_tree_stays_a_tree_in_strict_mode():
    form = strictly(closed(child={"$ref": "#"}, name={"type": "string"}))

    assert form["properties"]["child"]["anyOf"][0]["$ref"].startswith("#/$defs/")
    assert next(iter(form["$defs"].values()))["required"] == ["child", "name"]


@pytest.mark.parametrize(
    ("level", "reversibility", "hints"),
    [
        ("safe", "reversible", (True, False, True)),
        ("cautious", "reversible", (False, False, True)),
        ("cautious", "irreversible", (False, True, True)),
        ("dangerous", "restorable", (False, True, False)),
        ("dangerous", "irreversible", (False, True, True)),
    ],
)
def test_the_hints_of_mcp_follow_from_level_and_reversibility(level, reversibility, hints):
    (tool,), _ = export_tool("mcp", [version_of(closed(), safety_level=level, reversibility=reversibility)])
    found = tool["annotations"]

    assert (found["readOnlyHint"], found["destructiveHint"], found["openWorldHint"]) == hints


@pytest.mark.parametrize(("output", "listed"), [({"type": "object"}, True), ({"type": "array"}, False), (None, False)])
def test_mcp_lists_the_schema_of_results_that_are_objects(output, listed):
    (tool,), _ = export_tool("mcp", [version_of(closed(), output_schema=output)])

    assert ("outputSchema" in tool) is listed


def test_names_that_anthropic_does_not_take_are_left_out_with_a_note():
    odd = closed(**{"filter[x]": {"type": "string"}, "fine": {"type": "string"}})
    (tool,), (note,) = export_tool("anthropic", [version_of(odd)])
    none, (why,) = export_tool("anthropic", [version_of(odd | {"required": ["filter[x]"]})])

    assert [*tool["input_schema"]["properties"]] == ["fine"]
    assert (note.code, none, why.code) == ("arguments_left_out", [], "left_out")


def test_a_long_description_is_cut_for_openai_only():
    long = version_of(closed(), description="x" * 2000)

    assert len(export_tool("openai", [long])[0][0]["function"]["description"]) == 1024
    assert len(export_tool("anthropic", [long])[0][0]["description"]) == 2000


@given(st.from_regex(CATALOG_NAME, fullmatch=True))
def test_providers_accept_every_tool_name(name):
    """So that no export truncates or changes a name."""
    judge(version_of(closed(), name=name))
    assert export_tool("openai", [version_of(closed(), name=name)])[0][0]["function"]["name"] == name


def test_more_tools_than_openai_takes_are_remarked_on():
    _, notes = export_tool("openai", [version_of(closed(), name=f"t{n}") for n in range(129)])

    assert [note.code for note in notes] == ["too_many"]


def test_notes_are_one_short_line_of_ascii_however_many_there_are():
    text = warnings_header([ExportWarning(f"tööl{n}", "left_out", "x" * 100) for n in range(500)])

    assert text.isascii()
    assert len(text) < MAX_NOTES + 100
    assert json.loads(text)[-1]["count"] > 400


OPTIONAL = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "shape": {"anyOf": [{"$ref": "#/$defs/row"}, {"type": "string"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"row": closed(a={"type": "string"}, b={"enum": ["x", "y"]})},
}


def tried(schema: dict[str, Any]) -> Tool[Any, Any]:
    """Return a tool with these arguments."""
    return Tool(name="tried", description="Try it.", handler=lambda arguments: arguments, bound=Binding(schema))


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"path": "a", "limit": None}, {"path": "a"}),
        ({"path": "a", "note": None}, {"path": "a", "note": None}),
        ({"path": "a", "limit": None, "note": None}, {"path": "a", "note": None}),
        (
            {"path": "a", "rows": [{"a": "1", "b": None}, {"a": None, "b": "x"}]},
            {"path": "a", "rows": [{"a": "1"}, {"b": "x"}]},
        ),
        ({"path": "a", "shape": {"a": None, "b": "y"}}, {"path": "a", "shape": {"b": "y"}}),
        ({"path": "a", "shape": None, "rows": None}, {"path": "a"}),
    ],
)
def test_a_null_for_what_may_be_left_out_but_not_be_null_is_dropped(sent, meant):
    assert prepare_arguments(tried(OPTIONAL), sent).passed == meant


@pytest.mark.parametrize("sent", [{"path": None}, {"path": "a", "unknown": None}, {"path": "a", "rows": [None]}])
def test_any_other_null_is_judged_as_it_is(sent):
    with pytest.raises(ParameterError):
        prepare_arguments(tried(OPTIONAL), sent)


def test_members_of_other_forms_come_back_as_null_and_are_dropped():
    first = closed(kind={"const": "a"}, size={"type": "integer"}) | {"required": ["kind", "size"]}
    other = closed(kind={"const": "b"}, name={"type": "string"}) | {"required": ["kind", "name"]}
    schema = {"type": "object", "oneOf": [first, other]}

    assert strictly(schema)["required"] == ["kind", "size", "name"]
    assert prepare_arguments(tried(schema), {"kind": "b", "name": "x", "size": None}).passed == {
        "kind": "b",
        "name": "x",
    }


@given(parameters, documents)
def test_dropping_touches_nothing_that_fits(schema, value):
    if isinstance(value, dict) and compile_schema({"type": "object", **schema}).accepts(value):
        assert prepare_arguments(tried({"type": "object", **schema}), value).given == value


def test_a_reference_to_a_boolean_schema_is_exported():
    schema = closed(any={"$ref": "#/$defs/yes"}, none={"$ref": "#/$defs/no"}) | {"$defs": {"yes": True, "no": False}}

    judge(version_of(schema))
    assert why_not_strict(schema)
