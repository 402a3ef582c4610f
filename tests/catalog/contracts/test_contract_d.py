"""Contract D, statement by statement: specifications, implementations, the library, schemas, serialization."""

from typing import Any

import pytest

from catalog.definitions.tool import Tool
from catalog.errors import ParameterError, ToolDefinitionError, TypeSignatureError
from catalog.gram import (
    Parameter,
    ToolSpecification,
    Type,
    TypeSignature,
    create_tool_specification,
    parse_type_signature,
    type_signature_to_json_schema,
)
from catalog.library import ToolLibrary, create_tool
from catalog.schemas import validate_tool_args
from catalog.testing import clean_registry, invoke
from catalog.tools import get_tool, register_tool

SIGNATURE = '(::Text {paramName:"name"})==>(::String)'
DESCRIPTION = "Returns a friendly greeting message for the given name"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
RECORD = '(::Object {paramName:"params", fields:[{name:"name", type:"Text"}, {name:"age", type:"Int"}]})==>(::String)'
GRAM = f"""[sayHello:ToolSpecification {{
  description: "{DESCRIPTION}"
}} |
  {SIGNATURE}
]"""


def greet(args: dict[str, Any]) -> str:
    """Answer as the contract's example does."""
    return f"Hello, {args['name']}! Nice to meet you."


@pytest.fixture
def specification() -> ToolSpecification:
    return create_tool_specification("sayHello", DESCRIPTION, SIGNATURE)


@pytest.fixture
def tool() -> Tool[Any, Any]:
    return create_tool("sayHello", DESCRIPTION, SCHEMA, greet)


# Tool specification creation


def test_a_specification_gives_back_its_name_description_signature_and_generated_schema(specification):
    assert specification.name == "sayHello"
    assert specification.description == DESCRIPTION
    assert specification.type_signature == SIGNATURE
    assert specification.schema == SCHEMA


@pytest.mark.parametrize(
    ("name", "description", "message"),
    [
        ("", "d", "Tool name cannot be empty"),
        ("a", "", "Tool description cannot be empty"),
        ("a", "  ", "Tool description cannot be empty"),
        ("a b", "d", "letters, digits"),
        ("x" * 65, "d", "1 to 64"),
        ("a", "half \ud800", "surrogate"),
    ],
)
def test_name_and_description_must_be_non_empty_and_the_name_one_the_catalog_takes(name, description, message):
    with pytest.raises(ToolDefinitionError, match=message):
        create_tool_specification(name, description, SIGNATURE)


def test_the_type_signature_must_be_valid():
    with pytest.raises(TypeSignatureError):
        create_tool_specification("a", "d", "name -> String")


@pytest.mark.parametrize(
    ("signature", "properties", "required"),
    [
        ("(::Text)==>(::String)", {"arg1": {"type": "string"}}, ["arg1"]),
        (SIGNATURE, {"name": {"type": "string"}}, ["name"]),
        (
            '(::Text {paramName:"name"})==>(::Int {paramName:"age"})==>(::String)',
            {"name": {"type": "string"}, "age": {"type": "integer"}},
            ["name", "age"],
        ),
        (
            '(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::String)',
            {"name": {"type": "string"}, "age": {"type": "integer"}},
            ["name"],
        ),
        (
            RECORD,
            {
                "params": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name", "age"],
                }
            },
            ["params"],
        ),
        ("()==>(::String)", {}, []),
    ],
    ids=["simple", "named", "multiple", "optional", "record", "none"],
)
def test_each_form_of_a_type_signature_becomes_its_schema(signature, properties, required):
    schema = type_signature_to_json_schema(signature)

    assert schema == {"type": "object", "properties": properties, "required": required}
    assert list(schema["properties"]) == list(properties)


# Type signature processing


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("Text", {"type": "string"}),
        ("Int", {"type": "integer"}),
        ("Double", {"type": "number"}),
        ("Bool", {"type": "boolean"}),
        ("[Text]", {"type": "array", "items": {"type": "string"}}),
        (
            "{field1: Int, field2: Bool}",
            {
                "type": "object",
                "properties": {"field1": {"type": "integer"}, "field2": {"type": "boolean"}},
                "required": ["field1", "field2"],
            },
        ),
    ],
)
def test_types_map_as_the_table_says_in_both_notations(written, schema):
    for signature in (f'(::{written} {{paramName:"a"}})==>(::Text)', f"(a: {written}) --> IO Text"):
        assert type_signature_to_json_schema(signature)["properties"]["a"] == schema
    for signature in (f'(::Maybe {written} {{paramName:"a"}})==>(::Text)', f"(a: Maybe {written}) --> IO Text"):
        found = type_signature_to_json_schema(signature)
        assert (found["properties"]["a"], found["required"]) == (schema, [])


def test_a_signature_parses_to_its_structured_form():
    parsed = parse_type_signature('(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::String)')

    parameters = (Parameter("name", Type("Text")), Parameter("age", Type("Int"), optional=True))
    assert parsed == TypeSignature(parameters, Type("String"))


