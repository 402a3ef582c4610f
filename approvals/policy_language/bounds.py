"""Conditions of grants and envelopes: in the form of a policy's conditions, but covering every argument of a call.

A call with an argument that no condition names needs approval. The operator `exists` allows any value. An argument
filled in by default needs no condition, since the grant is bound to the definition that contains the default. A command
is covered only by `equals` and `in`, wherever it is in the arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from approvals.errors import GrantRefused
from approvals.policy_language.conditions import check_conditions, compile_conditions, condition_sentence
from approvals.policy_language.derived import COMMAND_EFFECTS, COMMAND_PROGRAMS, OPERATORS_FOR_COMMANDS, is_command
from catalog.calls.privacy import is_mask
from catalog.core.canonical_json import canonical_text
from catalog.dispatch.arguments import CallArguments
from catalog.secrets.placeholders import find_argument_secrets

ArgumentPath = tuple[str, ...]
PLACEHOLDER_KEY = "$secret"


def check_bounds(rows: object, path: str = "arguments") -> list[dict[str, Any]]:
    """Return the conditions in canonical form. Raises ParameterError with paths under `path`."""
    checked = check_conditions(rows, path, allows=True)
    for number, row in enumerate(checked):
        if row["path"] in (COMMAND_EFFECTS, COMMAND_PROGRAMS):
            message = (
                "Only arguments can be compared here. Name the whole command with equals or in, or change a policy."
            )
            raise GrantRefused(f"{path}.{number}.path", message)
        is_masked = PLACEHOLDER_KEY in row["path"].split(".") or PLACEHOLDER_KEY in canonical_text(row.get("value"))
        if is_masked or find_argument_secrets(None, row):
            raise GrantRefused(f"{path}.{number}", "A secret cannot be compared. Use exists to allow any value.")
    return checked


def conditions_cover(rows: list[dict[str, Any]], arguments: CallArguments) -> bool:
    """Return True if all conditions hold, with and without defaults, and each given argument has a condition."""
    if not all(map(compile_conditions(rows).covers, arguments.forms)):
        return False
    named, exact = named_paths(rows)
    return all(is_named(leaf, exact if is_command(leaf) else named) for leaf in leaf_paths(arguments.given))


def named_paths(rows: Iterable[Mapping[str, Any]]) -> tuple[set[ArgumentPath], set[ArgumentPath]]:
    """Return the paths that the rows name, and those of them that may bound commands."""
    paths = [(tuple(row["path"].split(".")), row["operator"]) for row in rows]
    return {path for path, _ in paths}, {path for path, operator in paths if operator in OPERATORS_FOR_COMMANDS}


def is_named(leaf: ArgumentPath, named: set[ArgumentPath]) -> bool:
    """Return True if the path of a leaf begins with one of these."""
    return any(leaf[:length] in named for length in range(1, len(leaf) + 1))


def conditions_sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    return " and ".join(condition_phrases(rows)) or "the call has no arguments"


def condition_phrases(rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> list[str]:
    """Return a phrase for each row, those with private values last. Long values are cut unless `whole`."""
    rows = list(rows)
    visible = [row for row in rows if not is_mask(row.get("value"))]
    phrases = [
        f"{row.path} can be anything" if row.operator == "exists" else condition_sentence(row, whole=whole)
        for row in compile_conditions(visible).rows
    ]
    return phrases + [f"{row['path']} has a private value" for row in rows if row not in visible]


def leaf_paths(value: Any, path: ArgumentPath = ()) -> Iterator[ArgumentPath]:
    """Yield the paths of the leaves inside a value; empty containers and secrets are leaves."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping) and PLACEHOLDER_KEY not in value:
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    if not inner or not value:
        yield from [path] if path else []
        return
    for step, each in inner:
        yield from leaf_paths(each, (*path, str(step)))
