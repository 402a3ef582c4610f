"""Contract B, the tool runtime: typed tools, examples, results and their rendering, context and resources."""

import dataclasses
from collections.abc import Generator
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.context import Budget, Deadline, ToolContext
from catalog.core.workspace_files import Filesystem
from catalog.errors import ToolDefinitionError
from catalog.results import render, render_value
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import Tool, ToolExample, ToolResult, get_tool, provide_resource, register_tool


@dataclasses.dataclass
class LookupParams:
    entity_id: str = dataclasses.field(metadata={"description": "ID to fetch"})


@dataclasses.dataclass
class LookupResult:
    entity_id: str
    url: str | None


def lookup_handler(params: LookupParams, *, context: ToolContext) -> ToolResult[LookupResult]:
    result = LookupResult(entity_id=params.entity_id, url="https://...")
    return ToolResult(message=f"Fetched {result.entity_id}", value=result)


def example(**changes: Any) -> ToolExample[Any, Any]:
    fields = {
        "description": "Basic lookup",
        "input": LookupParams(entity_id="abc-123"),
        "output": LookupResult(entity_id="abc-123", url="https://..."),
    }
    return ToolExample(**{**fields, **changes})


def lookup(**changes: Any) -> Tool[LookupParams, LookupResult]:
    fields = {
        "name": "lookup_entity",
        "description": "Fetch information for an entity ID.",
        "handler": lookup_handler,
        "examples": (example(),),
    }
    return Tool[LookupParams, LookupResult](**{**fields, **changes})


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def test_the_example_registration_works_as_it_is_written():
    tool = register_tool(lookup())
    assert get_tool("lookup_entity") is tool
    result = invoke("lookup_entity", {"entity_id": "abc-123"})
    assert (result.message, result.value) == ("Fetched abc-123", LookupResult(entity_id="abc-123", url="https://..."))
    assert tool.input_schema["properties"]["entity_id"]["description"] == "ID to fetch"
    assert (tool.accepts_overrides, len(tool.examples)) == (True, 1)


def test_a_handler_needs_no_annotations_that_the_type_gives():
    found = LookupResult("abc-123", "https://...")
    handlers = (lambda params, *, context: ToolResult.ok(found), lambda wanted: found, lookup_handler)
    for handler in handlers:
        made = lookup(handler=handler)
        assert made.input_schema == lookup().input_schema
        assert made.output_schema == lookup().output_schema
        assert invoke(made, {"entity_id": "abc-123"}).value == found
        assert not invoke(made, {"entity": "abc-123"}).success
    assert invoke(Tool[None, str](name="now", description="Tell.", handler=lambda _: "noon"), {}).value == "noon"
    with pytest.raises(ToolDefinitionError):
        register_tool(Tool(name="untyped", description="Look.", handler=lambda params: found))
    with pytest.raises(ToolDefinitionError):
        register_tool(lookup(handler=lambda params: found, examples=(example(output="text"),)))


@pytest.mark.parametrize("name", ["a", "x" * 64, "look-up_2", "0"])
def test_a_name_of_the_rule_is_taken(name):
    assert lookup(name=name).name == name


@pytest.mark.parametrize("name", ["", "x" * 65, "Lookup", "look up", " lookup", "lookup\n", "löökup", "a.b", 5, None])
def test_any_other_name_is_refused_with_the_rule_and_the_value(name):
    with pytest.raises(ToolDefinitionError) as caught:
        lookup(name=name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("length", [1, 200])
def test_a_description_has_1_to_200_characters(length):
    assert len(lookup(description="x" * length).description) == length


@pytest.mark.parametrize("description", ["", "   ", "x" * 201, None, 5])
def test_any_other_description_is_refused_with_the_tools_name(description):
    with pytest.raises(ToolDefinitionError, match="description of lookup_entity must have 1 to 200 characters"):
        lookup(description=description)


def test_the_types_that_are_written_must_be_the_handlers():
    other = Tool[LookupResult, LookupResult](name="x", description="X.", handler=lookup_handler)
    with pytest.raises(ToolDefinitionError, match="x is declared to take LookupResult, but its handler takes"):
        register_tool(other)
    other = Tool[LookupParams, LookupParams](name="x", description="X.", handler=lookup_handler)  # type: ignore[assignment]
    with pytest.raises(ToolDefinitionError, match="x is declared to return LookupParams"):
        register_tool(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"description": ""},
        {"description": "x" * 201},
        {"input": {"entity_id": "abc-123"}},
        {"input": LookupResult("a", None)},
        {"output": LookupParams("a")},
        {"output": None},
    ],
)
def test_examples_are_checked_against_the_types_and_the_refusal_names_the_tool(changes):
    with pytest.raises(ToolDefinitionError, match="lookup_entity"):
        lookup(examples=(example(**changes),))


