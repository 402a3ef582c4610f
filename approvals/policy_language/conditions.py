"""Conditions of policies and grants on the arguments of a call: path, operator, value. All rows must hold.

Rows are compiled to one JSON Schema, with an engine whose patterns take linear time. A path without a value satisfies
`missing`, `not_equals` and `not_in`, and no other operator. An integer beyond ±(2^53 - 1) is written as digits.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs

from approvals.policy_language.derived import (
    COMMAND_EFFECTS,
    COMMAND_PROGRAMS,
    DERIVED_FACTS,
    ONLY_EXACT,
    OPERATORS_FOR_COMMANDS,
    WHOLE_COMMANDS,
    FactCondition,
    is_command,
    may_allow,
)
from approvals.policy_language.escapes import escapes
from catalog.client_tools.facts import DerivedFacts
from catalog.core.canonical_json import canonical_text, check_json
from catalog.core.json_paths import follow
from catalog.errors import MalformedJSON, SchemaProblem
from catalog.schemas import ArgumentProblem, raise_for_problems
from catalog.schemas.acceptance import automaton_states
from catalog.schemas.normalization import is_large_integer

MAX_CONDITIONS = 20
MAX_PATH = 200
MAX_PATH_STEPS = 16
MAX_LIST_INDEX = 99
MAX_VALUE = 4096
MAX_TEXT = 1024
MAX_CHOICES = 100

NO_NULL_CHARACTERS = "Null characters are not allowed, since not every database can store them here."
_NULL_CHARACTER = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
WITHOUT_VALUE = frozenset({"exists", "missing"})


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; the value is canonical JSON text, so that conditions can be compared and cached."""

    path: str
    operator: str
    text: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


def check_conditions(rows: object, path: str = "arguments", *, allows: bool = False) -> list[dict[str, Any]]:
    """Return the rows in canonical form. Raises ParameterError with paths such as arguments.0.operator.

    `allows` is True for the rows of grants and of rules that allow: conditions on commands must then be exact.
    """
    listed: list[Any] = rows if isinstance(rows, list) else []
    if listed is not rows:
        message = "This must be a list of rows with path, operator and value."
        raise_for_problems([ArgumentProblem(path, "type", message)])
    if len(listed) > MAX_CONDITIONS:
        message = f"There can be at most {MAX_CONDITIONS} rows. Split the policy in two."
        raise_for_problems([ArgumentProblem(path, "too_many", message)])
    raise_for_problems([problem for number, row in enumerate(listed) for problem in _problems(row, f"{path}.{number}")])
    inexact = [number for number, row in enumerate(listed) if allows and not may_allow(row["path"], row["operator"])]
    raise_for_problems([ArgumentProblem(f"{path}.{number}.operator", "inexact", ONLY_EXACT) for number in inexact])
    return [
        {"path": row["path"], "operator": row["operator"]}
        | ({} if row["operator"] in WITHOUT_VALUE else {"value": row["value"]})
        for row in listed
    ]


def _problems(row: object, path: str) -> Iterator[ArgumentProblem]:
    if not isinstance(row, dict):
        yield ArgumentProblem(path, "type", "This must be an object with path, operator and value.")
        return
    for name in sorted(row.keys() - {"path", "operator", "value"}):
        yield ArgumentProblem(f"{path}.{name}", "unknown", "A row can only have path, operator and value.")
    yield from path_problems(row.get("path"), f"{path}.path")
    operator = row.get("operator")
    if not isinstance(operator, str) or operator not in OPERATORS:
        yield ArgumentProblem(f"{path}.operator", "invalid", f"This must be one of {', '.join(OPERATORS)}.")
        return
    message = _value_objection(operator, row)
    if message:
        yield ArgumentProblem(f"{path}.value", "invalid", message)


