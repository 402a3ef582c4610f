"""Conditions as people type them: a value that is no JSON is a text, and commas separate the values of a list."""

import json
from typing import Any

from approvals.policy_language.conditions import WITHOUT_VALUE
from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import MalformedJSON

LIST_OPERATORS = frozenset({"in", "not_in"})
LITERAL_OPERATORS = frozenset({"starts_with", "ends_with", "matches"})


def read_condition(path: str, operator: str, text: str) -> dict[str, Any]:
    """Return a condition on the argument at `path`, with the value that `text` stands for."""
    if operator in WITHOUT_VALUE:
        return {"path": path, "operator": operator}
    value = text if operator in LITERAL_OPERATORS else _json_or_text(text)
    if operator in LIST_OPERATORS and not isinstance(value, list):
        value = [_json_or_text(part.strip()) for part in text.split(",") if part.strip()]
    return {"path": path, "operator": operator, "value": value}


def value_as_typed(operator: str, value: Any) -> str:
    """Return a value as a person would type it, quoted only if it would otherwise be parsed as something else."""
    if operator in WITHOUT_VALUE:
        return ""
    if isinstance(value, str) and (operator in LITERAL_OPERATORS or _json_or_text(value) == value):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list) else canonical_text(value)


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except MalformedJSON:
        return text
