"""What a declared tool must fulfil: names, texts, options, examples. Every refusal names the tool, rule and value.

Judges when a tool is made, and its types once more when it is registered; never looks at a call.
"""

import difflib
import inspect
import re
from collections.abc import Iterable, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any, get_args, get_origin

from catalog.errors import ParameterError, ToolDefinitionError
from catalog.schemas.resolver import subschemas
from catalog.signatures import Binding, ModelBinding, identifier_in

if TYPE_CHECKING:
    from catalog.definitions import Tool, ToolExample

CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
TYPED_NAME = re.compile(r"[a-z0-9_-]{1,64}")
SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_TIMEOUT = 24 * 60 * 60
MAX_DESCRIPTION = 200
MAX_CATEGORY = 64
FLAGS = ("retry_safe", "requires_identifier", "returns_private_data", "accepts_overrides")


def judge_name(name: object, rule: re.Pattern[str] = CATALOG_NAME) -> None:
    """Raise ToolDefinitionError unless the name follows the rule of the way it is declared."""
    if not isinstance(name, str) or not rule.fullmatch(name):
        raise ToolDefinitionError(f"The tool name {name!r} must be {_RULES[rule]}.")


_RULES = {
    CATALOG_NAME: "1 to 64 letters, digits, '_' or '-'",
    TYPED_NAME: "1 to 64 of a-z, 0-9, '_' and '-'",
    SNAKE_CASE: "snake_case: 1 to 64 of a-z, 0-9 and '_', a letter first",
}


def judge_typed(tool: "Tool[Any, Any]") -> None:
    """Raise ToolDefinitionError unless a tool whose handler's types say what it takes has fit name and text.

    A tool with query types may go without a description: contract A gives it none by default.
    """
    judge_name(tool.name, TYPED_NAME)
    judge_description(tool.name, tool.description, least=0 if tool.query_type_models is not None else 1)


def judge_description(name: str, text: object, *, least: int = 1, most: int | None = MAX_DESCRIPTION) -> None:
    """Raise ToolDefinitionError unless a description is a text of this many characters."""
    length = len(text.strip()) if isinstance(text, str) else -1
    if not least <= length <= (length if most is None else most):
        found = f"{length} characters" if length >= 0 else repr(text)
        limits = "at least 1 character" if most is None else f"1 to {most} characters"
        raise ToolDefinitionError(f"The description of {name} must have {limits}, not {found}: models choose by it.")


def words_of(words: object, what: str, name: str) -> tuple[str, ...]:
    """Return words that an author listed, each once; raise ToolDefinitionError for one text or for other things."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ToolDefinitionError(f"{what} of {name} must be a list of texts, not {words!r}.")
    listed = tuple(dict.fromkeys(words))
    strange = [word for word in listed if not isinstance(word, str) or not 0 < len(word.strip()) <= MAX_CATEGORY]
    if strange:
        raise ToolDefinitionError(f"{what} of {name} must be texts of 1 to {MAX_CATEGORY} characters: {strange[0]!r}.")
    return listed


def judge_options(tool: "Tool[Any, Any]") -> None:
    """Raise ToolDefinitionError for a flag, a timeout, a secret or an identifier that cannot be."""
    _judge_flags(tool)
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
        _judge_identifier(tool)
    _judge_rejection(tool)
    text = tool.input_schema.get("properties", {}).get(tool.hunks, {})
    if tool.hunks is not None and text.get("type") != "string":
        raise ToolDefinitionError(f"hunks of {tool.name} must name a parameter that is a text, not {tool.hunks!r}.")


def _judge_flags(tool: "Tool[Any, Any]") -> None:
    for flag in FLAGS:
        value = getattr(tool, flag)
        if not isinstance(value, bool):
            raise ToolDefinitionError(f"{flag} of {tool.name} must be True or False, not {value!r}.")


def judge_known(given: Iterable[str], known: Iterable[str], how: str) -> None:
    """Raise ToolDefinitionError for an option that a way of declaring does not have, with the nearest it has."""
    options = sorted(known)
    for name in given:
        if name not in options:
            nearest = difflib.get_close_matches(name, options, n=1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"it has {', '.join(options)}."
            raise ToolDefinitionError(f"{how} has no option '{name}'; {hint}")


def _judge_rejection(tool: "Tool[Any, Any]") -> None:
    """Raise ToolDefinitionError where the words for a rejection name something else than a required parameter."""
    try:
        named = {name for _, name, _, _ in Formatter().parse(tool.when_rejected) if name is not None}
    except (TypeError, ValueError):
        named = {tool.when_rejected}
    if not named <= set(tool.input_schema.get("required", ())):
        raise ToolDefinitionError(
            f"when_rejected of {tool.name} may only name required parameters, as {{path}}: {tool.when_rejected!r}."
        )


def _judge_identifier(tool: "Tool[Any, Any]") -> None:
    for schema in (tool.query_types or {"": tool.input_schema}).values():
        if identifier_in(schema, tool.identifier) is None:
            named = f"'{tool.identifier}' is no parameter of it" if tool.identifier else "it has no parameters"
            raise ToolDefinitionError(f"{tool.name} requires an identifier, but {named}.")


def judge_examples(tool: "Tool[Any, Any]", result_type: Any) -> None:
    """Raise ToolDefinitionError unless every example takes what the tool takes and gives what it gives."""
    for example in tool.examples:
        _judge_example(example, tool, result_type)


def _judge_example(example: "ToolExample[Any, Any]", tool: "Tool[Any, Any]", result_type: Any) -> None:
    text = getattr(example, "description", example)
    if text is example or not isinstance(text, str) or not 1 <= len(text.strip()) <= MAX_DESCRIPTION:
        raise ToolDefinitionError(
            f"An example of {tool.name} must be a ToolExample with a description of 1 to {MAX_DESCRIPTION} characters,"
            f" not {text!r}."
        )
    if not _fits_params(example.input, tool.binding):
        kind = type(example.input).__name__
        raise ToolDefinitionError(f"The input of the example {text!r} is not what {tool.name} takes: {kind}.")
    if not _fits_result(example.output, result_type):
        kind = type(example.output).__name__
        raise ToolDefinitionError(f"The output of the example {text!r} is not what {tool.name} gives: {kind}.")


def judge_types(tool: "Tool[Any, Any]", declared: Sequence[Any], result_type: Any) -> None:
    """Raise ToolDefinitionError unless the types written as `Tool[Params, Result]` are those of the handler."""
    params, result = declared
    binding = tool.binding
    if isinstance(binding, ModelBinding) and is_concrete(params) and binding.params_type is not params:
        raise ToolDefinitionError(
            f"{tool.name} is declared to take {_named(params)}, but its handler takes {_named(binding.params_type)}."
        )
    if is_concrete(result) and is_concrete(result_type) and result_type != result:
        raise ToolDefinitionError(
            f"{tool.name} is declared to give {_named(result)}, but its handler gives {_named(result_type)}."
        )


def is_concrete(kind: Any) -> bool:
    """Say whether an annotation names a type to compare: not Any, not a type variable, not missing."""
    return (
        kind is not Any and kind is not inspect.Parameter.empty and (isinstance(kind, type) or bool(get_origin(kind)))
    )


def _named(kind: Any) -> str:
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
