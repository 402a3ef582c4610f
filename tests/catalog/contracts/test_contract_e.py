"""Contract E, the tool protocol: define_tool and its invariants, levels, results for the model, the example tools."""

from typing import Any

import pytest

from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.pipeline import run_call
from catalog.errors import ParameterError, ToolDefinitionError
from catalog.results import format_for_model
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import Tool, define_tool, get_tool, initialize_tools, register_tool, tool_to_schema

SYMBOL = [
    {"name": "symbol", "type": "string", "description": "Symbol name to describe"},
    {"name": "package", "type": "string", "description": "Package name (optional)"},
]


def describe(arguments: dict[str, Any]) -> str:
    return f"{arguments['symbol']} of {arguments.get('package', 'builtins')}"


def defined(name: Any = "describe_symbol", **changes: Any) -> Tool[Any, Any]:
    fields: dict[str, Any] = {
        "description": "Get detailed information about a symbol.",
        "parameters": SYMBOL,
        "required": ["symbol"],
        "safety_level": "safe",
        "categories": ["introspection"],
        "handler": describe,
    }
    fields |= changes
    return define_tool(name, fields.pop("description"), fields.pop("parameters"), **fields)


def answered(returned: Any) -> Any:
    return invoke(defined(parameters=[], required=[], handler=lambda arguments: returned), {})


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def test_the_example_definition_works_once_it_is_registered():
    tool = register_tool(defined())
    assert get_tool("describe_symbol") is tool
    assert invoke("describe_symbol", {"symbol": "car"}).value == "car of builtins"
    assert (tool.safety_level, tool.categories) == (SafetyLevel.SAFE, ("introspection",))


def test_registration_is_needed_to_be_usable():
    defined()
    assert get_tool("describe_symbol") is None


def test_a_name_is_unique_registering_again_replaces():
    register_tool(defined())
    second = register_tool(defined(description="Another."))
    assert get_tool("describe_symbol") is second


@pytest.mark.parametrize(
    "name",
    [
        *("describeSymbol", "function-arglist", "readFile", "_x", "1x", "", "x" * 65, "x\n", None, 5, "planning_x"),
        *("approval_result", "ask_user", "compose_reply", "draft_plan", "plan_on"),
    ],
)
def test_a_name_is_snake_case_and_not_reserved(name):
    with pytest.raises(ToolDefinitionError) as caught:
        register_tool(defined(name))
    assert str(name).strip("\n") in str(caught.value)


@pytest.mark.parametrize("required", [["missing"], ["symbol", "missing"], "symbol", 5, [5]])
def test_required_parameters_exist(required):
    with pytest.raises(ToolDefinitionError, match="describe_symbol"):
        defined(required=required)


@pytest.mark.parametrize("level", ["harmless", "", None, 5, ":safe"])
def test_a_safety_level_is_one_of_three(level):
    with pytest.raises(ToolDefinitionError, match="safe, cautious, dangerous"):
        defined(safety_level=level)


@pytest.mark.parametrize(
    ("level", "becomes"),
    [("safe", "safe"), ("cautious", "cautious"), ("moderate", "cautious"), ("dangerous", "dangerous")],
)
def test_moderate_is_another_word_for_cautious(level, becomes):
    assert defined(safety_level=level).safety_level == becomes


@pytest.mark.parametrize("handler", [None, "text", 5, lambda: None, lambda one, two: None, lambda *, arguments: None])
def test_a_handler_takes_one_dict(handler):
    with pytest.raises(ToolDefinitionError, match="The handler of describe_symbol must be a function of one dict"):
        defined(handler=handler)


@pytest.mark.parametrize(
    "handler", [lambda args: None, lambda args, context: None, lambda args, *, context: None, dict]
)
def test_a_handler_may_take_the_context_too(handler):
    assert invoke(defined(handler=handler), {"symbol": "x"}).success


@pytest.mark.parametrize("description", ["", "  ", None, 5])
def test_a_description_is_needed_and_may_be_long(description):
    with pytest.raises(ToolDefinitionError, match="description of describe_symbol"):
        defined(description=description)
    assert len(defined(description="x" * 1000).description) == 1000


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("symbol", "must be a list of dicts"),
        ({"name": "symbol"}, "must be a list of dicts"),
        (["symbol"], "a unique name"),
        ([{"type": "string"}], "a unique name"),
        ([*SYMBOL, SYMBOL[0]], "'symbol' is missing or duplicate"),
        ([{"name": "symbol", "type": "date"}], "symbol of describe_symbol must be one of string"),
        ([{"name": "symbol"}], "not None"),
        ([{"name": "symbol", "type": "string", "pattern": "x"}], "unknown keys: pattern"),
        ([{"name": "symbol", "type": "string", "enum": "abc"}], "enum"),
    ],
)
def test_a_parameter_list_that_cannot_be_is_refused_with_the_rule(parameters, why):
    with pytest.raises(ToolDefinitionError, match=why):
        defined(parameters=parameters)


