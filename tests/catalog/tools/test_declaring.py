"""Declaration of tools: schemas, contracts, refusals."""

from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from catalog.dispatch.arguments import CallArguments
from catalog.dispatch.pipeline import preview_call
from catalog.errors import ParameterError, QueryTypeUnsupported, ToolDefinitionError
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import (
    Preview,
    SafetyLevel,
    ToolContext,
    ToolResult,
    ToolSpec,
    define_tool,
    get_tool,
    tool,
    tool_to_schema,
    validate_call,
)
from tests.corpus import faults


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


class Note(BaseModel):
    path: str
    day: date | None = None


@dataclass(frozen=True)
class Lookup:
    entity_id: str = field(metadata={"description": "ID to fetch"})


@dataclass(frozen=True)
class Found:
    entity_id: str


class Facts(BaseModel):
    ticker: str = Field(min_length=1)

    @field_validator("ticker")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "BAD":
            raise ValueError("not a company")
        if value == "CRASH":
            raise KeyError(value)
        return value


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def test_a_plain_function_becomes_a_registered_tool():
    @tool
    def add_up(a: int, b: Annotated[int, Field(description="second", ge=0)] = 2, mode: Literal["x"] = "x") -> int:
        """Add two numbers.

        More text that models do not read.
        """
        return a + b

    assert get_tool("add_up") is add_up
    assert (add_up.name, add_up.description, add_up.safety_level) == ("add_up", "Add two numbers.", "safe")
    assert add_up.input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "default": 2, "description": "second", "minimum": 0},
            "mode": {"type": "string", "const": "x", "default": "x"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert invoke(add_up, {"a": 1}).value == 3
    assert invoke("add_up", {"a": 1, "b": 5}).value == 6


def test_a_model_or_dataclass_named_params_is_built_from_the_arguments():
    @tool
    def write(params: Note, *, context: ToolContext) -> ToolResult[str]:
        """Write."""
        return ToolResult.ok(f"{params.day!r} {context.call_id}")

    @tool
    def look_up(params: Lookup) -> Found:
        """Look up."""
        return Found(params.entity_id)

    assert invoke(write, {"path": "a", "day": "2022-02-28"}).value == "datetime.date(2022, 2, 28) call_test"
    assert invoke(look_up, {"entity_id": "x"}).value == Found("x")
    assert look_up.input_schema["properties"]["entity_id"]["description"] == "ID to fetch"


def test_annotated_keywords_that_need_converting_are_converted():
    @tool
    def weekday(day: date, note: Note | None = None) -> str:
        """Say the weekday."""
        return f"{day:%A} {note.path if note else ''}"

    assert invoke(weekday, {"day": "2022-09-24", "note": {"path": "p"}}).value == "Saturday p"
    assert invoke(weekday, {"day": "2022-09-24"}).value == "Saturday "
    assert not invoke(weekday, {"day": "2022-02-31"}).success


def test_keywords_may_have_names_that_pydantic_uses_itself():
    @tool
    def odd(schema: str, json: int = 1, model_config: str = "m", _hidden: date | None = None) -> list[Any]:
        """Use odd names."""
        return [schema, json, model_config, _hidden and _hidden.year]

    assert invoke(odd, {"schema": "s", "json": 2}).value == ["s", 2, "m", None]
    assert invoke(odd, {"schema": "s", "_hidden": "2022-01-01"}).value == ["s", 1, "m", 2022]
    assert "'json'" in invoke(odd, {"schema": "s", "json": "2"}).message


def test_nothing_is_coerced_and_unknown_keys_are_refused_at_every_depth():
    @tool
    def grow(params: Tree) -> str:
        """Grow."""
        return params.name

    assert invoke(grow, {"name": "a", "children": [{"name": "b"}]}).success
    for arguments in ({"name": 5}, {"name": "a", "x": 1}, {"name": "a", "children": [{"name": "b", "x": 1}]}):
        assert not invoke(grow, arguments).success


def facts_tool(**options: Any):
    @tool(spec=ToolSpec(name="facts", input_schema={"f": Facts, "n": Note}, output_key="facts"), **options)
    def answer(params: Facts | Note, query_type: str) -> dict[str, Any]:
        """Answer."""
        return {"results": [type(params).__name__, query_type], "data": 1}

    return answer


def test_a_spec_joins_query_types_to_their_handler():
    facts = facts_tool()

    assert (facts.name, facts.description, facts.output_key) == ("facts", "Answer.", "facts")
    assert set(facts.query_types or {}) == {"f", "n"}
    assert invoke(facts, {"query_type": "f", "parameters": {"ticker": "A"}}).value == {
        "results": ["Facts", "f"],
        "data": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"query_type": "f", "parameters": {}}, "parameters.ticker"),
        ({"query_type": "f", "parameters": {"ticker": 1}}, "parameters.ticker"),
        ({"query_type": "f", "parameters": {"ticker": "BAD"}}, "parameters.ticker"),
        ({"query_type": "f"}, "parameters.ticker"),
        ({"query_type": "f", "parameters": {"ticker": "A", "x": 1}}, "parameters.x"),
        ({"query_type": "f", "parameters": {"ticker": "A"}, "y": 1}, "y"),
        ({"query_type": 5}, "query_type"),
        ({"parameters": {"ticker": "A"}}, "query_type"),
    ],
)
def test_wrong_arguments_of_a_query_type_name_their_path(arguments, field):
    with pytest.raises(ParameterError) as caught:
        facts_tool().check(arguments)

    assert caught.value.details["field"] == field


