"""Contract C, the tool framework: class tools, registry, logs, questions to users."""

import logging
import sys
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, Field

from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import CallArguments, prepare_arguments
from catalog.dispatch.pipeline import preview_call, run_call, standard_response
from catalog.errors import IdentifierRequired, ParameterError, ToolDefinitionError
from catalog.styles.class_tools import safe_execute
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import (
    BaseTool,
    Preview,
    get_all_tools,
    get_tool,
    get_tool_descriptions,
    initialize_tools,
    register_tool,
    tool,
)
from catalog.tools.registry import unknown_tool_error

CONTEXT = {"trace_id": "test"}
SECRET = "someone@example.org"


class BrokenTool(BaseTool):
    name = "broken"
    description = "always fails"

    async def execute(self, args, context):
        raise RuntimeError(f"kaboom {args} {SECRET}")


class Answering(BaseTool):
    name = "answering"
    description = "gives what it was made with"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def execute(self, args, context):
        return self.answer


class WhoParams(BaseModel):
    who: str = Field(description="Your registration email or registration ID")
    times: int = 1


class AskedTool(BaseTool):
    name = "asked"
    description = "needs somebody"
    parameters = WhoParams
    requires_identifier = True
    returns_private_data = True
    rate_limit_key = "asking"
    rate_limit = "5/min"
    categories = ("people",)

    async def execute(self, args, context):
        return {"success": True, "data": {"who": args["who"], "call": context["call_id"], "trace": context["trace_id"]}}


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


FAILED = {
    "success": False,
    "data": None,
    "error": "Tool 'broken' encountered an error",
    "user_message": "I ran into a problem looking that up. Could you try again?",
}


async def test_tool_safe_execute_never_crashes():
    assert await BrokenTool().safe_execute({}, CONTEXT) == FAILED


@pytest.mark.parametrize("context", [None, "text", {}, {"trace_id": "a\nb"}])
async def test_whatever_the_context_is(context):
    assert await BrokenTool().safe_execute({}, context) == FAILED


@pytest.mark.parametrize("answer", [None, "text", [], 5, {"success": "yes"}, {"success": True, "error": 5}])
async def test_an_answer_that_is_no_result_dict_is_a_failure(answer):
    result = await Answering(answer).safe_execute({}, CONTEXT)
    assert (result["success"], result["error"]) == (False, "Tool 'answering' encountered an error")


async def test_a_result_dict_is_passed_on_whole():
    answer = {"success": True, "data": {"a": 1}, "error": None, "user_message": "Here."}
    assert await Answering(answer).safe_execute({}, CONTEXT) == answer
    assert await Answering({"data": 1}).safe_execute({}, CONTEXT) == {
        "success": True,
        "data": 1,
        "error": None,
        "user_message": None,
    }


async def test_neither_arguments_nor_exception_texts_are_logged_or_returned(caplog):
    caplog.set_level(logging.DEBUG)
    result = await BrokenTool().safe_execute({"email": SECRET}, CONTEXT)
    invoke(BrokenTool(), {"email": SECRET})
    assert SECRET not in caplog.text + str(result) and "kaboom" not in caplog.text + str(result)
    assert "tool_execute tool=broken trace_id='test'" in caplog.text
    assert "tool_error tool=broken trace_id='test' error=RuntimeError" in caplog.text


async def test_what_happens_is_logged_by_the_contracts_names(caplog):
    caplog.set_level(logging.DEBUG, logger="toolgate.tools")
    await register_tool(Answering({"success": True})).safe_execute({}, {"trace_id": "one\ntwo"})
    initialize_tools()
    for event in ("tool_registered name=answering", "tool_execute", "tool_complete", "tools_initialized count="):
        assert event in caplog.text
    assert "trace_id='one\\ntwo'" in caplog.text


def test_a_tool_that_is_not_there_is_logged_with_its_name_cut(caplog):
    register_tool(BrokenTool())
    assert str(unknown_tool_error("borken")) == "Unknown tool: borken. Did you mean broken?"
    unknown_tool_error("x\n" * 500)
    assert "tool_not_found name='borken'" in caplog.text
    assert max(map(len, caplog.messages)) < 120


