"""Contract A, plan-step ↔ tool: its statements about tools. Those about plans are tested in tests/plans."""

from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.pipeline import run_call, standard_response
from catalog.errors import (
    DataNotFound,
    ParameterError,
    QueryTypeUnsupported,
    StorageUnavailable,
    ToolError,
    ToolgateError,
    ToolValidationError,
)
from catalog.results import format_error_response, format_success_response
from catalog.testing import clean_registry, make_context
from catalog.tools import BaseTool, Tool, ToolSpec, define_tool, register_tool, tool, validate_call


class Period(BaseModel):
    start: str
    end: str

    @model_validator(mode="after")
    def in_order(self) -> "Period":
        if self.start > self.end:
            raise ValueError("start must not be after end")
        return self


class FactsParams(BaseModel):
    ticker: str
    metrics: list[str] = Field(min_length=1)
    period: Period | None = None
    low: int = 0
    high: int = 10

    @field_validator("ticker")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "BAD":
            raise ValueError("not a company")
        return value

    @model_validator(mode="after")
    def in_order(self) -> "FactsParams":
        if self.low > self.high:
            raise ValueError("high must not be below low")
        return self


class NoteParams(BaseModel):
    text: str


SPEC = ToolSpec(name="facts", input_schema={"facts": FactsParams, "note": NoteParams}, output_key="facts_data")
RIGHT = {"ticker": "AAPL", "metrics": ["Revenue"]}


@pytest.fixture(autouse=True)
def facts():
    with clean_registry():

        @tool(spec=SPEC)
        def answer(params: FactsParams | NoteParams) -> dict[str, Any]:
            return {"results": [1], "data": {"Revenue": 1}}

        yield answer


def refusal(params: Any, query_type: str = "facts") -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        validate_call("facts", query_type, params)
    return caught.value


def test_a_tool_spec_has_a_name_input_models_by_query_type_an_output_key_and_a_description():
    assert SPEC.model_dump(exclude={"input_schema"}) == {
        "name": "facts",
        "output_key": "facts_data",
        "description": "",
    }
    assert SPEC.input_schema["facts"] is FactsParams


def test_a_right_call_validates_to_none():
    assert validate_call("facts", "facts", RIGHT) is None  # type: ignore[func-returns-value]


def test_the_tool_is_looked_up_before_anything_else():
    with pytest.raises(ValueError, match="Tool 'nope' not found in registry"):
        validate_call("nope", "nope", {})


def test_the_query_type_is_judged_before_the_parameters():
    with pytest.raises(QueryTypeUnsupported) as caught:
        validate_call("facts", "zzz", {"ticker": 5})
    assert str(caught.value) == (
        "Query type 'zzz' is not supported by the facts tool. Supported types are: facts, note"
    )
    assert caught.value.details == {
        "query_type": "zzz",
        "tool_name": "facts",
        "supported_types": ["facts", "note"],
    }


@pytest.mark.parametrize("query_type", [None, 5, ["facts"], {}])
def test_a_query_type_that_is_no_text_is_unsupported(query_type):
    with pytest.raises(QueryTypeUnsupported):
        validate_call("facts", query_type, RIGHT)


def test_a_tool_without_query_types_supports_none():
    register_tool(define_tool("plain", "Plain.", [], handler=lambda arguments: None))
    with pytest.raises(QueryTypeUnsupported, match=r"^Query type 'x' is not supported by the plain tool\.$"):
        validate_call("plain", "x", {})


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"metrics": ["x"]}, "ticker"),
        (RIGHT | {"ticker": "BAD"}, "ticker"),
        (RIGHT | {"metrics": []}, "metrics"),
        (RIGHT | {"metrics": ["x", 5]}, "metrics.1"),
        (RIGHT | {"period": {"start": "a"}}, "period.end"),
        (RIGHT | {"period": {"start": "b", "end": "a"}}, "period"),
        (RIGHT | {"low": 5, "high": 1}, "low"),
    ],
)
def test_a_parameter_error_names_the_field_nested_ones_and_those_of_a_whole_model_too(params, field):
    error = refusal(params)
    assert error.details["field"] == field
    assert error.user_message() == f"The parameter '{field}' is invalid: {error.message}"
    assert {"path", "code", "message"} == set(error.details["errors"][0])


@pytest.mark.parametrize("params", [None, "text", 5, ["ticker"]])
def test_parameters_that_are_no_object_are_a_parameter_error(params):
    error = refusal(params)
    assert error.details["field"] is None
    assert error.user_message() == f"Invalid parameter: {error.message}"