def test_what_is_no_example_is_refused():
    with pytest.raises(ToolDefinitionError, match="must be a ToolExample"):
        lookup(examples=("look up abc",))


def test_a_tool_may_take_no_parameters():
    def now(params: None, *, context: ToolContext) -> str:
        return "noon"

    tool = Tool[None, str](name="now", description="Tell.", handler=now, examples=(ToolExample("Now", None, "noon"),))
    assert invoke(tool, {}).value == "noon" and not invoke(tool, {"x": 1}).success


def test_a_declared_tool_without_a_handler_knows_its_parameters():
    tool = Tool[LookupParams, LookupResult](name="later", description="Later.", handler=None)
    assert tool.input_schema["required"] == ["entity_id"]


def test_a_result_has_four_fields_and_two_constructors():
    assert ToolResult("m", 1) == ToolResult(message="m", value=1, success=True, exclude_value_from_context=False)
    assert ToolResult.ok(1) == ToolResult("OK", 1)
    assert ToolResult.ok(1, message="Done") == ToolResult("Done", 1)
    assert ToolResult.error("No.") == ToolResult("No.", None, success=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToolResult.ok(1).message = "x"  # type: ignore[misc]


class Point(BaseModel):
    x: int
    y: int | None = None


class Card:
    def render(self) -> str:
        return "a card"


class Numbered:
    def render(self) -> int:
        return 7


@dataclasses.dataclass
class Broken:
    x: int = 1

    def render(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        (b"caf\xc3\xa9", "café"),
        ([], "[]"),
        ((1, "a"), '[1, "a"]'),
        ({"a": None}, '{"a": null}'),
        (LookupResult("a", None), '{"entity_id": "a"}'),
        (Point(x=1), '{"x": 1}'),
        (Card(), "a card"),
        (Numbered(), "7"),
        (Broken(), '{"x": 1}'),
        (True, "true"),
    ],
)
def test_a_value_is_rendered_by_the_rules(value, text):
    assert render_value(value) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.ok({"a": 1}, message="Done."), 'Done.\n\n{"a": 1}'),
        (ToolResult.ok(None, message="Done."), "Done."),
        (ToolResult("", [1]), "[1]"),
        (ToolResult("Done.", [1], exclude_value_from_context=True), "Done."),
        (ToolResult.error("No."), "No."),
    ],
)
def test_the_model_reads_message_blank_line_value(result, text):
    assert render(result) == text


def test_the_context_is_immutable_and_has_what_the_contract_names():
    context = make_context(deadline=Deadline.after(5), budget=Budget(seconds=5), memory={"a": 1})
    for name in ("prompt", "rendered_prompt", "adapter", "session", "deadline", "budget", "resources", "filesystem"):
        assert hasattr(context, name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.session = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        context.memory["b"] = 2  # type: ignore[index]


class Connection:
    def __init__(self, log: list[str], name: str = "connection") -> None:
        self.log, self.name = log, name
        log.append(f"open {name}")

    def close(self) -> None:
        self.log.append(f"close {self.name}")


class Pool(Connection):
    pass


def test_the_filesystem_is_a_resource_like_any_other(settings, tmp_path):
    settings.TOOLGATE_WORKSPACE = tmp_path
    context = make_context()
    assert context.filesystem is context.resources.get(Filesystem)


@pytest.mark.parametrize("fails", [False, True])
def test_resources_are_set_up_when_asked_for_and_closed_in_reverse_when_the_call_ends(fails):
    log: list[str] = []

    def pool() -> Generator[Pool]:
        made = Pool(log, "pool")
        yield made
        log.append("drain pool")

    provide_resource(Connection, lambda: Connection(log))
    provide_resource(Pool, pool)

    def use(params: LookupParams, *, context: ToolContext) -> None:
        assert context.resources.get(Connection) is context.resources.get_optional(Connection)
        assert context.resources.get(Pool).name == "pool"
        log.append("use")
        if fails:
            raise ValueError("no")

    invoke(Tool(name="use", description="Use.", handler=use), {"entity_id": "x"})
    assert log == ["open connection", "open pool", "use", "drain pool", "close connection"]


def test_resources_are_scoped_to_one_call_and_those_not_asked_for_are_never_made():
    log: list[str] = []
    provide_resource(Connection, lambda: Connection(log))

    def use(params: LookupParams, *, context: ToolContext) -> None:
        if params.entity_id == "use":
            context.resources.get(Connection)

    tool: Tool[Any, Any] = Tool(name="use", description="Use.", handler=use)
    for entity_id in ("use", "leave", "use"):
        invoke(tool, {"entity_id": entity_id})
    assert log == ["open connection", "close connection"] * 2


def test_a_resource_that_nobody_provides_is_an_error_or_none():
    context = make_context()
    assert context.resources.get_optional(Connection) is None
    with pytest.raises(LookupError, match="This call has no Connection"):
        context.resources.get(Connection)
