"""Conditions on facts derived from calls that their clients run: what a command does, which paths and hosts it names.

Each fact has several values. A rule that holds or denies fits if any of them does; one that allows only if the call is
understood and all of them fit. In calls that run here the same paths name arguments.
"""

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from catalog.client_tools.commands import EFFECTS
from catalog.client_tools.facts import DerivedFacts

OPERATORS_FOR_COMMANDS = frozenset({"equals", "in"})
"""The only operators with which a condition on a command may allow: `npm test; rm -rf ~` starts with `npm `."""
COMMAND_EFFECTS, COMMAND_PROGRAMS = "command.effects", "command.programs"
DERIVED_FACTS = {COMMAND_PROGRAMS: "programs", COMMAND_EFFECTS: "effects", "path": "paths", "host": "hosts"}
"""Attribute of `DerivedFacts` by the path of a condition."""
_COMMANDS = frozenset({"command", "commands", "cmd", "command_line", "commandline", "shell_command", "shell", "script"})
WHOLE_COMMANDS = frozenset({"command", "cmd"})
"""Arguments of clients' tools that are the whole command."""
ONLY_EXACT = "On a command, only equals and in may allow: “npm test; rm -rf ~” starts with “npm ” as well."


def is_command(path: str | Sequence[str]) -> bool:
    """Return True if a condition's path names a command, a part of one, or a fact derived from one."""
    steps = path.split(".") if isinstance(path, str) else path
    return any(step.casefold().replace("-", "_") in _COMMANDS for step in steps)


def may_allow(path: str, operator: str) -> bool:
    """Return True if a condition with this operator may be part of a rule that allows, or of a grant."""
    return operator in OPERATORS_FOR_COMMANDS or not is_command(path)


def unknown_effects(value: Any) -> list[str]:
    """Return the names in a condition's value that are no effects."""
    names = value if isinstance(value, list) else [value]
    return [name for name in names if isinstance(name, str) and name not in EFFECTS]


class FactCondition:
    """One row on a derived fact, compiled; `schema` is what one value must match."""

    __slots__ = ("_attribute", "_operator", "_validator")

    def __init__(self, path: str, operator: str, validator: jsonschema_rs.Draft202012Validator) -> None:
        self._attribute, self._operator, self._validator = DERIVED_FACTS[path], operator, validator

    def fits(self, facts: DerivedFacts, *, entirely: bool) -> bool:
        """Return True if a value fits; if `entirely`, only if all do and the call is understood."""
        values: tuple[str, ...] = getattr(facts, self._attribute)
        if entirely and not facts.understood:
            return False
        if self._operator in ("exists", "missing"):
            return bool(values) == (self._operator == "exists")
        matched = [self._validator.is_valid({"value": value}) for value in values]
        return bool(matched) and (all(matched) if entirely else any(matched))
