"""Ways to declare a tool: the `@tool` decorator, a list of parameters, a ToolSpec."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict, Unpack, overload

from pydantic import TypeAdapter

from catalog.definitions.binding import Binding, Handler, QueryBinding, build_params
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.definitions.rules import (
    SNAKE_CASE,
    unique_strings,
    validate_description,
    validate_name,
    validate_option_names,
)
from catalog.definitions.tool import Tool, ToolExample, ToolSpec
from catalog.errors import ParameterError, QueryTypeUnsupported, ToolDefinitionError, naming_tool
from catalog.results import values_to_result
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.styles.class_tools import BaseTool
from catalog.tools.registry import (
    get_tool,
    register_tool,
)

PARAMETER_TYPES = ("string", "boolean", "number", "integer", "object", "array")
_PARAMETER_KEYS = frozenset({"name", "type", "description", "enum", "items"})


class ToolOptions(TypedDict, total=False):
    """Options of `@tool`; defaults are derived from the function."""

    name: str
    description: str
    safety_level: SafetyLevel | str
    categories: Iterable[str]
    query_types: Mapping[str, Any]
    output_key: str
    examples: Iterable[ToolExample[Any, Any]]
    requires_identifier: bool
    identifier: str
    returns_private_data: bool
    rate_limit_key: str
    rate_limit: str
    retry_safe: bool
    reversibility: Reversibility | str
    timeout: float
    accepts_overrides: bool
    secret: Iterable[str]
    hunks: str
    when_rejected: str
    spec: ToolSpec


class DefineToolOptions(TypedDict, total=False):
    """Options of `define_tool` beyond name, description and parameters."""

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
        with naming_tool(str(declared["name"])):
            validate_option_names(options, ToolOptions.__annotations__, "@tool")
        declared.setdefault("description", _first_line(handler))
        models = declared.pop("query_types", None)
        return register_tool(Tool(handler=handler, query_type_models=models, **declared))

    return declare if function is None else declare(function)


@dataclass(eq=False, kw_only=True)
class ParameterListTool(Tool[Any, Any]):
    """A tool made by `define_tool`, with its parameter list and the names of the required ones."""

    parameters: tuple[dict[str, Any], ...]
    required: tuple[str, ...]


def define_tool(
    name: str, description: str, parameters: Sequence[Mapping[str, Any]], **declaration: Unpack[DefineToolOptions]
) -> ParameterListTool:
    """Make a tool from a parameter list (dicts of name, type, description, enum?, items?), without registering it.

    The handler takes one dict of arguments, and `context` if it has a parameter of this name; it returns any value, or
    a tuple of a result and an error text or None. Raises ToolDefinitionError naming the tool, the rule and the value.
    """
    validate_name(name, SNAKE_CASE)
    validate_description(name, description, most=None)
    with naming_tool(name):
        validate_option_names(declaration, DefineToolOptions.__annotations__, "define_tool")
    handler: object = declaration.get("handler")
    if not callable(handler) or not _takes_one_dict(handler):
        raise ToolDefinitionError(f"The handler of {name} must be a function of one dict, not {handler!r}.")
    required = unique_strings(declaration.get("required", ()), "The required parameters", name)
    with naming_tool(name):
        bound = Binding(_build_schema(name, parameters, required))
    return ParameterListTool(
        parameters=tuple(dict(each) for each in parameters),
        required=required,
        name=name,
        description=description,
        handler=handler,
        bound=bound,
        reads=values_to_result,
        safety_level=declaration.get("safety_level", SafetyLevel.SAFE),  # type: ignore[arg-type] # checked by Tool
        categories=declaration.get("categories", ()),  # type: ignore[arg-type] # as above
    )


def _takes_one_dict(handler: Handler) -> bool:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return True  # written in C, without a signature
    context = {"context": None} if "context" in signature.parameters else {}
    try:
        signature.bind({}, **context)
    except TypeError:
        return False
    return True


def tool_to_schema(tool: Tool[Any, Any] | BaseTool) -> dict[str, Any]:
    """Return the tool as a function schema, the format most providers use."""
    tool = tool.as_tool() if isinstance(tool, BaseTool) else tool
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def validate_call(tool_name: str, query_type: str, params: Mapping[str, Any]) -> None:
    """Check a call before it runs. Raises ValueError for an unknown tool, QueryTypeUnsupported, ParameterError.

    Here the parameter model decides whether unknown keys are allowed; when a call runs, they are always refused.
    """
    found = get_tool(tool_name)
    if found is None:
        raise ValueError(f"Tool '{tool_name}' not found in registry")
    binding = found.binding
    adapters: Mapping[str, TypeAdapter[Any]] = binding.adapters if isinstance(binding, QueryBinding) else {}
    if query_type not in list(adapters):
        raise QueryTypeUnsupported(query_type, tool_name, list(adapters))
    given: object = params  # callers may pass anything
    if not isinstance(given, Mapping):
        raise_for_problems([ArgumentProblem("", "type", "The parameters must be an object.")])
        raise ParameterError("The parameters must be an object.")
    build_params(adapters[query_type], dict(given), names=(found.query_types or {})[query_type]["properties"])


def _first_line(handler: Handler) -> str:
    return (handler.__doc__ or "").strip().partition("\n")[0].strip()


def _build_schema(tool: str, parameters: object, required: Sequence[str]) -> dict[str, Any]:
    if not isinstance(parameters, list | tuple):
        raise ToolDefinitionError(f"The parameters of {tool} must be a list of dicts, not {parameters!r}.")
    properties: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.get("name") if isinstance(parameter, Mapping) else None
        if not isinstance(name, str) or not name or name in properties:
            raise ToolDefinitionError(
                f"Each parameter of {tool} must be a dict with a unique name; {name!r} is missing or duplicate."
            )
        kind, unknown = parameter.get("type"), sorted(str(key) for key in set(parameter) - _PARAMETER_KEYS)
        if kind not in PARAMETER_TYPES:
            choices = ", ".join(PARAMETER_TYPES)
            raise ToolDefinitionError(f"The type of {name} of {tool} must be one of {choices}, not {kind!r}.")
        if unknown:
            raise ToolDefinitionError(f"The parameter {name} of {tool} has unknown keys: {', '.join(unknown)}.")
        if not parameter.get("enum", True):
            raise ToolDefinitionError(f"The enum of {name} of {tool} must not be empty.")
        properties[name] = {key: value for key, value in parameter.items() if key != "name"}
        if kind == "array":
            properties[name].setdefault("items", {"type": "string"})
    missing = [name for name in required if name not in properties]
    if missing:
        raise ToolDefinitionError(f"required of {tool} names parameters that do not exist: {', '.join(missing)}.")
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return schema if required else {key: value for key, value in schema.items() if key != "required"}
