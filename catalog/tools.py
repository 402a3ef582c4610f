"""The public API for tool authors: everything they import, and the two ways to declare a tool."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack, overload

from pydantic import TypeAdapter

from catalog.context import ToolContext
from catalog.definitions import (
    MAX_DESCRIPTION,
    Reversibility,
    SafetyLevel,
    Tool,
    ToolExample,
    ToolSpec,
    level_of,
)
from catalog.errors import QueryTypeUnsupported, ToolDefinitionError
from catalog.registry import (
    get_all_tools,
    get_tool,
    get_tool_descriptions,
    initialize_tools,
    nearest_names,
    register_tool,
)
from catalog.results import Preview, ToolResult
from catalog.signatures import Binding, Handler, QueryBinding, build

__all__ = [
    "Preview",
    "Reversibility",
    "SafetyLevel",
    "Tool",
    "ToolContext",
    "ToolExample",
    "ToolResult",
    "ToolSpec",
    "define_tool",
    "get_all_tools",
    "get_tool",
    "get_tool_descriptions",
    "initialize_tools",
    "nearest_names",
    "register_tool",
    "tool",
    "tool_to_schema",
    "validate_call",
]

TYPED_NAME = re.compile(r"[a-z0-9_-]{1,64}")
SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]{0,63}")
PARAMETER_TYPES = ("string", "boolean", "number", "integer", "object", "array")
_PARAMETER_KEYS = frozenset({"name", "type", "description", "enum", "items"})


class ToolOptions(TypedDict, total=False):
    """What `@tool` takes; what is left out follows from the function."""

    name: str
    description: str
    safety_level: SafetyLevel | str
    categories: Iterable[str]
    query_types: Mapping[str, Any]
    output_key: str
    examples: Iterable[ToolExample[Any, Any]]
    requires_identifier: bool
    returns_private_data: bool
    rate_limit_key: str
    rate_limit: str
    retry_safe: bool
    reversibility: Reversibility | str
    timeout: float
    accepts_overrides: bool
    secret: Iterable[str]
    spec: ToolSpec


class Declaration(TypedDict, total=False):
    """What `define_tool` takes beside name, description and parameters."""

    required: Sequence[str]
    safety_level: SafetyLevel | str
    categories: Sequence[str]
    handler: Required[Handler]


@overload
def tool(function: Handler, /) -> Tool[Any, Any]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Handler], Tool[Any, Any]]: ...
def tool(function: Handler | None = None, /, **options: Any) -> Tool[Any, Any] | Callable[[Handler], Tool[Any, Any]]:
    """Make a function a registered tool: `@tool` or `@tool(safety_level="dangerous", …)`."""

    def declare(handler: Handler) -> Tool[Any, Any]:
        return register_tool(_tool_from(handler, options))

    return declare if function is None else declare(function)


def define_tool(
    name: str, description: str, parameters: Sequence[Mapping[str, Any]], **declaration: Unpack[Declaration]
) -> Tool[Any, Any]:
    """Make a tool of a parameter list (dicts of name, type, description, enum?, items?), not yet registered.

    The handler takes one dict of arguments, and `context` if it names it. Raises ToolDefinitionError.
    """
    handler, required = declaration["handler"], list(declaration.get("required", ()))
    if not SNAKE_CASE.fullmatch(name):
        raise ToolDefinitionError(f"The tool name {name!r} must be snake_case: a-z, 0-9 and '_', a letter first.")
    if not description.strip():
        raise ToolDefinitionError(f"The tool {name} needs a description: models choose tools by it.")
    if not callable(handler):
        raise ToolDefinitionError(f"The handler of {name} must be a function of one dict.")
    schema = _schema_from(parameters, required)
    return Tool(
        name=name,
        description=description,
        handler=handler,
        bound=Binding(schema),
        safety_level=level_of(declaration.get("safety_level", "safe")),
        categories=tuple(declaration.get("categories", ())),
    )


def tool_to_schema(tool: Tool[Any, Any]) -> dict[str, Any]:
    """Return the tool as a function schema, the form that most providers read."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def validate_call(tool_name: str, query_type: str, params: Mapping[str, Any]) -> None:
    """Check a call before it runs; raise ValueError without the tool, QueryTypeUnsupported, ParameterError.

    Unknown keys are judged as the parameter model's own configuration says; running a call refuses them.
    """
    found = get_tool(tool_name)
    if found is None:
        raise ValueError(f"Tool '{tool_name}' not found in registry")
    adapters: Mapping[str, TypeAdapter[Any]] = {}
    if isinstance(found.binding, QueryBinding):
        adapters = found.binding.adapters
    if query_type not in adapters:
        raise QueryTypeUnsupported(query_type, tool_name, list(adapters))
    build(adapters[query_type], dict(params))


def _tool_from(handler: Handler, options: dict[str, Any]) -> Tool[Any, Any]:
    declared = dict(options)
    spec: ToolSpec | None = declared.pop("spec", None)
    if spec is not None:
        declared = {
            "name": spec.name,
            "description": spec.description or _first_line(handler),
            "query_types": spec.input_schema,
            "output_key": spec.output_key,
        } | declared
    declared.setdefault("name", handler.__name__)
    declared.setdefault("description", _first_line(handler))
    _judge_texts(declared["name"], declared["description"], needs_description=spec is None)
    models = declared.pop("query_types", None)
    return Tool(handler=handler, query_type_models=models, **declared)


def _judge_texts(name: str, description: str, *, needs_description: bool) -> None:
    if not TYPED_NAME.fullmatch(name):
        raise ToolDefinitionError(f"The tool name {name!r} must be 1 to 64 of a-z, 0-9, '_' and '-'.")
    if not int(needs_description) <= len(description.strip()) <= MAX_DESCRIPTION:
        raise ToolDefinitionError(f"The description of {name} must have 1 to {MAX_DESCRIPTION} characters.")


def _first_line(handler: Handler) -> str:
    return (handler.__doc__ or "").strip().partition("\n")[0].strip()


def _schema_from(parameters: Sequence[Mapping[str, Any]], required: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.get("name")
        if not isinstance(name, str) or not name or name in properties:
            raise ToolDefinitionError(f"Each parameter needs a name of its own; {name!r} is missing or given twice.")
        properties[name] = _property_from(parameter)
    missing = [name for name in required if name not in properties]
    if missing:
        raise ToolDefinitionError(f"required names parameters that do not exist: {', '.join(missing)}.")
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema if required else {key: value for key, value in schema.items() if key != "required"}


def _property_from(parameter: Mapping[str, Any]) -> dict[str, Any]:
    kind = parameter.get("type")
    if kind not in PARAMETER_TYPES:
        choices = ", ".join(PARAMETER_TYPES)
        raise ToolDefinitionError(f"The type of {parameter['name']} must be one of {choices}, not {kind!r}.")
    unknown = sorted(set(parameter) - _PARAMETER_KEYS)
    if unknown:
        raise ToolDefinitionError(f"The parameter {parameter['name']} has unknown keys: {', '.join(unknown)}.")
    schema = {key: value for key, value in parameter.items() if key != "name"}
    if kind == "array":
        schema.setdefault("items", {"type": "string"})
    return schema