def test_execute_is_abstract():
    class Nothing(BaseTool):
        name, description = "nothing", "does nothing"

    with pytest.raises(TypeError, match="execute"):
        Nothing()  # type: ignore[abstract]


@pytest.mark.parametrize("missing", ["name", "description"])
def test_a_class_without_name_or_description_is_refused_by_its_name(missing):
    class Nameless(BrokenTool):
        pass

    setattr(Nameless, missing, None)
    with pytest.raises(ToolDefinitionError, match=f"Nameless is a BaseTool without a {missing}"):
        register_tool(Nameless())


def test_tool_registry():
    first, second = register_tool(BrokenTool()), register_tool(AskedTool())
    assert (get_tool("broken"), get_tool("asked"), get_tool("nope")) == (first.as_tool(), second.as_tool(), None)
    assert list(get_all_tools()) == ["broken", "asked"]


async def test_registering_returns_the_object_given_and_the_catalog_executes_it():
    given = Answering({"success": True, "data": 1})
    assert register_tool(given) is given
    held: Any = get_tool("answering")
    assert await held.execute({}, {}) == {"success": True, "data": 1}
    assert (await held.safe_execute({}, {}))["data"] == 1
    register_tool(given)
    assert get_tool("answering") is held


def test_instances_of_tool_classes_are_found_in_a_module(settings, monkeypatch):
    module = ModuleType("class_tools")
    vars(module).update(broken=BrokenTool(), asked=AskedTool(), kind=BrokenTool)
    monkeypatch.setitem(sys.modules, "class_tools", module)
    settings.TOOLGATE_TOOLS = ["class_tools"]
    initialize_tools()
    assert {"broken", "asked"} <= set(get_all_tools())


def test_the_registry_that_is_handed_out_is_a_copy():
    get_all_tools()["x"] = register_tool(BrokenTool()).as_tool()
    assert get_tool("x") is None


def test_planner_tool_descriptions():
    register_tool(BrokenTool())
    register_tool(AskedTool())
    assert get_tool_descriptions() == [
        {"name": "broken", "description": "always fails", "requires_identifier": False},
        {"name": "asked", "description": "needs somebody", "requires_identifier": True},
    ]


def test_initialize_tools_registers_the_shipped_ones_once():
    initialize_tools()
    names = list(get_all_tools())
    initialize_tools()
    assert list(get_all_tools()) == names
    assert {"lookup_registration", "send_registration_email"} <= set(names)


def test_the_class_attributes_become_the_options_of_the_tool():
    made = register_tool(AskedTool()).as_tool()
    assert (made.requires_identifier, made.returns_private_data, made.rate_limit_key) == (True, True, "asking")
    assert (made.safety_level, made.categories, str(made.rates[0])) == (SafetyLevel.SAFE, ("people",), "5/min")
    assert made.reference.endswith(":AskedTool.execute") and made.reference.startswith(__name__)


async def test_what_get_tool_returns_executes_safely_after_checking():
    register_tool(AskedTool())
    made: Any = get_tool("asked")
    assert (await made.safe_execute({"who": "a"}, CONTEXT))["data"]["who"] == "a"
    refused = await made.safe_execute({"who": 5}, CONTEXT)
    assert (refused["success"], refused["data"]) == (False, None) and "'who'" in refused["error"]
    register_tool(BrokenTool())
    broken: Any = get_tool("broken")
    assert await broken.safe_execute({}, CONTEXT) == FAILED


async def test_a_dangerous_tool_is_not_executed_without_people():
    class Dangerous(BrokenTool):
        safety_level = "dangerous"

    made = register_tool(Dangerous()).as_tool()
    result = await made.safe_execute({}, CONTEXT)
    assert (result["success"], result["error"]) == (
        False,
        "Dangerous tool requires approval handler, but none configured",
    )


async def test_any_tool_can_be_executed_the_same_way():
    @tool
    def add(a: int) -> int:
        """Add one."""
        return a + 1

    assert await safe_execute(add, {"a": 1}, CONTEXT) == {
        "success": True,
        "data": 2,
        "error": None,
        "user_message": None,
    }