def test_a_query_type_the_tool_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(QueryTypeUnsupported) as caught:
        facts_tool().check({"query_type": "zzz", "parameters": {}})
    assert caught.value.details["supported_types"] == ["f", "n"]


@pytest.mark.parametrize("parameters", [{"parameters": {"text": "a"}}, {}])
def test_a_query_type_for_a_tool_without_any_is_the_one_thing_wrong(parameters):
    shout = define_tool("shout", "Shout.", [{"name": "text", "type": "string"}], required=["text"], handler=dict)
    with pytest.raises(ParameterError) as caught:
        shout.check({"query_type": "loud", **parameters})
    assert [each["path"] for each in caught.value.details["errors"]] == ["query_type"]


def test_the_schema_of_a_tool_with_query_types_accepts_what_the_tool_accepts():
    validator = facts_tool().validator

    assert validator.accepts({"query_type": "n", "parameters": {"path": "x"}})
    assert not validator.accepts({"query_type": "n", "parameters": {"ticker": "x"}})


def test_a_validator_of_the_author_that_crashes_is_a_parameter_error():
    with pytest.raises(ParameterError, match="KeyError"):
        facts_tool().check({"query_type": "f", "parameters": {"ticker": "CRASH"}})


def test_validate_call_judges_before_anything_runs():
    facts_tool()

    validate_call("facts", "f", {"ticker": "A", "unknown": 1})
    with pytest.raises(ValueError, match="nope"):
        validate_call("nope", "f", {})
    with pytest.raises(QueryTypeUnsupported):
        validate_call("facts", "zzz", {})
    with pytest.raises(ParameterError) as caught:
        validate_call("facts", "f", {})
    assert caught.value.details["field"] == "ticker"


def test_the_fingerprint_covers_the_contract_and_nothing_else():
    first = facts_tool()

    assert facts_tool(categories=["x"], secret=["ticker"]).fingerprint == first.fingerprint
    assert facts_tool(safety_level="dangerous").fingerprint != first.fingerprint
    assert facts_tool(timeout=5).fingerprint != first.fingerprint
    assert facts_tool(description="Other.").fingerprint != first.fingerprint
    assert first.contract()["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": False,
    }


def test_levels_are_ordered_and_decide_reversibility():
    assert SafetyLevel("moderate") is SafetyLevel.CAUTIOUS
    assert SafetyLevel.SAFE.rank < SafetyLevel.CAUTIOUS.rank < SafetyLevel.DANGEROUS.rank
    assert facts_tool(safety_level="dangerous").reversibility == "irreversible"
    assert facts_tool(safety_level="cautious").reversibility == "reversible"
    assert facts_tool(safety_level="dangerous", reversibility="restorable").reversibility == "restorable"


def test_the_digest_and_reference_name_the_code():
    facts = facts_tool()

    assert len(facts.digest) == 64
    assert facts.reference.endswith(":facts_tool.<locals>.answer")