def path_problems(names: object, path: str) -> Iterator[ArgumentProblem]:
    """Yield the problems of the dotted path of an argument; `path` is the place of its field."""
    if not isinstance(names, str) or not names:
        message = "This must be an argument's name, with dots for nested values: to.0.address."
        yield ArgumentProblem(path, "required", message)
        return
    steps = names.split(".")
    if len(names) > MAX_PATH or len(steps) > MAX_PATH_STEPS:
        message = f"A path can have at most {MAX_PATH} characters and {MAX_PATH_STEPS} steps."
        yield ArgumentProblem(path, "too_long", message)
    if "\0" in names:
        yield ArgumentProblem(path, "invalid", NO_NULL_CHARACTERS)
    if not all(steps):
        yield ArgumentProblem(path, "invalid", "A path consists of names separated by single dots.")
    indices = (step.lstrip("0") for step in steps if step.isascii() and step.isdigit())
    if any(int(index[:9] or 0) > MAX_LIST_INDEX for index in indices):  # a schema has an entry for each one before
        yield ArgumentProblem(path, "invalid", f"A list index must be 0 to {MAX_LIST_INDEX}.")


def _value_objection(operator: str, row: Mapping[str, Any]) -> str:
    """Return the problem with the value for this operator; empty if there is none."""
    if operator in WITHOUT_VALUE:
        return "" if row.get("value") is None else f"{operator} takes no value. Leave it out."
    if "value" not in row:
        return "This is required."
    try:
        size = len(canonical_text(check_json(row["value"])))
    except MalformedJSON as problem:
        return problem.message
    if _NULL_CHARACTER.search(canonical_text(row["value"])):
        return NO_NULL_CHARACTERS
    if size > MAX_VALUE:
        return f"A value can have at most {MAX_VALUE:,} characters as JSON."
    objection = _VALUE_CHECKS.get(operator)
    return objection(row["value"]) if objection is not None else ""


def _choices_objection(value: Any) -> str:
    fits = isinstance(value, list) and 0 < len(value) <= MAX_CHOICES
    return "" if fits else f"This must be a list of 1 to {MAX_CHOICES} values."


def _text_objection(value: Any) -> str:
    fits = isinstance(value, str) and 0 < len(value) <= MAX_TEXT // 2  # escaped, it may be twice as long
    return "" if fits else f"This must be a text of 1 to {MAX_TEXT // 2} characters."


def _number_objection(value: Any) -> str:
    fits = (isinstance(value, int | float) and not isinstance(value, bool)) or is_large_integer(value)
    return "" if fits else "This must be a number."


