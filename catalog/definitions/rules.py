"""Rules for declared tools: names, descriptions, options, examples, types. All functions raise ToolDefinitionError."""

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, Protocol, get_args, get_origin

from catalog.definitions.binding import Binding, ModelBinding, identifier_parameter
from catalog.errors import ParameterError, ToolDefinitionError
from catalog.schemas.resolver import subschemas


class DeclaredTool(Protocol):
    name: str
    description: str
    query_type_models: Mapping[str, Any] | None
    timeout: float
    secret: tuple[str, ...]
    identifier: str | None
    requires_identifier: bool
    hunks: str | None
    when_rejected: str
    examples: tuple[Any, ...]
    binding: Binding

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of the arguments."""

    @property
    def query_types(self) -> Mapping[str, dict[str, Any]] | None:
        """The parameter schemas by query type; None for a tool without query types."""


CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
TYPED_NAME = re.compile(r"[a-z0-9_-]{1,64}")
SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_TIMEOUT = 24 * 60 * 60
MAX_TOOL_DESCRIPTION = 200
MAX_CATEGORY = 64
BOOLEAN_OPTIONS = ("retry_safe", "requires_identifier", "returns_private_data", "accepts_overrides")


def validate_name(name: object, rule: re.Pattern[str] = CATALOG_NAME) -> None:
    if not isinstance(name, str) or not rule.fullmatch(name):
        raise ToolDefinitionError(f"The tool name {name!r} must be {_NAME_RULES[rule]}.")


_NAME_RULES = {
    CATALOG_NAME: "1 to 64 letters, digits, '_' or '-'",
    TYPED_NAME: "1 to 64 of a-z, 0-9, '_' and '-'",
    SNAKE_CASE: "snake_case: 1 to 64 of a-z, 0-9 and '_', a letter first",
}


def validate_typed_tool(tool: DeclaredTool) -> None:
    """Check name and description. Only a tool with query types may have no description, as contract A allows."""
    validate_name(tool.name, TYPED_NAME)
    validate_description(tool.name, tool.description, least=0 if tool.query_type_models is not None else 1)


def validate_description(name: str, text: object, *, least: int = 1, most: int | None = MAX_TOOL_DESCRIPTION) -> None:
    length = len(text.strip()) if isinstance(text, str) else -1
    if not least <= length <= (length if most is None else most):
        found = f"{length} characters" if length >= 0 else repr(text)
        limits = "at least 1 character" if most is None else f"1 to {most} characters"
        raise ToolDefinitionError(
            f"The description of {name} must have {limits}, not {found}: models choose tools by their descriptions."
        )


def unique_strings(words: object, what: str, name: str) -> tuple[str, ...]:
    """Return a list of strings without duplicates. Raises ToolDefinitionError for a bare string or other types."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ToolDefinitionError(f"{what} of {name} must be a list of strings, not {words!r}.")
    listed = tuple(dict.fromkeys(words))
    strange = [word for word in listed if not isinstance(word, str) or not 0 < len(word.strip()) <= MAX_CATEGORY]
    if strange:
        raise ToolDefinitionError(
            f"{what} of {name} must be strings of 1 to {MAX_CATEGORY} characters, not {strange[0]!r}."
        )
    return listed


def validate_options(tool: DeclaredTool) -> None:
    """Raise ToolDefinitionError for an invalid flag, timeout, secret or identifier."""
    for flag in BOOLEAN_OPTIONS:
        value = getattr(tool, flag)
        if not isinstance(value, bool):
            raise ToolDefinitionError(f"{flag} of {tool.name} must be True or False, not {value!r}.")
    seconds: object = tool.timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_TIMEOUT:
        raise ToolDefinitionError(
            f"The timeout of {tool.name} must be more than 0 and at most {MAX_TIMEOUT} seconds, not {seconds!r}."
        )
    known = {name for _, schema in subschemas(tool.input_schema) for name in schema.get("properties", ())}
    unknown = sorted(set(tool.secret) - known)
    if unknown:
        raise ToolDefinitionError(f"secret names parameters that {tool.name} does not have: {', '.join(unknown)}.")
    if tool.requires_identifier:
        _validate_identifier(tool)
    _validate_rejection_text(tool)
    text = tool.input_schema.get("properties", {}).get(tool.hunks, {})
    if tool.hunks is not None and text.get("type") != "string":
        raise ToolDefinitionError(f"hunks of {tool.name} must name a text parameter, not {tool.hunks!r}.")


