"""JSON Schema validation on the hot path. Messages never repeat the validated value: it may be a secret."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

from catalog.core.canonical_json import MAX_SAFE_INTEGER, canonical_text, check_json, json_type_of
from catalog.core.json_paths import dotted
from catalog.errors import MalformedJSON, ParameterError, SchemaProblem
from catalog.schemas.acceptance import check_schema, compile_unbounded
from catalog.schemas.defaults import SchemaDefaults
from catalog.schemas.resolver import subschemas

__all__ = [
    "ArgumentProblem",
    "Validator",
    "check_json_arguments",
    "check_schema",
    "compile_schema",
    "raise_for_problems",
    "validate_tool_args",
]

MAX_ARGUMENT_PROBLEMS = 50

_TYPE_NAMES = {
    "string": "a text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """One error in the arguments: dotted path, keyword, and a sentence."""

    path: str
    code: str
    message: str


class Validator:
    """One compiled schema; thread-safe. Raises SchemaProblem for a schema that is not accepted."""

    __slots__ = ("_compiled", "_costs", "_known", "_unbounded", "defaults", "schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.defaults = SchemaDefaults(schema)
        self._compiled, self._costs = check_schema(schema)
        self._unbounded: jsonschema_rs.Draft202012Validator | None = None
        self._known = sorted({name for _, sub in subschemas(schema) for name in sub.get("properties", ())})

    def accepts(self, value: object) -> bool:
        """Return whether the value is valid and can be validated quickly."""
        return self._costs.allows(value) and (
            self._compiled.is_valid(value) or self._compiled_for(value).is_valid(value)
        )

    def _compiled_for(self, value: object) -> jsonschema_rs.Draft202012Validator:
        """Return the compiled schema for a value; without integer bounds if all large numbers in it are integers."""
        numbers = list(_large_numbers(value))
        if not numbers or float in map(type, numbers):
            return self._compiled
        if self._unbounded is None:
            self._unbounded = compile_unbounded(self.schema)
        return self._unbounded

    def explains(self, value: object) -> bool:
        """Return whether the value is small enough to explain every error."""
        return self._costs.allows(value) and self._costs.explains(value)

    def problems(self, value: object) -> list[ArgumentProblem]:
        """Return the errors of the value, at most MAX_PROBLEMS; empty if it is valid."""
        if not self._costs.allows(value):
            return [ArgumentProblem("", "too_complex", "The arguments are too large to validate against this schema.")]
        if self._compiled.is_valid(value):
            return []
        compiled = self._compiled_for(value)
        if compiled is not self._compiled and compiled.is_valid(value):
            return []
        if not self._costs.explains(value):
            return [
                ArgumentProblem(
                    "",
                    "invalid",
                    "The arguments are invalid, but too large to report each error. Send fewer values to see them.",
                )
            ]
        found = (problem for error in compiled.iter_errors(value) for problem in self._explain(error))
        return list(islice(found, MAX_ARGUMENT_PROBLEMS))

    def _explain(self, error: jsonschema_rs.ValidationError) -> Iterator[ArgumentProblem]:
        code, facts = error.kind.name, error.kind.as_dict()
        if code in ("anyOf", "oneOf") and facts.get("context"):
            yield from self._explain_choice(error, facts["context"])
        elif code in ("additionalProperties", "unevaluatedProperties"):
            for name in facts["unexpected"]:
                place: Any = self.schema
                for step in error.schema_path[:-1]:
                    place = place[step]
                nearest = difflib.get_close_matches(name, place.get("properties") or self._known, n=1)
                yield ArgumentProblem(
                    dotted([*error.instance_path, name]),
                    code,
                    "Unknown argument" + (f". Did you mean '{nearest[0]}'?" if nearest else "."),
                )
        elif code == "required":
            yield ArgumentProblem(dotted([*error.instance_path, facts["property"]]), code, "This is required.")
        else:
            yield ArgumentProblem(dotted(error.instance_path), code, _problem_sentence(code, facts, error.instance))

    def _explain_choice(
        self,
        error: jsonschema_rs.ValidationError,
        branches: Sequence[Sequence[jsonschema_rs.ValidationError]],
    ) -> Iterator[ArgumentProblem]:
        """Explain the branch that fits best: its type is right, its constants match, its errors are fewest."""
        here = error.instance_path
        closer = [
            branch
            for branch in branches
            if not any(problem.kind.name == "type" and list(problem.instance_path) == list(here) for problem in branch)
        ]
        viable = [branch for branch in closer if not any(problem.kind.name == "const" for problem in branch)]
        by_count = sorted(viable or closer, key=len)
        if len(by_count) == 1 or (by_count and len(by_count[0]) < len(by_count[1])):
            for problem in by_count[0]:
                yield from self._explain(problem)
            return
        types = [] if closer else [name for branch in branches for name in branch[0].kind.as_dict().get("types", ())]
        message = _type_sentence(types, error.instance) if types else "This matches none of the allowed forms."
        yield ArgumentProblem(dotted(here), "type" if types else error.kind.name, message)


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    try:
        text = canonical_text(schema)
    except MalformedJSON as problem:
        raise SchemaProblem(problem.message, problem.path) from None
    return _compile_cached(text)


def validate_tool_args(schema: Mapping[str, Any], args: Any) -> Any:
    """Return args if they are valid. Raises ParameterError naming the path."""
    raise_for_problems(compile_schema(schema).problems(check_json_arguments(args)))
    return args


def check_json_arguments(args: object) -> Any:
    """Return args if they are JSON within the limits. Raises ParameterError naming the path."""
    try:
        return check_json(args)
    except MalformedJSON as problem:
        raise_for_problems([ArgumentProblem(problem.path, problem.code, problem.message)])
        raise


def raise_for_problems(problems: Sequence[ArgumentProblem]) -> None:
    """Raise one ParameterError for these errors, with `field` and `errors`; do nothing if there are none."""
    if not problems:
        return
    first = problems[0]
    errors = [{"path": each.path, "code": each.code, "message": each.message} for each in problems]
    raise ParameterError(first.message, {"field": first.path or None, "errors": errors})


@lru_cache(maxsize=4096)
def _compile_cached(text: str) -> Validator:
    return Validator(json.loads(text))


def _large_numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _large_numbers(each)
    elif isinstance(value, int | float) and abs(value) > MAX_SAFE_INTEGER:
        yield value


def _problem_sentence(code: str, facts: dict[str, Any], value: object) -> str:
    if code == "type":
        return _type_sentence(facts["types"], value)
    if code == "enum":
        return f"This must be one of {_format_choices(facts['options'])}."
    if code == "const":
        return f"This must be {_format_choices([facts['expected_value']])}."
    template = _SENTENCE_TEMPLATES.get(code, "This violates the schema's rule '{code}'.")
    limit = facts.get("limit")
    one, several = _UNIT_NAMES.get(code[3:], ("", ""))
    return template.format(code=code, **facts, things=(one if limit == 1 else several))


_SENTENCE_TEMPLATES = {
    "minLength": "This needs at least {limit} {things}.",
    "maxLength": "This may have at most {limit} {things}.",
    "minItems": "This needs at least {limit} {things}.",
    "maxItems": "This may have at most {limit} {things}.",
    "minProperties": "This needs at least {limit} {things}.",
    "maxProperties": "This may have at most {limit} {things}.",
    "minimum": "This must be at least {limit}.",
    "maximum": "This must be at most {limit}.",
    "exclusiveMinimum": "This must be more than {limit}.",
    "exclusiveMaximum": "This must be less than {limit}.",
    "multipleOf": "This must be a multiple of {multiple_of}.",
    "pattern": "This must match the pattern {pattern}.",
    "format": "This must be a valid {format}.",
    "uniqueItems": "All entries must be different.",
    "falseSchema": "Nothing is allowed here.",
}
_UNIT_NAMES = {
    "Length": ("character", "characters"),
    "Items": ("entry", "entries"),
    "Properties": ("member", "members"),
}


def _type_sentence(types: Sequence[str], value: object) -> str:
    names = list(dict.fromkeys(_TYPE_NAMES.get(name, name) for name in types))
    return f"This must be {' or '.join(names)}, not {_TYPE_NAMES[json_type_of(value)]}."


def _format_choices(options: Sequence[Any]) -> str:
    texts = [canonical_text(option) for option in options[:12]]
    return ", ".join([*texts, "…"] if len(options) > 12 else texts)
