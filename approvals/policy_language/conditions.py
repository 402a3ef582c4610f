"""Conditions on the arguments of a call, as policies and grants have them: path, operator, value.

`check_rows` refuses what cannot be stored: unknown operators, values that do not go with them, paths that lead nowhere.
All rows of a list must hold. They become one JSON Schema, compiled once with an engine whose patterns are linear in the
text. A path that leads nowhere satisfies `missing`, `not_equals` and `not_in` (nothing there is equal), and no other.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs

from catalog.core.canonical_json import canonical_text, check_json
from catalog.errors import MalformedJSON, SchemaProblem
from catalog.schemas import Problem, refuse
from catalog.schemas.acceptance import states_of

MAX_ROWS = 20
MAX_PATH = 200
MAX_STEPS = 16
MAX_PLACE = 99
MAX_VALUE = 4096
MAX_TEXT = 1024
MAX_CHOICES = 100

OPERATORS = (
    "equals",
    "not_equals",
    "in",
    "not_in",
    "starts_with",
    "ends_with",
    "contains",
    "matches",
    "less_than",
    "greater_than",
    "exists",
    "missing",
)
WITHOUT_VALUE = frozenset({"exists", "missing"})


@dataclass(frozen=True, slots=True)
class Row:
    """One condition; the value is kept as canonical JSON, so that rows can be compared and remembered."""

    path: str
    operator: str
    text: str

    @property
    def value(self) -> Any:
        """What the operator compares with."""
        return json.loads(self.text)


def check_rows(rows: object, path: str = "arguments") -> list[dict[str, Any]]:
    """Return the rows in their plain form; raise ParameterError, its paths under `path`: arguments.0.operator."""
    if not isinstance(rows, list):
        refuse([Problem(path, "type", "This must be a list of rows with path, operator and value.")])
        raise AssertionError  # refused above
    if len(rows) > MAX_ROWS:
        refuse([Problem(path, "too_many", f"At most {MAX_ROWS} rows are taken; make two policies of it.")])
    refuse([problem for number, row in enumerate(rows) for problem in _problems(row, f"{path}.{number}")])
    return [_plain(row) for row in rows]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {"path": row["path"], "operator": row["operator"]}
    return plain if row["operator"] in WITHOUT_VALUE else plain | {"value": row["value"]}


def _problems(row: object, path: str) -> Iterator[Problem]:
    """Yield what is wrong with one row."""
    if not isinstance(row, dict):
        yield Problem(path, "type", "This must be an object with path, operator and value.")
        return
    for name in sorted(row.keys() - {"path", "operator", "value"}):
        yield Problem(f"{path}.{name}", "unknown", "A row has path, operator and value only.")
    yield from _problems_of_path(row.get("path"), f"{path}.path")
    operator = row.get("operator")
    if not isinstance(operator, str) or operator not in OPERATORS:
        yield Problem(f"{path}.operator", "invalid", f"This must be one of {', '.join(OPERATORS)}.")
        return
    message = _objection(operator, row)
    if message:
        yield Problem(f"{path}.value", "invalid", message)


def _problems_of_path(value: object, path: str) -> Iterator[Problem]:
    if not isinstance(value, str) or not value:
        yield Problem(path, "required", "This must name an argument, dotted for what is inside: to.0.address.")
        return
    steps = value.split(".")
    if len(value) > MAX_PATH or len(steps) > MAX_STEPS:
        yield Problem(path, "too_long", f"A path has at most {MAX_PATH} characters and {MAX_STEPS} steps.")
    if not all(steps):
        yield Problem(path, "invalid", "A path has names between single dots, and none at its ends.")
    if any(step.isascii() and step.isdigit() and int(step[:9]) > MAX_PLACE for step in steps):
        yield Problem(path, "invalid", f"A place in a list may be 0 to {MAX_PLACE}.")


def _objection(operator: str, row: Mapping[str, Any]) -> str:
    """Return what is wrong with the value for this operator; empty when it fits."""
    if operator in WITHOUT_VALUE:
        return "" if row.get("value") is None else f"{operator} takes no value; leave it out."
    if "value" not in row:
        return "This is required."
    try:
        size = len(canonical_text(check_json(row["value"])))
    except MalformedJSON as problem:
        return problem.message
    if size > MAX_VALUE:
        return f"A value may have at most {MAX_VALUE:,} characters as JSON."
    return _OBJECTIONS.get(operator, _none)(row["value"])


def _none(value: Any) -> str:
    return ""


def _to_choices(value: Any) -> str:
    fits = isinstance(value, list) and 0 < len(value) <= MAX_CHOICES
    return "" if fits else f"This must be a list of 1 to {MAX_CHOICES} values."


def _to_text(value: Any) -> str:
    fits = isinstance(value, str) and 0 < len(value) <= MAX_TEXT // 2  # escaped, it may be twice as long
    return "" if fits else f"This must be a text of 1 to {MAX_TEXT // 2} characters."


def _to_part(value: Any) -> str:
    return _to_text(value) if isinstance(value, str) else ""


def _to_number(value: Any) -> str:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if fits else "This must be a number."


def _to_pattern(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        return f"This must be a pattern of 1 to {MAX_TEXT} characters."
    try:
        states_of(value)
    except SchemaProblem:
        return (
            "A pattern must be one a linear-time engine takes: no look-around, no back-references, no huge repetition."
        )
    return ""


_OBJECTIONS: dict[str, Callable[[Any], str]] = {
    "in": _to_choices,
    "not_in": _to_choices,
    "starts_with": _to_text,
    "ends_with": _to_text,
    "contains": _to_part,
    "matches": _to_pattern,
    "less_than": _to_number,
    "greater_than": _to_number,
}


Schema = dict[str, Any]
_SHOWN = 80


class Predicate:
    """Compiled rows; safe to share between threads. Without rows it matches everything."""

    __slots__ = ("_compiled", "_names", "rows", "sentence")

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self.sentence = " and ".join(map(sentence_of, rows))
        self._names = tuple({row.path.partition(".")[0] for row in rows})
        self._compiled = _validator({"allOf": [schema_of(row) for row in rows]}) if rows else None

    def matches(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether every row holds of the arguments."""
        if self._compiled is None:
            return True
        # Only what the rows are about is handed over: arguments may be large, and it is converted.
        return self._compiled.is_valid({name: arguments[name] for name in self._names if name in arguments})

    def failing(self, arguments: Mapping[str, Any]) -> Row | None:
        """Return the first row that does not hold; None when all do."""
        return next((row for row in self.rows if not _validator(schema_of(row)).is_valid(dict(arguments))), None)


