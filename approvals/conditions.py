"""Which rows of conditions are taken: known operators, values that fit them, paths that lead somewhere, few of each."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