def validate_option_names(given: Iterable[str], known: Iterable[str], how: str) -> None:
    """Raise ToolDefinitionError for an unknown option, suggesting the nearest known one."""
    options = sorted(known)
    for name in given:
        if name not in options:
            nearest = difflib.get_close_matches(name, options, n=1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"the options are {', '.join(options)}."
            raise ToolDefinitionError(f"{how} has no option '{name}'; {hint}")


def _validate_rejection_text(tool: DeclaredTool) -> None:
    try:
        named = {name for _, name, _, _ in Formatter().parse(tool.when_rejected) if name is not None}
    except (TypeError, ValueError):
        named = {tool.when_rejected}
    if not named <= set(tool.input_schema.get("required", ())):
        raise ToolDefinitionError(
            f"when_rejected of {tool.name} may only name required parameters, as {{path}}: {tool.when_rejected!r}."
        )


def _validate_identifier(tool: DeclaredTool) -> None:
    for schema in (tool.query_types or {"": tool.input_schema}).values():
        if identifier_parameter(schema, tool.identifier) is None:
            named = f"'{tool.identifier}' is not one of its parameters" if tool.identifier else "it has no parameters"
            raise ToolDefinitionError(f"{tool.name} requires an identifier, but {named}.")


def validate_examples(tool: DeclaredTool, result_type: Any) -> None:
    for example in tool.examples:
        text = getattr(example, "description", example)
        if text is example or not isinstance(text, str) or not 1 <= len(text.strip()) <= MAX_TOOL_DESCRIPTION:
            raise ToolDefinitionError(
                f"An example of {tool.name} must be a ToolExample with a description of 1 to {MAX_TOOL_DESCRIPTION}"
                f" characters, not {text!r}."
            )
        if not _fits_params(example.input, tool.binding):
            kind = type(example.input).__name__
            raise ToolDefinitionError(
                f"The input of the example {text!r} does not match the parameters of {tool.name}: {kind}."
            )
        if not _fits_result(example.output, result_type):
            kind = type(example.output).__name__
            raise ToolDefinitionError(
                f"The output of the example {text!r} does not match the result type of {tool.name}: {kind}."
            )


def validate_types(tool: DeclaredTool, declared: Sequence[Any], result_type: Any) -> None:
    """Raise ToolDefinitionError unless the handler has the types that `Tool[Params, Result]` declares."""
    params, result = declared
    binding = tool.binding
    if isinstance(binding, ModelBinding) and is_concrete_type(params) and binding.params_type is not params:
        raise ToolDefinitionError(
            f"{tool.name} is declared to take {_type_name(params)}, but its handler takes"
            f" {_type_name(binding.params_type)}."
        )
    if is_concrete_type(result) and is_concrete_type(result_type) and result_type != result:
        raise ToolDefinitionError(
            f"{tool.name} is declared to return {_type_name(result)}, but its "
            f"handler returns {_type_name(result_type)}."
        )


def is_concrete_type(kind: Any) -> bool:
    """Return whether an annotation can be compared: False for Any, type variables and missing annotations."""
    return (
        kind is not Any and kind is not inspect.Parameter.empty and (isinstance(kind, type) or bool(get_origin(kind)))
    )


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _fits_params(value: object, binding: Binding) -> bool:
    if isinstance(binding.params_type, type) and binding.params_type is not dict:
        return type(value) is binding.params_type
    if isinstance(binding.params_type, tuple):
        return type(value) in binding.params_type
    try:
        binding.check(value, "") if isinstance(value, dict) else None
    except ParameterError:
        return False
    return isinstance(value, dict)


def _fits_result(value: object, kind: Any) -> bool:
    if kind is type(None) or kind is None:
        return value is None
    if get_origin(kind) in (list, tuple):
        inner = get_args(kind)[0]
        return isinstance(value, list | tuple) and all(_fits_result(each, inner) for each in value)
    return type(value) is kind if isinstance(kind, type) and kind is not inspect.Parameter.empty else True