def test_the_schema_is_the_function_form_that_models_read():
    assert tool_to_schema(defined()) == {
        "type": "function",
        "function": {
            "name": "describe_symbol",
            "description": "Get detailed information about a symbol.",
            "parameters": {
                "type": "object",
                "properties": {
                    "symbol": {"type": "string", "description": "Symbol name to describe"},
                    "package": {"type": "string", "description": "Package name (optional)"},
                },
                "required": ["symbol"],
                "additionalProperties": False,
            },
        },
    }


def test_required_is_left_out_when_nothing_is_and_arrays_always_have_items():
    parameters = tool_to_schema(defined(required=[], parameters=[{"name": "tags", "type": "array"}]))["function"][
        "parameters"
    ]
    assert "required" not in parameters
    assert parameters["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("string", "x", 5),
        ("boolean", True, "true"),
        ("number", 1.5, "1.5"),
        ("integer", 1, 1.5),
        ("integer", 1, True),
        ("object", {"a": 1}, []),
        ("array", ["a"], "a"),
    ],
)
def test_each_parameter_type_takes_its_values_and_no_others(kind, right, wrong):
    made = defined(parameters=[{"name": "a", "type": kind}], required=["a"], handler=lambda arguments: None)
    assert prepare_arguments(made, {"a": right}).passed == {"a": right}
    with pytest.raises(ParameterError) as caught:
        prepare_arguments(made, {"a": wrong})
    assert caught.value.details["field"] == "a"


@pytest.mark.parametrize("returned", ["text", [1, "a"], None, {"a": 1}, 5, 1.5, True])
def test_a_handler_may_return_anything(returned):
    result = answered(returned)
    assert (result.success, result.value) == (True, returned)


def test_a_result_may_come_with_an_error():
    assert answered(("fine", None)).value == "fine"
    failed = answered(("so far", "It stopped half way."))
    assert (failed.success, failed.value, failed.message) == (False, "so far", "It stopped half way.")
    assert answered((1, 2)).value == (1, 2)


def test_a_returned_error_string_is_still_a_success():
    assert answered("Error: Invalid input").success


def test_an_error_that_is_signalled_is_caught_and_its_text_reaches_the_model():
    def signal(arguments: dict[str, Any]) -> None:
        raise ValueError("Symbol FOO not found in package BAR")

    outcome = run_call(defined(handler=signal), CallArguments({"symbol": "x"}), make_context())
    assert (outcome.success, "Symbol FOO not found in package BAR" in outcome.message) == (False, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "nil"),
        ([1, "a"], '[\n  1,\n  "a"\n]'),
        ({"a": None}, '{\n  "a": null\n}'),
        (True, "true"),
        (1.5, "1.5"),
    ],
)
def test_a_value_is_formatted_for_the_model(value, text):
    assert format_for_model(value) == text


def test_long_text_is_cut_with_a_mark_inside_the_limit():
    text = format_for_model("x" * 5000)
    assert len(text) == 2000 and text.endswith("[... truncated ...]")
    assert len(format_for_model(list(range(1000)), limit=100)) == 100


LEVELS = {
    **dict.fromkeys(("describe_symbol", "apropos_search", "function_arglist", "read_file"), "safe"),
    "eval_form": "cautious",
    **dict.fromkeys(("write_file", "propose_file_edit"), "dangerous"),
}


def test_the_example_tools_ship_with_their_levels():
    initialize_tools()
    shipped = {name: get_tool(name) for name in LEVELS}
    assert {name: str(tool.safety_level) for name, tool in shipped.items() if tool} == LEVELS


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("describe_symbol", {"symbol": "json.dumps"}, "Serialize"),
        ("apropos_search", {"query": "dumps"}, "json.dumps"),
        ("function_arglist", {"symbol": "json.dumps"}, "skipkeys"),
        ("eval_form", {"form": "(1 + 2) * 3"}, "9"),
    ],
)
def test_the_example_tools_do_what_they_say(name, arguments, said):
    initialize_tools()
    assert said in str(invoke(name, arguments).value)