def test_a_preview_takes_what_the_handler_takes():
    @tool(safety_level="dangerous")
    def write(path: str, text: str = "") -> None:
        """Write."""

    assert preview_call(write, CallArguments({"path": "a"}), make_context()) is None

    @write.preview
    async def _(path: str, text: str = "", *, context: ToolContext) -> Preview:
        return Preview(f"Write {path} for {context.call_id}", "text", after=text)

    assert preview_call(write, CallArguments({"path": "a"}), make_context()) == Preview(
        "Write a for call_test", "text", after=""
    )


def test_define_tool_takes_a_parameter_list():
    parameters: list[dict[str, Any]] = [
        {"name": "symbol", "type": "string", "description": "what"},
        {"name": "tags", "type": "array"},
        {"name": "mode", "type": "string", "enum": ["a", "b"]},
    ]
    defined = define_tool("describe_it", "Describe.", parameters, required=["symbol"], handler=lambda args: args)

    assert get_tool("describe_it") is None
    assert invoke(defined, {"symbol": "x", "tags": ["t"]}).value == {"symbol": "x", "tags": ["t"]}
    assert tool_to_schema(defined)["function"]["parameters"]["properties"]["tags"]["items"] == {"type": "string"}
    for arguments in ({}, {"symbol": "x", "mode": "c"}, {"symbol": "x", "tags": [1]}, {"symbol": "x", "y": 1}):
        assert not invoke(defined, arguments).success


def test_define_tool_refuses_what_breaks_its_invariants():
    cases = [
        ("describeSymbol", [], {}),
        ("read-file", [], {}),
        ("x" * 65, [], {}),
        ("ok", [], {"required": ["missing"]}),
        ("ok", [], {"safety_level": "harmless"}),
        ("ok", [], {"handler": "not callable"}),
        ("ok", [{"name": "a", "type": "date"}], {}),
        ("ok", [{"name": "a", "type": "string", "pattern": "x"}], {}),
        ("ok", [{"name": "a", "type": "string"}] * 2, {}),
        ("ok", [{"type": "string"}], {}),
    ]

    def check(name, parameters, options):
        with pytest.raises(ToolDefinitionError):
            define_tool(name, "Text.", parameters, **{"handler": lambda args: None, **options})

    assert faults(check, cases) == {}


def test_define_tool_leaves_required_out_when_nothing_is():
    defined = define_tool("nothing", "Do nothing.", [], handler=lambda args: None)

    assert defined.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def undocumented(a: int) -> int:
    return a


def documented(a: int) -> int:
    """Text."""
    return a


def untyped(a, b=1):
    """Text."""


def variadic(*names: str) -> None:
    """Text."""


def field_as_default(a: int = Field(default=1)) -> None:
    """Text."""


def unresolved(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Text."""


def wrong_params(params: int) -> None:
    """Text."""


def test_a_function_that_makes_no_tool_is_refused():
    cases = [
        (undocumented, {}),
        (documented, {"name": "Has Space"}),
        (documented, {"name": " padded"}),
        (documented, {"name": "camelCase"}),
        (documented, {"name": "planning_setup_plan"}),
        (documented, {"name": "approval_result"}),
        (documented, {"description": "x" * 201}),
        (documented, {"safety_level": "extreme"}),
        (documented, {"reversibility": "maybe"}),
        (untyped, {}),
        (variadic, {}),
        (unresolved, {}),
        (wrong_params, {}),
        (documented, {"query_types": {}}),
        (documented, {"timeout": 0}),
        (documented, {"timeout": float("inf")}),
        (documented, {"secret": ["b"]}),
        (field_as_default, {}),
    ]

    def check(handler, options):
        with pytest.raises(ToolDefinitionError):
            tool(**options)(handler)

    assert faults(check, cases) == {}


def test_a_preview_that_is_no_preview_is_not_shown():
    @tool
    def write(path: str) -> None:
        """Write."""

    @write.preview
    def _(path: str) -> str:
        return "text"

    preview = preview_call(write, CallArguments({"path": "a"}), make_context())
    assert preview == Preview("Run write; its preview failed with TypeError", kind="none")
