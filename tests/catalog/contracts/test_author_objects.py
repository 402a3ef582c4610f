"""Members that the contracts require of objects used by tool authors."""

import pytest
from pydantic import ValidationError

from catalog.library import create_tool
from catalog.styles.class_tools import ClassTool
from catalog.testing import clean_registry
from catalog.tools import BaseTool, Tool, define_tool, get_tool, register_tool, tool_to_schema
from plans.planner import PlannerOutput
from plans.spec import PlanStep

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PARAMETERS = [{"name": "symbol", "type": "string", "description": "What to look for."}]


class Lookup(BaseTool):
    """A tool with a method of its author's."""

    name = "look_up"
    description = "  Look something up. "

    async def execute(self, args, context):
        return {"success": True, "data": self.answer()}

    def answer(self):
        """Return what the author wants returned."""
        return 42


def greet(arguments):
    return arguments["name"]


def test_registered_object_keeps_the_authors_methods():
    with clean_registry():
        given = register_tool(Lookup())
        found = get_tool("look_up")
        assert isinstance(found, ClassTool)
        assert found.answer() == 42
        assert not hasattr(found, "no_such_method")
        assert tool_to_schema(given) == tool_to_schema(found)


def test_descriptions_are_stripped():
    assert Lookup().as_tool().description == "Look something up."
    assert Tool(name="greet", description=" Greet. ", handler=lambda: None).description == "Greet."


def test_base_tool_formats_responses():
    tool = Lookup()
    assert tool.format_success_response("kind", {}, [1])["output_key"] == "look_up"
    assert tool.format_error_response("kind", {}, "none", error_type="warning")["warning"] == "none"


def test_created_tool_has_schema_and_invoke():
    tool = create_tool("greet", "Greet.", SCHEMA, greet)
    assert (tool.schema, tool.invoke({"name": "Jo"})) == (SCHEMA, "Jo")


def test_defined_tool_has_parameters_and_required():
    tool = define_tool("find_symbol", "Find a symbol.", PARAMETERS, required=["symbol"], handler=greet)
    assert (list(tool.parameters), list(tool.required)) == (PARAMETERS, ["symbol"])


def test_planner_output_takes_no_intent_and_null_calls():
    assert PlannerOutput.model_validate({"tool_calls": None}).tool_calls == []


def test_step_takes_contract_a_statuses_only():
    with pytest.raises(ValidationError):
        PlanStep(step_id=1, description="Look", status="done")
