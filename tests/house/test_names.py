"""Parameters are named after their types."""

import ast
import re
from pathlib import Path

from tests.house.source import PRODUCT, ROOT, functions, modules, parse, where, write

KNOWN_NAMES = {"_", "self", "cls", "tx", "by", "pk", "cursor"}
"""Short names that everyone knows, and the one of a parameter that is not used."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
PACKAGES = (
    *("catalog/access", "catalog/calls", "catalog/core", "catalog/definitions", "catalog/dispatch", "catalog/exports"),
    *("catalog/schemas", "catalog/secrets", "catalog/styles", "catalog/text", "catalog/tools", "config"),
)
EXCEPTIONS = {"mark: Match", "refusal: ParameterError"}
"""Parameters whose name says more than their class: `name: Class`."""


def words(name: str) -> set[str]:
    """Return the words of a name in lower case, each also without the ending of a plural."""
    found = [word.lower() for word in WORD.findall(name)]
    endings = (("", ""), ("s", ""), ("es", ""), ("ies", "y"))
    return {word.removesuffix(end) + instead for word in found for end, instead in endings if word.endswith(end)}


def classes(root: Path) -> set[str]:
    """Return the names of the product's classes."""
    trees = (parse(path) for path in modules(root, *PRODUCT))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def named_in(annotation: ast.expr) -> set[str]:
    """Return the names in an annotation, also in one written as text."""
    found: set[str] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") != "re":
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
    return found


def strangers(root: Path, *packages: str) -> dict[str, str]:
    """Return the parameters that share no word with their class, as `name: Class`, each with one place."""
    ours, found = classes(root), {}
    for path in modules(root, *PRODUCT):
        if packages and not where(root, path).startswith(packages):
            continue
        for function in functions(parse(path)):
            given = function.args
            for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                kinds = named_in(parameter.annotation) & ours if parameter.annotation else set()
                if not kinds or parameter.arg in KNOWN_NAMES:
                    continue
                if words(parameter.arg).isdisjoint(set().union(*map(words, kinds))):
                    found[f"{parameter.arg}: {' | '.join(sorted(kinds))}"] = where(root, path, parameter.lineno)
    return found


def test_parameters_share_a_word_with_their_class() -> None:
    found = strangers(ROOT, *PACKAGES)
    assert {name: place for name, place in found.items() if name not in EXCEPTIONS} == {}
    assert found.keys() >= EXCEPTIONS
    assert len(EXCEPTIONS) <= 60


def test_a_parameter_named_after_nothing_is_found(tmp_path: Path) -> None:
    code = (
        "class CheckInput: ...\nclass Policy: ...\n"
        "def check(check: CheckInput, policies: list[Policy], by: Policy, world: 'CheckInput', text: str): ...\n"
    )
    write(tmp_path, "plans/checks.py", code)
    assert strangers(tmp_path) == {"world: CheckInput": "plans/checks.py:3"}