def test_unknown_keys_are_the_models_business_here_and_refused_where_calls_run(facts):
    validate_call("facts", "facts", RIGHT | {"unknown": 1})
    with pytest.raises(ParameterError) as caught:
        prepare_arguments(facts, {"query_type": "facts", "parameters": RIGHT | {"unknown": 1}})
    assert caught.value.details["field"] == "parameters.unknown"


def test_every_error_is_a_tool_error_with_message_details_and_user_message():
    error = ToolError("Broken.", {"a": 1})
    assert (error.message, error.details, error.user_message(), str(error)) == (
        "Broken.",
        {"a": 1},
        "Broken.",
        "Broken.",
    )
    assert ToolError("Broken.").details == {}
    assert issubclass(ParameterError, ToolError) and issubclass(QueryTypeUnsupported, ToolError)


def test_a_parameter_error_says_which_parameter_when_it_knows():
    assert ParameterError("too short", {"field": "a"}).user_message() == "The parameter 'a' is invalid: too short"
    assert ParameterError("too short").user_message() == "Invalid parameter: too short"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ParameterError("x"), "parameter_error"),
        (QueryTypeUnsupported("q", "t"), "query_type_error"),
        (StorageUnavailable("x"), "storage_error"),
        (DataNotFound("x"), "data_not_found"),
        (ToolValidationError("x"), "validation_error"),
        (ToolError("x"), "tool_error"),
        (ToolgateError("x"), "unknown_error"),
        (KeyError("x"), "unknown_error"),
    ],
)
def test_errors_are_classified(error, kind):
    def fail(arguments: dict[str, Any]) -> None:
        raise error

    outcome = run_call(define_tool("x", "Fail.", [], handler=fail), CallArguments({}), make_context())
    assert (outcome.error_kind, outcome.success) == (kind, False)


def test_the_standard_response_of_a_success():
    assert format_success_response("q", {"a": 1}, [2], tool_name="t", unit="USD") == {
        "query_type": "q",
        "parameters": {"a": 1},
        "results": [2],
        "output_key": "t",
        "success": True,
        "unit": "USD",
    }


@pytest.mark.parametrize("error_type", ["error", "warning"])
def test_the_standard_response_of_an_error_has_empty_results_and_the_message(error_type):
    assert format_error_response("q", {}, "Away.", tool_name="t", error_type=error_type) == {
        "query_type": "q",
        "parameters": {},
        "results": [],
        "output_key": "t",
        "success": False,
        error_type: "Away.",
    }


def test_both_are_methods_of_a_tool_too(facts):
    assert facts.format_success_response("q", {}, [])["output_key"] == "facts"
    assert facts.format_error_response("q", {}, "Away.")["error"] == "Away."


def test_a_tool_cannot_overwrite_the_standard_fields():
    assert format_success_response("q", {}, [1], tool_name="t", success=False, more=1)["success"] is True


class Found(BaseTool):
    name = "found"
    description = "Find."

    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        return {"success": True, "data": [1]}


def doors() -> list[Tool[Any, Any]]:
    def look(params: NoteParams) -> list[int]:
        """Look."""
        return [1]

    return [
        tool(name="function")(look),
        Tool[NoteParams, list[int]](name="typed", description="Typed.", handler=look),
        define_tool("listed", "Listed.", [], handler=lambda arguments: [1]),
        Found().as_tool(),
    ]


@pytest.mark.parametrize("index", range(4))
def test_every_call_answers_in_the_standard_response_whatever_its_front_door(index):
    door = doors()[index]
    arguments = {"text": "x"} if "text" in door.input_schema.get("properties", {}) else {}
    response = standard_response(door, arguments, run_call(door, prepare_arguments(door, arguments), make_context()))
    assert response == {
        "query_type": None,
        "parameters": arguments,
        "results": [1],
        "output_key": door.name,
        "success": True,
    }


def test_a_query_types_response_carries_query_type_parameters_and_the_tools_own_fields(facts):
    arguments = {"query_type": "facts", "parameters": RIGHT}
    response = standard_response(facts, arguments, run_call(facts, prepare_arguments(facts, arguments), make_context()))
    assert response == {
        "query_type": "facts",
        "parameters": RIGHT,
        "results": [1],
        "output_key": "facts",
        "success": True,
        "data": {"Revenue": 1},
    }