def _pattern_objection(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        return f"This must be a pattern of 1 to {MAX_TEXT} characters."
    try:
        automaton_states(value)
    except SchemaProblem:
        why = "no look-around, no back-references, no huge repetition"
        return f"A pattern must be one a linear-time engine takes: {why}."
    return ""


_VALUE_CHECKS: dict[str, Callable[[Any], str]] = {
    "in": _choices_objection,
    "not_in": _choices_objection,
    "starts_with": _text_objection,
    "ends_with": _text_objection,
    "contains": lambda value: _text_objection(value) if isinstance(value, str) else "",
    "matches": _pattern_objection,
    "less_than": _number_objection,
    "greater_than": _number_objection,
}


Schema = dict[str, Any]
_MAX_VALUE_SHOWN = 80


class Predicate:
    """Compiled rows; safe to share between threads. Without rows it matches everything.

    For a call that its client runs, rows on derived facts are compared with those, in `fits_call`.
    """

    __slots__ = ("_can_allow", "_compiled", "_facts", "_names", "_others", "rows")

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.rows = tuple(conditions)
        self._names = tuple({row.path.partition(".")[0] for row in conditions})
        self._compiled = _validator({"allOf": [condition_schema(row) for row in conditions]}) if conditions else None
        self._can_allow = all(may_allow(row.path, row.operator) for row in conditions)
        self._facts = tuple((row, _fact_condition(row)) for row in conditions if row.path in DERIVED_FACTS)
        others = [row for row in conditions if row.path not in DERIVED_FACTS]
        self._others: Predicate = Predicate(others) if self._facts else self

    @property
    def names_commands_exactly(self) -> bool:
        """True if a row names the whole command, or what commands do, by an operator that may allow."""
        named = (row.path for row in self.rows if row.operator in OPERATORS_FOR_COMMANDS)
        return any(path == COMMAND_EFFECTS or path in WHOLE_COMMANDS for path in named)

    @property
    def needed_names(self) -> frozenset[str]:
        """Names of the arguments without which no call that runs here fits."""
        return frozenset(row.path.partition(".")[0] for row in self.rows if row.operator not in FIT_WITHOUT_VALUE)

    def matches(self, arguments: Mapping[str, Any]) -> bool:
        if self._compiled is None:
            return True
        # Pass only the arguments that the rows name, since the engine converts all it gets and arguments may be large.
        return self._compiled.is_valid({name: arguments[name] for name in self._names if name in arguments})

    def covers(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if all rows hold and no text escapes them, as `reports/../x` does. For grants and allow rules.

        Rows on commands cover nothing unless they are exact.
        """
        return self._can_allow and self.matches(arguments) and not any(_escapes(row, arguments) for row in self.rows)

    def failing(self, arguments: Mapping[str, Any]) -> Condition | None:
        """Return the first row that does not hold; None if all do."""
        return next((row for row in self.rows if not _compile_cached((row,)).matches(arguments)), None)

    def uncovered(self, arguments: Mapping[str, Any]) -> Condition | None:
        """Return the first row that does not hold, that a text escapes, or that may not allow; None if all cover."""
        inexact = (row for row in self.rows if not may_allow(row.path, row.operator))
        escaped = (row for row in self.rows if _escapes(row, arguments))
        return self.failing(arguments) or next(escaped, None) or next(inexact, None)

    def fits_call(self, forms: Sequence[Mapping[str, Any]], derived: DerivedFacts | None, *, entirely: bool) -> bool:
        """Return True if the rows hold for one form of the arguments; if `entirely`, for all, and for every part.

        `derived` are the facts of a call that its client runs, None for other calls.
        """
        if derived is None:
            if len(forms) == 1:  # the most frequent way, and rules are many
                return self.covers(forms[0]) if entirely else self.matches(forms[0])
            return all(map(self.covers, forms)) if entirely else any(map(self.matches, forms))
        if entirely and not self._can_allow:
            return False
        if entirely and not derived.is_plain and any(is_command(row.path) for row in self.rows):
            return False  # other fields than the command decide what runs, too
        return self._others.fits_call(forms, None, entirely=entirely) and all(
            fact.fits(derived, entirely=entirely) for _, fact in self._facts
        )

    def unfit(
        self, forms: Sequence[Mapping[str, Any]], derived: DerivedFacts | None, *, entirely: bool
    ) -> Condition | None:
        """Return a row because of which `fits_call` is False; None if it is True."""
        if self.fits_call(forms, derived, entirely=entirely):
            return None
        find = self._others.uncovered if entirely else self._others.failing
        if derived is None:
            find = self.uncovered if entirely else self.failing
        found = [row for form in forms if (row := find(form)) is not None]
        if derived is not None:
            found += [row for row, fact in self._facts if not fact.fits(derived, entirely=entirely)]
        return found[-1] if found else self.rows[-1]


def _casefolded(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def _fact_condition(condition: Condition) -> FactCondition:
    value = condition.value
    if condition.path == "host" and condition.operator != "matches":  # hosts are written in lower case
        value = list(map(_casefolded, value)) if isinstance(value, list) else _casefolded(value)
    schema = condition_schema(Condition("value", condition.operator, canonical_text(value)))
    return FactCondition(condition.path, condition.operator, _validator(schema))


def _escapes(condition: Condition, arguments: Mapping[str, Any]) -> bool:
    try:
        found = follow(arguments, condition.path.split("."))
    except LookupError:
        return False
    return escapes(condition.operator, condition.value, found)


def compile_conditions(rows: Iterable[Mapping[str, Any]]) -> Predicate:
    """Return the predicate of rows checked by `check_conditions`, compiled once per process."""
    return _compile_cached(
        tuple(Condition(row["path"], row["operator"], canonical_text(row.get("value"))) for row in rows)
    )


@lru_cache(maxsize=4096)
def _compile_cached(conditions: tuple[Condition, ...]) -> Predicate:
    return Predicate(conditions)


def _validator(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def condition_schema(condition: Condition) -> Schema:
    """Return the JSON Schema that arguments match if and only if the row holds."""
    path, operator = condition.path, condition.operator
    if operator == "missing":
        return {"not": _schema_at_path(path, {})}
    schema = _schema_at_path(path, _LEAF_SCHEMAS[operator.removeprefix("not_")](condition.value))
    return {"not": schema} if operator.startswith("not_") else schema


def _schema_at_path(path: str, leaf: Schema) -> Schema:
    """Return a schema that applies `leaf` to a dotted path; a number is a list index or the name of a member."""
    schema = leaf
    for step in reversed(path.split(".")):
        inner, schema = schema, {"type": "object", "required": [step], "properties": {step: schema}}
        if step.isascii() and step.isdigit():
            place = int(step)
            entry = {"type": "array", "minItems": place + 1, "prefixItems": [*([True] * place), inner]}
            schema = {"anyOf": [schema, entry]}
    return schema


def _values(*options: Any) -> Schema:
    """Return a schema that matches these values. In rows, an integer too large for JSON is a text of digits."""
    return {"enum": [*options, *(int(each) for each in options if is_large_integer(each))]}


def _contains_schema(value: Any) -> Schema:
    entry = {"type": "array", "contains": _values(value)}
    part = {"type": "string", "pattern": _literal_pattern(value)} if isinstance(value, str) else None
    return {"anyOf": [part, entry]} if part else entry


_LEAF_SCHEMAS: dict[str, Callable[[Any], Schema]] = {
    "exists": lambda _: {},
    "equals": lambda value: _values(value),
    "in": lambda value: _values(*value),
    "starts_with": lambda value: {"type": "string", "pattern": f"^{_literal_pattern(value)}"},
    "ends_with": lambda value: {"type": "string", "pattern": f"{_literal_pattern(value)}$"},
    "contains": _contains_schema,
    "matches": lambda value: {"type": "string", "pattern": value},
    "less_than": lambda value: {"type": "number", "exclusiveMaximum": _number(value)},
    "greater_than": lambda value: {"type": "number", "exclusiveMinimum": _number(value)},
}


def _number(value: Any) -> Any:
    return int(value) if is_large_integer(value) else value


def _literal_pattern(text: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$]", lambda found: f"\\{found[0]}", text)


_OPERATOR_PHRASES = {
    "equals": "is {}",
    "not_equals": "is not {}",
    "in": "is one of {}",
    "not_in": "is none of {}",
    "starts_with": "starts with {}",
    "ends_with": "ends with {}",
    "contains": "contains {}",
    "matches": "matches the pattern {}",
    "less_than": "is less than {}",
    "greater_than": "is greater than {}",
    "exists": "is given",
    "missing": "is not given",
}
OPERATORS = tuple(_OPERATOR_PHRASES)
FIT_WITHOUT_VALUE = frozenset({"missing", "not_equals", "not_in"})
"""Operators of rows that hold where the path leads to nothing."""


def condition_sentence(condition: Condition, *, entirely: bool = False, whole: bool = False) -> str:
    """Return the row as a phrase, such as: amount is greater than 1000.

    Of what a command does, `entirely` requires every value to fit; otherwise one is enough. Long values are cut unless
    `whole`.
    """
    value = condition.value
    is_choice = isinstance(value, list) and condition.operator.endswith("in")
    longest = None if whole else _MAX_VALUE_SHOWN
    text = ", ".join(_value_text(each, longest) for each in (value if is_choice else [value]))
    subject = condition.path
    if subject in (COMMAND_EFFECTS, COMMAND_PROGRAMS) and condition.operator not in ("exists", "missing"):
        subject = f"every value of {subject}" if entirely else f"a value of {subject}"
    return f"{subject} {_OPERATOR_PHRASES[condition.operator].format(text)}"


def _value_text(value: Any, longest: int | None) -> str:
    text = f"“{value}”" if isinstance(value, str) else canonical_text(value)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}… ({len(text)} characters)"
