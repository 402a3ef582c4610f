"""Rows of conditions on a call's arguments, as policies and grants have them: path, operator, value.

All rows of a list must hold. They become one JSON Schema, compiled once with an engine whose patterns are linear in the
text. A path that leads nowhere satisfies `missing`, `not_equals` and `not_in` (nothing there is equal), and no other.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs

from approvals.conditions import Row, check_rows
from catalog.core.canonical_json import canonical_text

__all__ = ["Predicate", "Row", "check_rows", "compile_rows"]

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
