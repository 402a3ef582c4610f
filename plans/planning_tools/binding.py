"""How arguments meet the planning tools: judged one by one, in the words that agents of sessions know."""

from collections.abc import Iterator
from typing import Any

from catalog.definitions.binding import ModelBinding
from catalog.errors import ParameterError
from catalog.schemas import Problem

_TYPES: dict[str, tuple[type, str]] = {
    "string": (str, "text"),
    "integer": (int, "an integer"),
    "array": (list, "a list"),
}


class Unfit(ParameterError):
    """Arguments that a planning tool does not take; the message names the field itself."""

    def user_message(self) -> str:
        """Return the message as it is."""
        return self.message


class PlanningBinding(ModelBinding):
    """The binding of one document: missing fields, nulls, types and choices in their order, then unknown keys."""

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        """Raise ParameterError unless the arguments fit."""
        problems = list(self._problems(arguments))
        if problems:
            errors = [{"path": each.path, "code": each.code, "message": each.message} for each in problems]
            raise Unfit(problems[0].message, {"field": problems[0].path or None, "errors": errors})

    def _problems(self, arguments: dict[str, Any]) -> Iterator[Problem]:
        fields = self.input_schema["properties"]
        for name, schema in fields.items():
            if name in arguments:
                yield from _misfits(name, arguments[name], schema)
            elif name in self.input_schema.get("required", ()):
                yield Problem(name, "required", f"Missing required field: {name!r}")
        unknown = [name for name in arguments if name not in fields]
        if unknown:
            yield Problem(unknown[0], "additionalProperties", f"Extra keys not permitted: {unknown}")


def _misfits(path: str, value: object, schema: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a value: at most one thing, or one for each entry of a list."""
    choices = schema.get("anyOf", [schema])
    if value is None:
        if all(choice.get("type") != "null" for choice in choices):
            yield Problem(path, "type", f"{path}: value cannot be None")
        return
    wanted = choices[0]
    if "enum" in wanted:
        if value not in wanted["enum"]:
            yield Problem(path, "enum", f"{path}: expected one of {wanted['enum']}")
        return
    kind, name = _TYPES[wanted["type"]]
    if not isinstance(value, kind) or isinstance(value, bool):
        yield Problem(path, "type", f"{path}: expected {name}")
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _misfits(f"{path}.{number}", entry, wanted["items"])