def test_in_the_pipeline_a_class_is_an_ordinary_tool():
    made = register_tool(Answering({"success": True, "data": {"a": 1}, "user_message": "Found it."})).as_tool()
    result = invoke("answering", {"any": "thing"})
    assert (result.success, result.value, result.message) == (True, {"a": 1}, "Found it.")
    response = standard_response(made, {}, run_call(made, CallArguments({}), make_context()))
    assert (response["results"], response["success"], response["user_message"]) == ([{"a": 1}], True, "Found it.")


def test_in_the_pipeline_a_failed_answer_is_a_failed_result():
    made = register_tool(
        Answering({"success": False, "error": "not_there", "user_message": "I found nothing."})
    ).as_tool()
    result = invoke("answering", {})
    assert (result.success, result.message, result.user_message) == (False, "not_there", "I found nothing.")
    response = standard_response(made, {}, run_call(made, CallArguments({}), make_context()))
    assert (response["results"], response["error"], response["user_message"]) == ([], "not_there", "I found nothing.")


def test_in_the_pipeline_an_exception_is_hidden_too_and_may_be_tried_again():
    outcome = run_call(BrokenTool().as_tool(), CallArguments({}), make_context())
    assert (outcome.message, outcome.error) == (FAILED["error"], FAILED["user_message"])
    assert (outcome.error_kind, outcome.retryable) == ("unknown_error", True)


def test_a_class_may_show_what_a_call_would_do():
    class Showing(AskedTool):
        async def preview(self, args, context):
            return Preview(f"Ask {args['who']}", "none")

    preview = preview_call(Showing().as_tool(), CallArguments({"who": "Ada"}), make_context())
    assert preview is not None and preview.summary == "Ask Ada"
    assert not AskedTool().as_tool().has_preview


@pytest.mark.parametrize("arguments", [{}, {"who": ""}, {"who": "  "}, {"who": None}, {"times": 2}])
def test_without_the_identifier_the_call_is_refused_with_a_question_for_the_user(arguments):
    with pytest.raises(IdentifierRequired) as caught:
        prepare_arguments(AskedTool().as_tool(), arguments)
    question = "I'd be happy to help! Could you provide your registration email or registration ID?"
    assert caught.value.user_message() == question
    assert caught.value.details == {
        "field": "who",
        "errors": [{"path": "who", "code": "identifier_required", "message": question}],
    }


@pytest.mark.parametrize(
    ("parameters", "named", "asked_for"),
    [
        ({"a": str, "identifier": str}, None, "identifier"),
        ({"a": str, "b": str}, None, "a"),
        ({"a": str, "b": str}, "b", "b"),
        (None, None, "identifier"),
        (None, "email", "email"),
    ],
)
def test_the_identifier_is_the_named_parameter_else_identifier_else_the_first_required(parameters, named, asked_for):
    class Asking(BrokenTool):
        requires_identifier = True

    Asking.identifier = named
    if parameters is not None:
        properties = {name: {"type": "string"} for name in parameters}
        Asking.parameters = {"type": "object", "properties": properties, "required": ["a"]}
    with pytest.raises(IdentifierRequired) as caught:
        prepare_arguments(Asking().as_tool(), {"other": 1})
    assert caught.value.details["field"] == asked_for


def test_an_identifier_that_is_no_parameter_is_refused_when_the_tool_is_made():
    class Asking(AskedTool):
        identifier = "email"

    with pytest.raises(ToolDefinitionError, match="asked requires an identifier, but 'email'"):
        Asking().as_tool()


def test_every_way_of_declaring_may_require_an_identifier():
    @tool(requires_identifier=True)
    def find(email: str, day: str = "") -> str:
        """Find."""
        return email

    with pytest.raises(IdentifierRequired, match="the email"):
        prepare_arguments(find, {"day": "x"})
    assert prepare_arguments(find, {"email": "a"}).passed


def test_parameters_are_checked_and_without_them_any_object_is_taken():
    with pytest.raises(ParameterError):
        prepare_arguments(AskedTool().as_tool(), {"who": "a", "unknown": 1})
    assert prepare_arguments(BrokenTool().as_tool(), {"any": {"thing": [1]}}).passed


def test_the_context_of_a_call_is_the_contracts_dict():
    data = invoke(AskedTool(), {"who": "a"}).value or {}
    assert (data["call"], data["trace"]) == ("call_test", "call_test")