@pytest.mark.parametrize(
    "signature", ["", "(::Text)", "(::Text)==>", "(::Foo)==>(::Text)", "nonsense", "(::Text)==>(::Foo)"]
)
def test_an_invalid_signature_is_an_error_with_its_place(signature):
    for function in (parse_type_signature, type_signature_to_json_schema):
        with pytest.raises(TypeSignatureError) as caught:
            function(signature)
        assert (caught.value.line, caught.value.column) >= (1, 1)


# Tool implementation creation


def test_a_tool_gives_back_its_name_description_and_schema(tool):
    assert (tool.name, tool.description, tool.input_schema) == ("sayHello", DESCRIPTION, SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "Tool name cannot be empty"),
        ({"description": ""}, "Tool description cannot be empty"),
        ({"schema": []}, "Schema must be an object"),
        ({"schema": {"type": "string"}}, "Schema must be an object"),
        ({"schema": {"type": "strang"}}, "Schema must be an object"),
        ({"schema": {"type": "object", "properties": []}}, "schema at properties"),
        ({"invoke": "greet"}, "must be a function of one dict"),
    ],
)
def test_a_tool_needs_name_description_valid_schema_and_function(change, message):
    fields = {"name": "sayHello", "description": DESCRIPTION, "schema": SCHEMA, "invoke": greet} | change

    with pytest.raises(ToolDefinitionError, match=message):
        create_tool(**fields)


# Tool library management


def test_an_empty_library_finds_nothing():
    assert ToolLibrary().lookup("sayHello") is None
    assert ToolLibrary().lookup("") is None


def test_registering_returns_a_new_library_and_leaves_the_old_one_as_it_was(tool):
    empty = ToolLibrary()
    library = empty.register("sayHello", tool)

    assert library.lookup("sayHello") is tool
    assert empty.lookup("sayHello") is None


def test_registering_the_same_name_again_replaces(tool):
    other = create_tool("sayHello", DESCRIPTION, SCHEMA, lambda args: "Hi")
    library = ToolLibrary().register("sayHello", tool).register("sayHello", other)

    assert library.lookup("sayHello") is other


def test_the_registered_name_must_be_that_of_the_tool(tool):
    with pytest.raises(ToolDefinitionError, match="'sayHello' must be registered under its name, not as 'hello'"):
        ToolLibrary().register("hello", tool)
    with pytest.raises(ToolDefinitionError, match="not function"):
        ToolLibrary().register("greet", greet)  # type: ignore[arg-type] # what is refused


def test_a_specification_binds_to_the_tool_that_matches_it(specification, tool):
    library = ToolLibrary().register("sayHello", tool)

    assert library.bind(specification) is tool
    assert library.why_not(specification) == ""


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (None, "no tool 'sayHello'; it has nothing"),
        (create_tool("sayHello", "Other", SCHEMA, greet), "The description differs: specified .*, found 'Other'"),
        (
            create_tool("sayHello", DESCRIPTION, SCHEMA | {"properties": {"name": {"type": "integer"}}}, greet),
            'differs: properties.name.type is specified as "string", and found as "integer"',
        ),
        (create_tool("sayHello", DESCRIPTION, {"type": "object"}, greet), "properties is specified and not found"),
        (
            create_tool("sayHello", DESCRIPTION, SCHEMA | {"additionalProperties": False}, greet),
            "additionalProperties is found and not specified",
        ),
    ],
)
def test_what_is_missing_or_differs_does_not_bind_and_says_what_differs(specification, tool, reason):
    library = ToolLibrary().register("sayHello", tool) if tool else ToolLibrary()

    assert library.bind(specification) is None
    with pytest.raises(ToolDefinitionError, match=f"'sayHello' not found in library or validation failed: .*{reason}"):
        library.bind_all([specification])


def test_numbers_that_are_the_same_json_bind_and_true_is_not_one(specification):
    one = create_tool_specification("a", "d", "(::Double {default:1})==>(::Text)")
    library = ToolLibrary()

    for default, binds in ((1.0, True), (True, False)):
        schema = {"type": "object", "properties": {"arg1": {"type": "number", "default": default}}, "required": []}
        assert bool(library.register("a", create_tool("a", "d", schema, greet)).bind(one)) is binds


def test_names_are_unique_within_one_agents_list(specification, tool):
    library = ToolLibrary().register("sayHello", tool)

    assert library.bind_all([specification]) == [tool]
    with pytest.raises(ToolDefinitionError, match="Tool names must be unique within agent's tool list: 'sayHello'"):
        library.bind_all([specification, specification])


# Tool invocation


def test_a_bound_tool_is_an_ordinary_tool_of_the_registry(specification, tool):
    with clean_registry():
        bound = ToolLibrary().register("sayHello", tool).bind(specification)
        assert bound is not None
        register_tool(bound)

        assert get_tool("sayHello") is bound
        assert invoke("sayHello", {"name": "Ada"}).value == "Hello, Ada! Nice to meet you."