def compile_rows(rows: Iterable[Mapping[str, Any]]) -> Predicate:
    """Return the predicate of rows that `check_rows` let through, compiled once per process."""
    return _compiled(tuple(Row(row["path"], row["operator"], canonical_text(row.get("value"))) for row in rows))


@lru_cache(maxsize=4096)
def _compiled(rows: tuple[Row, ...]) -> Predicate:
    return Predicate(rows)


def _validator(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def schema_of(row: Row) -> Schema:
    """Return the JSON Schema that arguments fit when the row holds."""
    if row.operator == "missing":
        return {"not": _at(row.path, {})}
    if row.operator.startswith("not_"):
        return {"not": _at(row.path, _LEAVES[row.operator.removeprefix("not_")](row.value))}
    return _at(row.path, _LEAVES[row.operator](row.value))


def _at(path: str, leaf: Schema) -> Schema:
    """Return the schema that asks for `leaf` at a dotted path; a number is an entry of a list, or a member so named."""
    schema = leaf
    for step in reversed(path.split(".")):
        inner, schema = schema, {"type": "object", "required": [step], "properties": {step: schema}}
        if step.isascii() and step.isdigit():
            place = int(step)
            entry = {"type": "array", "minItems": place + 1, "prefixItems": [*([True] * place), inner]}
            schema = {"anyOf": [schema, entry]}
    return schema


def _contains(value: Any) -> Schema:
    entry = {"type": "array", "contains": {"const": value}}
    return {"anyOf": [{"type": "string", "pattern": _literal(value)}, entry]} if isinstance(value, str) else entry


_LEAVES: dict[str, Callable[[Any], Schema]] = {
    "exists": lambda _: {},
    "equals": lambda value: {"const": value},
    "in": lambda value: {"enum": value},
    "starts_with": lambda value: {"type": "string", "pattern": f"^{_literal(value)}"},
    "ends_with": lambda value: {"type": "string", "pattern": f"{_literal(value)}$"},
    "contains": _contains,
    "matches": lambda value: {"type": "string", "pattern": value},
    "less_than": lambda value: {"type": "number", "exclusiveMaximum": value},
    "greater_than": lambda value: {"type": "number", "exclusiveMinimum": value},
}


def _literal(text: str) -> str:
    """Return the pattern of exactly this text."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", lambda found: f"\\{found[0]}", text)


_WORDS = {
    "equals": "is {}",
    "not_equals": "is not {}",
    "in": "is one of {}",
    "not_in": "is none of {}",
    "starts_with": "starts with {}",
    "ends_with": "ends with {}",
    "contains": "contains {}",
    "matches": "matches the pattern {}",
    "less_than": "is less than {}",
    "greater_than": "is more than {}",
    "exists": "is given",
    "missing": "is not given",
}


def sentence_of(row: Row) -> str:
    """Return the row in plain words: amount is more than 1000."""
    value = row.value
    shown = ", ".join(map(_shown, value)) if isinstance(value, list) and row.operator.endswith("in") else _shown(value)
    return f"{row.path} {_WORDS[row.operator].format(shown)}"


def _shown(value: Any) -> str:
    text = f"“{value}”" if isinstance(value, str) else canonical_text(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}… ({len(text)} characters)"
