"""Late binding: connects tool specifications to those implementations in a library that agree with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from catalog.core.canonical_json import canonical_text
from catalog.definitions.binding import Binding
from catalog.definitions.levels import SafetyLevel, parse_level
from catalog.definitions.tool import Tool
from catalog.errors import ToolDefinitionError
from catalog.schemas import compile_schema
from catalog.styles.gram.specification import ToolSpecification

Schema = dict[str, Any]
LoadedTool = Tool[Any, Any]


class SchemaTool(Tool[Any, Any]):
    """A tool made by `create_tool` from a JSON Schema and a function."""

    @property
    def schema(self) -> Schema:
        return self.input_schema

    @property
    def invoke(self) -> Callable[..., Any]:
        function: Callable[..., Any] = self.handler
        return function


class CreateToolOptions(TypedDict, total=False):
    """Options of `create_tool` beyond those of the specification."""

    safety_level: SafetyLevel | str
    categories: Iterable[str]


class StrictBinding(Binding):
    """Passes arguments as one dict. The schema stays as its author wrote it, but undeclared keys are refused."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.validator = compile_schema(_close_objects(schema))


def create_tool(
    name: str, description: str, schema: Schema, invoke: Callable[..., Any], **declaration: Unpack[CreateToolOptions]
) -> SchemaTool:
    """Make a tool from a JSON Schema and a function of one dict, without registering it. Raises ToolDefinitionError.

    `invoke` also receives `context` if it has a parameter of this name; it may be a coroutine function.
    """
    _validate_arguments(name, description, schema, invoke)
    return SchemaTool(
        name=name,
        description=description,
        handler=invoke,
        bound=StrictBinding(schema),
        safety_level=parse_level(declaration.get("safety_level", "safe")),
        categories=tuple(declaration.get("categories", ())),
    )


@dataclass(frozen=True, slots=True)
class ToolLibrary:
    """Immutable mapping of names to implementations."""

    tools: Mapping[str, LoadedTool] = field(default_factory=lambda: MappingProxyType({}))

    def register(self, name: str, tool: LoadedTool) -> "ToolLibrary":
        """Return a library with this tool added or replaced. Raises ToolDefinitionError."""
        if not isinstance(tool, Tool):
            raise ToolDefinitionError(f"A library accepts tools made by create_tool, not {type(tool).__name__}.")
        if name != tool.name:
            raise ToolDefinitionError(f"The tool '{tool.name}' must be registered under its name, not as {name!r}.")
        return ToolLibrary(MappingProxyType({**self.tools, name: tool}))

    def lookup(self, name: str) -> LoadedTool | None:
        return self.tools.get(name)

    def bind(self, specification: ToolSpecification) -> LoadedTool | None:
        """Return the tool that implements a specification, or None; `why_not` returns the reason."""
        return None if self.why_not(specification) else self.tools[specification.name]

    def bind_all(self, specifications: Iterable[ToolSpecification]) -> list[LoadedTool]:
        """Return the specified tools. Raises ToolDefinitionError for one listed twice or that cannot be bound."""
        bound: dict[str, LoadedTool] = {}
        for specification in specifications:
            name, reason = specification.name, self.why_not(specification)
            if name in bound:
                raise ToolDefinitionError(
                    f"Tool names must be unique within agent's tool list: '{name}' is listed twice."
                )
            if reason:
                raise ToolDefinitionError(f"Tool '{name}' not found in library or validation failed: {reason}")
            bound[name] = self.tools[name]
        return list(bound.values())

    def why_not(self, specification: ToolSpecification) -> str:
        """Return why a specification cannot be bound; empty if it can."""
        tool = self.tools.get(specification.name)
        if tool is None:
            known = ", ".join(self.tools) or "nothing"
            return f"The library has no tool '{specification.name}'; it has {known}."
        if tool.description != specification.description:
            return f"The description differs: specified {specification.description!r}, found {tool.description!r}."
        difference = next(_differences(specification.schema, tool.input_schema), "")
        return f"The schema differs: {difference}." if difference else ""


def _validate_arguments(name: object, description: object, schema: object, invoke: object) -> None:
    if not name:
        raise ToolDefinitionError("Tool name cannot be empty")
    if not isinstance(description, str) or not description.strip():
        raise ToolDefinitionError("Tool description cannot be empty")
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ToolDefinitionError(f"Schema must be an object: the schema of {name} must describe a JSON object.")
    if not callable(invoke):
        raise ToolDefinitionError(f"invoke of {name} must be a function of one dict, not {type(invoke).__name__}.")


def _differences(specified: object, found: object, path: str = "") -> Iterator[str]:
    if isinstance(specified, dict) and isinstance(found, dict):
        for key in sorted(specified.keys() | found.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in found:
                yield f"{inner} is specified and not found"
            elif key not in specified:
                yield f"{inner} is found and not specified"
            else:
                yield from _differences(specified[key], found[key], inner)
    elif canonical_text(specified) != canonical_text(found):
        yield f"{path} is specified as {canonical_text(specified)}, and found as {canonical_text(found)}"


def _close_objects(schema: Schema) -> Schema:
    """Refuse undeclared members in all objects that declare properties, unless an object itself allows others.

    Unions are left open, because each branch knows only its own members.
    """
    closed = dict(schema)
    if isinstance(schema.get("properties"), dict):
        closed["properties"] = {name: _close_part(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        closed["items"] = _close_part(schema["items"])
    if "properties" in schema and not {"additionalProperties", "unevaluatedProperties"} & schema.keys():
        closed["unevaluatedProperties"] = False
    return closed


def _close_part(part: Any) -> Any:
    return _close_objects(part) if isinstance(part, dict) else part