@pytest.mark.parametrize("arguments", [{}, {"name": 5}, {"name": None}, {"name": "Ada", "nmae": "Ada"}])
def test_parameters_are_validated_before_the_function_is_called(arguments):
    called: list[Any] = []
    result = invoke(create_tool("sayHello", DESCRIPTION, SCHEMA, called.append), arguments)

    assert not result.success
    assert called == []


def test_an_error_of_the_function_becomes_a_failed_result():
    def fail(args: dict[str, Any]) -> str:
        raise RuntimeError("no greeting today")

    assert not invoke(create_tool("sayHello", DESCRIPTION, SCHEMA, fail), {"name": "Ada"}).success


def test_unknown_keys_of_nested_records_do_not_run_either(specification):
    nested = create_tool_specification("a", "d", "(who: {name: Text, tags: [{x: Int}]}, free: Object) --> IO Text")
    tool = create_tool("a", "d", nested.schema, lambda args: "ran")
    good = {"who": {"name": "n", "tags": [{"x": 1}]}, "free": {"any": "thing"}}

    assert invoke(tool, good).value == "ran"
    assert not invoke(tool, good | {"who": {"name": "n", "tags": [{"x": 1, "y": 2}]}}).success
    assert not invoke(tool, good | {"who": {"name": "n", "tags": [], "z": 1}}).success


# Parameter validation


def test_arguments_that_fit_are_returned():
    assert validate_tool_args(SCHEMA, {"name": "Ada"}) == {"name": "Ada"}
    assert validate_tool_args(SCHEMA, {"name": "Ada", "more": 1}) == {"name": "Ada", "more": 1}


NESTED = type_signature_to_json_schema(
    "(user: {name: Text, homes: [{zip: Int}], vip: Maybe Bool}, rate: Double) --> Text"
)
USER = {"name": "Ada", "homes": [{"zip": 1}], "vip": True}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"rate": 1.5}, "user"),
        ({"user": USER}, "rate"),
        ({"user": [], "rate": 1}, "user"),
        ({"user": {"name": "Ada"}, "rate": 1}, "user.homes"),
        ({"user": USER | {"name": 1}, "rate": 1}, "user.name"),
        ({"user": USER | {"vip": 1}, "rate": 1}, "user.vip"),
        ({"user": USER | {"homes": {}}, "rate": 1}, "user.homes"),
        ({"user": USER | {"homes": [{"zip": 1}, {"zip": 3.5}]}, "rate": 1}, "user.homes.1.zip"),
        ({"user": USER | {"homes": [{"zip": True}]}, "rate": 1}, "user.homes.0.zip"),
        ({"user": USER | {"homes": [{}]}, "rate": 1}, "user.homes.0.zip"),
        ({"user": USER, "rate": "1"}, "rate"),
    ],
)
def test_every_field_is_judged_recursively_and_the_error_names_its_path(arguments, path):
    with pytest.raises(ParameterError) as caught:
        validate_tool_args(NESTED, arguments)

    assert caught.value.details["field"] == path
    assert str(caught.value).endswith(f" (at {path})")
    assert f"'{path}'" in caught.value.user_message()


def test_arguments_that_are_no_object_are_refused():
    with pytest.raises(ParameterError, match="must be an object"):
        validate_tool_args(SCHEMA, ["name"])


# Serialization


def test_the_gram_of_a_specification_is_that_of_the_contract(specification):
    assert specification.to_gram() == GRAM
    assert ToolSpecification.from_gram(GRAM) == specification


def test_the_json_of_a_specification_is_that_of_the_contract(specification):
    data = {"name": "sayHello", "description": DESCRIPTION, "typeSignature": SIGNATURE, "schema": SCHEMA}

    assert specification.to_json() == data
    assert ToolSpecification.from_json(data) == specification


@pytest.mark.parametrize(
    "schema", [{}, {"type": "string"}, None, "nonsense", {"type": "object", "properties": {"evil": {}}}]
)
def test_the_schema_comes_from_the_signature_whatever_the_json_says(specification, schema):
    assert ToolSpecification.from_json(specification.to_json() | {"schema": schema}).schema == SCHEMA


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "JSON object, not list"),
        ({}, "needs the text name"),
        ({"name": "a", "description": 1, "typeSignature": SIGNATURE}, "needs the text description"),
        ({"name": "a", "description": "d"}, "needs the text typeSignature"),
        ({"name": "a", "description": "d", "typeSignature": SIGNATURE, "level": 1}, "Unknown key 'level'"),
    ],
)
def test_json_that_is_no_specification_is_refused_by_field(data, message):
    with pytest.raises(ToolDefinitionError, match=message):
        ToolSpecification.from_json(data)


def test_changing_a_schema_that_was_read_changes_no_specification(specification):
    specification.schema["properties"].clear()

    assert specification.schema == SCHEMA
